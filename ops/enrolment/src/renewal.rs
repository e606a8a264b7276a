//! Renewal of a certificate while a program runs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use anyhow::Context;
use boring::asn1::{Asn1Time, Asn1TimeRef};
use boring::error::ErrorStack;
use boring::x509::{X509, X509Ref};
use millrace_ops::certificates::BACKDATE;
use millrace_tunnel::metrics::{Metrics, RenewalResult};
use time::OffsetDateTime;

/// A certificate is renewed when this part of its lifetime is left.
const RENEWAL_FRACTION: i64 = 3;
/// Attempts to renew in the time that is left then.
const RENEWAL_ATTEMPTS: i64 = 20;
/// Longest pause between two attempts, and between two looks at the file, which may be replaced by hand.
const MAX_PAUSE_S: i64 = 3600;
const MAX_PAUSE: Duration = Duration::from_secs(MAX_PAUSE_S.unsigned_abs());

/// When a certificate is to be renewed, in seconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenewalSchedule {
    /// From then on it is renewed.
    pub due: i64,
    /// Pause after each attempt.
    pub pause: Duration,
}

impl RenewalSchedule {
    /// The schedule of a certificate that is valid from `begin` until `end`.
    pub fn new(begin: i64, end: i64) -> Self {
        let whole = end.saturating_sub(begin);
        let used = whole - BACKDATE.whole_seconds();
        // Certificates from elsewhere do not begin before they were made.
        let lifetime = if used > 0 { used } else { whole };
        let left = lifetime.max(0) / RENEWAL_FRACTION;
        let pause = (left / RENEWAL_ATTEMPTS).clamp(1, MAX_PAUSE_S);
        Self { due: end - left, pause: Duration::from_secs(pause.unsigned_abs()) }
    }

    /// The schedule of a certificate.
    ///
    /// # Errors
    /// Its dates can't be read.
    pub fn of(certificate: &X509Ref) -> Result<Self, ErrorStack> {
        Ok(Self::new(unix_time(certificate.not_before())?, unix_time(certificate.not_after())?))
    }

    /// How long to wait at the time `now`; zero if it is due.
    pub fn wait(&self, now: i64) -> Duration {
        let left = self.due.saturating_sub(now).clamp(0, MAX_PAUSE_S);
        Duration::from_secs(left.unsigned_abs())
    }
}

/// Seconds since 1970-01-01T00:00:00Z.
pub(crate) fn unix_time(time: &Asn1TimeRef) -> Result<i64, ErrorStack> {
    let since = Asn1Time::from_unix(0)?.diff(time)?;
    Ok(i64::from(since.days) * 86_400 + i64::from(since.secs))
}

/// Renews a certificate when it is due, on a thread of its own. It ends when this is dropped.
#[derive(Debug)]
pub struct RenewalTask {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl RenewalTask {
    /// `path` returns the file of the certificate, `renew` replaces it. After that `renewed` is called. All three are
    /// called again and again: the configuration may change.
    ///
    /// # Errors
    /// The thread can't be started.
    pub fn start(
        path: impl Fn() -> anyhow::Result<PathBuf> + Send + 'static,
        renew: impl Fn() -> anyhow::Result<()> + Send + 'static,
        renewed: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        let (stop, stopped) = channel();
        let run = move || {
            loop {
                let pause = look(&path, &renew, &renewed).unwrap_or_else(|error| {
                    let error = format!("{error:#}");
                    tracing::warn!(error, "failed to look when the certificate is to be renewed");
                    MAX_PAUSE
                });
                match stopped.recv_timeout(pause) {
                    Err(RecvTimeoutError::Timeout) => {}
                    _ => return,
                }
            }
        };
        let thread = Builder::new().name("renewal".to_owned()).spawn(run)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for RenewalTask {
    fn drop(&mut self) {
        self.stop = None;
        // It may be in an exchange with a server that is silent: the end of the process does not wait for it.
        if let Some(thread) = self.thread.take().filter(JoinHandle::is_finished) {
            let _ = thread.join();
        }
    }
}

/// Counts what `renew` returns.
pub fn counted(
    metrics: Arc<Metrics>,
    renew: impl Fn() -> anyhow::Result<()> + Send + 'static,
) -> impl Fn() -> anyhow::Result<()> + Send + 'static {
    move || {
        let renewed = renew();
        let result = match renewed {
            Ok(()) => RenewalResult::Success,
            Err(_) => RenewalResult::Failure,
        };
        metrics.renewals.of(result).inc();
        renewed
    }
}

/// Renews the certificate if it is due. Returns the pause until the next look.
fn look(
    path: &impl Fn() -> anyhow::Result<PathBuf>,
    renew: &impl Fn() -> anyhow::Result<()>,
    renewed: &impl Fn(),
) -> anyhow::Result<Duration> {
    let schedule = schedule(&path()?)?;
    let wait = schedule.wait(OffsetDateTime::now_utc().unix_timestamp());
    if !wait.is_zero() {
        return Ok(wait);
    }
    match renew() {
        Ok(()) => {
            tracing::info!("certificate renewed");
            renewed();
        }
        Err(error) => {
            let error = format!("{error:#}");
            tracing::warn!(error, "failed to renew the certificate");
        }
    }
    Ok(schedule.pause)
}

fn schedule(path: &Path) -> anyhow::Result<RenewalSchedule> {
    let pem = fs::read(path).with_context(|| format!("can't read {}", path.display()))?;
    Ok(RenewalSchedule::of(&*X509::from_pem(&pem)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400;
    const NOW: i64 = 1_800_000_000;

    #[test]
    fn certificate_is_renewed_in_its_last_third() {
        let backdate = BACKDATE.whole_seconds();
        let of_90_days = RenewalSchedule::new(NOW - backdate, NOW + 90 * DAY);
        assert_eq!(of_90_days.due, NOW + 60 * DAY);
        assert_eq!(of_90_days.pause, Duration::from_secs(3600));
        let of_9_s = RenewalSchedule::new(NOW - backdate, NOW + 9);
        assert_eq!((of_9_s.due, of_9_s.pause), (NOW + 6, Duration::from_secs(1)));
        // From elsewhere, for half an hour.
        assert_eq!(RenewalSchedule::new(NOW, NOW + 1800).due, NOW + 1200);
        // The end before the beginning.
        assert_eq!(RenewalSchedule::new(NOW, NOW - 10).due, NOW - 10);
    }

    #[test]
    fn wait_is_bounded_and_ends_when_it_is_due() {
        let schedule = RenewalSchedule::new(NOW - BACKDATE.whole_seconds(), NOW + 90 * DAY);
        assert_eq!(schedule.wait(NOW), Duration::from_secs(3600));
        assert_eq!(schedule.wait(schedule.due - 5), Duration::from_secs(5));
        assert_eq!(schedule.wait(schedule.due), Duration::ZERO);
        assert_eq!(schedule.wait(i64::MAX), Duration::ZERO);
        assert_eq!(schedule.wait(i64::MIN), Duration::from_secs(3600));
    }
}
