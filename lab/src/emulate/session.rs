//! The result of a session with a player of either kind, and the checks while it lasts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::Value;
use thiserror::Error;

use super::address_plan::AddressPlan;
use super::telemetry::Payload;
use super::traffic::EmulatedFlow;
use crate::netns::Namespace;
use crate::results::Figures;
use crate::results::series::Screen;
use crate::scenario::Scenario;
use crate::site;
use crate::topology::Topology;

/// The first routing table of the flows that choose their congestion control by route.
const FIRST_TABLE: u32 = 1000;

/// Something else has ended the run.
#[derive(Debug, Clone, Copy, Error)]
#[error("the run ended before its time")]
pub struct EndedEarly;

/// The result of a session.
#[derive(Debug, Clone)]
pub struct SessionResult {
    /// Its figures, by their names; `None` for a time that never came.
    pub figures: Vec<(&'static str, Option<f64>)>,
    /// Second by second.
    pub seconds: Vec<Screen>,
    /// When the payload arrived.
    pub arrivals: Vec<Payload>,
    /// Why it is invalid: faults of this machine, not of the link.
    pub invalid_reasons: Vec<String>,
    /// What `run.json` has of it.
    pub account: Value,
}

impl SessionResult {
    /// What was on the screen `at_s` seconds into the session.
    pub fn screen(&self, at_s: f64) -> Screen {
        let second = (at_s >= 0.0).then(|| self.seconds.get(at_s as usize)).flatten();
        second.copied().unwrap_or_default()
    }

    /// Adds its figures to those of the flow.
    pub fn add_to(&self, figures: &mut Figures) {
        for &(name, value) in &self.figures {
            figures.set_if(name, value);
        }
    }
}

/// Sets the congestion control of players' flows over the kernel's TCP on the routes back from the origin that
/// they share: third-party servers can't choose it for their sockets.
///
/// # Errors
/// When `ip` fails.
pub fn route(scenario: &Scenario, address_plan: &AddressPlan, topology: &Topology) -> Result<()> {
    for (flow, addresses) in (0..).zip(&address_plan.flows) {
        let group = &scenario.groups[addresses.group];
        let shares_origin = group.is_watched() && !addresses.has_own_host;
        if let (true, Some(cc)) = (shares_origin, group.kernel_cc()) {
            topology.route_from(addresses.origin.ip(), FIRST_TABLE + flow, cc)?;
        }
    }
    Ok(())
}

/// Checks a session while it lasts.
#[derive(Debug)]
pub struct SessionGuard<'a> {
    /// Start of the session.
    pub start: Instant,
    /// End of the session.
    pub stop: Instant,
    origin: String,
    over: &'a AtomicBool,
    host: &'a Namespace,
    /// The kernel's congestion control, until it has been checked.
    unchecked: Option<&'a str>,
}

impl<'a> SessionGuard<'a> {
    /// For a flow in a run that began at `began`.
    pub fn of(flow: &EmulatedFlow<'a>, began: Instant) -> Self {
        let at = |time_s| began + Duration::from_secs_f64(time_s);
        Self {
            start: at(flow.addresses.start_s),
            stop: at(flow.group.stop_s),
            origin: flow.addresses.origin.ip().to_string(),
            over: flow.over,
            host: flow.origin,
            unchecked: flow.group.kernel_cc(),
        }
    }

    /// To be called periodically. In the middle of the session it checks that the kernel uses the configured
    /// congestion control.
    ///
    /// # Errors
    /// When it does not, or the run has ended before the session's time.
    pub fn check(&mut self) -> Result<()> {
        let now = Instant::now();
        if self.over.load(Ordering::Relaxed) && now < self.stop {
            return Err(EndedEarly.into());
        }
        let middle = self.start + self.stop.saturating_duration_since(self.start) / 2;
        if let Some(wanted) = self.unchecked.filter(|_| now >= middle) {
            self.unchecked = None;
            let used = site::congestion_control(self.host, &["src", &self.origin])?;
            if used != wanted {
                bail!("the origin's kernel uses {used}, not {wanted}");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_screen_is_that_of_the_second() {
        let second =
            |buffer_s: f64| Screen { buffer_s: Some(buffer_s), psnr_db: None, shown_kbps: None };
        let session = SessionResult {
            figures: vec![("stalls", Some(2.0)), ("psnr_db", None)],
            seconds: vec![second(0.0), second(3.0)],
            arrivals: Vec::new(),
            invalid_reasons: Vec::new(),
            account: Value::Null,
        };
        assert_eq!(session.screen(-0.1), Screen::default());
        assert_eq!(session.screen(0.9).buffer_s, Some(0.0));
        assert_eq!(session.screen(1.0).buffer_s, Some(3.0));
        assert_eq!(session.screen(2.0), Screen::default());
        let mut figures = Figures::default();
        session.add_to(&mut figures);
        assert_eq!(figures.0.len(), 1);
    }
}
