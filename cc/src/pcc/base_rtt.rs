use std::time::Duration;

use crate::Time;
use crate::estimators::WindowedMin;

// No paper has these thresholds; docs/research/cc/pcc.md has measurements, the tests below cover each.

/// The base RTT is the smallest of this long.
const BASE_RTT_WINDOW: Duration = Duration::from_secs(60);
/// A queue stands if RTTs are above the smallest of this long. Longer than the above, because flows that fill a buffer
/// together may never let it drain; QUIC stacks remember the smallest RTT for as long.
const QUEUE_FREE_RTT_WINDOW: Duration = Duration::from_secs(300);
/// An RTT excursion that lasts this long, and [`MIN_EXCURSION_RTTS`], shows a longer path.
/// Chosen by `longer_path_is_known_after_three_seconds_or_ten_round_trips`.
const MIN_EXCURSION: Duration = Duration::from_secs(3);
const MIN_EXCURSION_RTTS: u32 = 10;
/// Most that the RTTs of an excursion may vary, as a share of their excess over the window horizon.
/// Chosen by `varying_queue_does_not_change_the_base_rtt`.
const MAX_EXCURSION_SPREAD: f64 = 0.2;
/// During an excursion the rate and what is in flight must have fallen below this share of what they were: that would
/// have shortened a queue. A rate whose window is the least one leaves the queue as it is.
const REDUCED_FRACTION: f64 = 0.8;
/// If they have not fallen, the window does, to this share of the horizon and of what is in flight, for [`TRIAL_RTTS`]
/// round trips. Chosen by `standing_queue_shrinks_with_a_smaller_window`.
const TRIAL_WINDOW_FRACTION: f64 = 0.75;
const TRIAL_RTTS: u32 = 4;

/// The path's RTT without a queue, for the window of a latency-sensitive sender.
///
/// That window covers one and a half times the base RTT and a headroom. Without a bound the queue of a link that slows
/// down delays feedback, and so grows by seconds.
///
/// On a path that has become much longer the window is too small and limits the rate. Lower rates shorten a queue but
/// not a path. RTTs that stay beyond the window horizon, and steady, while the rate falls are therefore the path's.
/// Where they do not fall, a trial with less in flight tells.
#[derive(Debug)]
pub(super) struct BaseRtt {
    memory: WindowedMin<Duration>,
    queue_free: WindowedMin<Duration>,
    headroom: Duration,
    /// By the smallest RTT; `None` before the first sample.
    baseline: Option<Baseline>,
    excursion: Option<RttExcursion>,
}

/// The window horizon outside of a trial. Kept, because the window is asked for with each packet and the smallest RTT
/// seldom changes.
#[derive(Clone, Copy, Debug)]
struct Baseline {
    least_rtt: Duration,
    horizon: Duration,
    horizon_s: f64,
}

/// RTTs beyond the window horizon.
#[derive(Clone, Copy, Debug)]
struct RttExcursion {
    since: Time,
    least: Duration,
    most: Duration,
    /// Rate at its start, 10^6 bit/s.
    rate_mbps: f64,
    in_flight_bytes: u64,
    trial: Option<WindowTrial>,
}

/// A trial with a smaller window.
#[derive(Clone, Copy, Debug)]
struct WindowTrial {
    ends: Time,
    window_bytes: u64,
}

impl BaseRtt {
    pub(super) fn new(headroom: Duration) -> Self {
        let memory = WindowedMin::new(BASE_RTT_WINDOW.as_nanos() as u64);
        let queue_free = WindowedMin::new(QUEUE_FREE_RTT_WINDOW.as_nanos() as u64);
        Self { memory, queue_free, headroom, baseline: None, excursion: None }
    }

    /// Adds a sample with the rate in force and what is in flight. If it shows that the path has become longer, returns the rate before the
    /// excursion, which the window had limited since.
    pub(super) fn add(
        &mut self,
        now: Time,
        latest: Duration,
        smoothed: Duration,
        rate_mbps: f64,
        in_flight_bytes: u64,
    ) -> Option<f64> {
        self.memory.add(now.as_nanos(), latest);
        self.queue_free.add(now.as_nanos(), latest);
        self.update_baseline();
        let horizon = self.baseline?.horizon;
        if latest <= horizon || smoothed <= horizon {
            self.excursion = None;
            return None;
        }
        let fresh = RttExcursion {
            since: now,
            least: smoothed,
            most: smoothed,
            rate_mbps,
            in_flight_bytes,
            trial: None,
        };
        let mut excursion = self.excursion.unwrap_or(fresh);
        excursion.least = excursion.least.min(smoothed);
        excursion.most = excursion.most.max(smoothed);
        // The smallest RTT may have expired since: the horizon may now include the start of the excursion.
        let excess = excursion.least.saturating_sub(horizon);
        if excursion.most - excursion.least > excess.mul_f64(MAX_EXCURSION_SPREAD) {
            excursion = fresh;
        }
        let lasts = now.since(excursion.since) > MIN_EXCURSION.max(smoothed * MIN_EXCURSION_RTTS);
        if lasts && excursion.trial.is_none() {
            excursion.trial = Some(WindowTrial {
                ends: now + smoothed * TRIAL_RTTS,
                window_bytes: (TRIAL_WINDOW_FRACTION * in_flight_bytes as f64) as u64,
            });
        }
        self.excursion = Some(excursion);
        let reduced = rate_mbps < REDUCED_FRACTION * excursion.rate_mbps
            && (in_flight_bytes as f64) < REDUCED_FRACTION * excursion.in_flight_bytes as f64;
        let tried = excursion.trial.is_some_and(|trial| now >= trial.ends);
        if !(lasts && reduced || tried) {
            return None;
        }
        self.excursion = None;
        for memory in [&mut self.memory, &mut self.queue_free] {
            memory.clear();
            memory.add(now.as_nanos(), excursion.least);
        }
        self.update_baseline();
        Some(excursion.rate_mbps)
    }

    /// The smallest RTT of the path at a warm start, whose queue may stand.
    pub(super) fn begin_with(&mut self, now: Time, min_rtt: Duration) {
        self.queue_free.add(now.as_nanos(), min_rtt);
    }

    /// The RTT without a queue; `None` before the first sample.
    pub(super) fn queue_free(&self) -> Option<Duration> {
        self.queue_free.get()
    }

    /// The time that the window covers, s; `None` before the first sample.
    pub(super) fn window_horizon_s(&self) -> Option<f64> {
        let baseline = self.baseline?;
        Some(match self.trial() {
            Some(_) => baseline.horizon.mul_f64(TRIAL_WINDOW_FRACTION).as_secs_f64(),
            None => baseline.horizon_s,
        })
    }

    /// Most bytes in flight during a trial.
    pub(super) fn trial_window_bytes(&self) -> Option<u64> {
        self.trial().map(|trial| trial.window_bytes)
    }

    fn trial(&self) -> Option<WindowTrial> {
        self.excursion.and_then(|excursion| excursion.trial)
    }

    fn update_baseline(&mut self) {
        let least_rtt = self.memory.get();
        if self.baseline.map(|baseline| baseline.least_rtt) == least_rtt {
            return;
        }
        self.baseline = least_rtt.map(|least_rtt| {
            let horizon = least_rtt * 3 / 2 + self.headroom;
            Baseline { least_rtt, horizon, horizon_s: horizon.as_secs_f64() }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn horizon(base: &BaseRtt) -> Duration {
        Duration::from_secs_f64(base.window_horizon_s().expect("a round trip has been seen"))
    }

    /// Adds a sample each 100 ms from one time to another, at a falling rate.
    fn feed(base: &mut BaseRtt, from_ms: u64, to_ms: u64, rtt: impl Fn(u64) -> Duration) {
        feed_at(base, from_ms, to_ms, rtt, |at| 20.0 / (at - from_ms + 100) as f64);
    }

    fn feed_at(
        base: &mut BaseRtt,
        from_ms: u64,
        to_ms: u64,
        rtt: impl Fn(u64) -> Duration,
        mbps: impl Fn(u64) -> f64,
    ) {
        for at in (from_ms..to_ms).step_by(100) {
            base.add(
                Time::from_nanos(at * 1_000_000),
                rtt(at),
                rtt(at),
                mbps(at),
                (mbps(at) * 1e5) as u64,
            );
        }
    }

    fn of_20_ms() -> BaseRtt {
        let mut base = BaseRtt::new(100 * MS);
        feed(&mut base, 0, 1_000, |_| 20 * MS);
        assert_eq!(horizon(&base), 130 * MS);
        base
    }

    #[test]
    fn excursion_restarts_when_its_base_rtt_expires() {
        let mut base = BaseRtt::new(Duration::ZERO);
        let mut add = |ms: u64, latest: u32, smoothed: u32| {
            let now = Time::from_nanos(ms * 1_000_000);
            base.add(now, latest * MS, smoothed * MS, 1.0, 10_000)
        };
        add(0, 10, 10);
        for ms in (100..59_900).step_by(100) {
            add(ms, 14, 14);
        }
        // The horizon is 15 ms. Then the 10 ms expire and it is 21 ms, which includes the 20 ms.
        assert_eq!(add(59_950, 30, 20), None);
        assert_eq!(add(60_050, 100, 60), None);
    }

    #[test]
    fn varying_queue_does_not_change_the_base_rtt() {
        let mut base = of_20_ms();
        for start in (1_000..20_000).step_by(4_000) {
            feed(&mut base, start, start + 3_900, |_| 500 * MS);
            feed(&mut base, start + 3_900, start + 4_000, |_| 120 * MS);
        }
        feed(&mut base, 21_000, 40_000, |at| (500 + at % 1_000 / 5) as u32 * MS);
        assert_eq!(horizon(&base), 130 * MS);
    }

    #[test]
    fn standing_queue_shrinks_with_a_smaller_window() {
        let mut base = of_20_ms();
        let mut tried = 0;
        for at in (1_000..60_000).step_by(100) {
            let window = horizon(&base);
            tried += u32::from(window < 130 * MS);
            // 20 Mbit/s wanted, 16 carried.
            let (now, rtt) = (Time::from_nanos(at * 1_000_000), window * 20 / 16);
            base.add(now, rtt, rtt, 20.0, 100_000);
        }
        assert_eq!(horizon(&base), 130 * MS);
        // The first shorter sample ends each trial.
        assert!((10..=20).contains(&tried), "{tried} of 590 samples with a smaller window");
    }

    #[test]
    fn least_window_that_keeps_a_queue_is_not_taken_for_the_path() {
        let mut base = of_20_ms();
        // The rate falls, and ten packets stay in flight, until a trial bounds them: 1 Mbit/s is carried.
        let mut in_flight = 30_000;
        for at in (1_000..60_000).step_by(100) {
            let rtt = Duration::from_micros(in_flight * 8);
            let mbps = 20_000.0 / at as f64;
            let now = Time::from_nanos(at * 1_000_000);
            assert_eq!(base.add(now, rtt, rtt, mbps, in_flight), None, "at {at} ms");
            in_flight = base.trial_window_bytes().unwrap_or(30_000);
        }
    }

    #[test]
    fn longer_path_is_known_from_a_trial_if_the_rate_does_not_fall() {
        let mut base = of_20_ms();
        feed_at(&mut base, 1_000, 4_700, |_| 200 * MS, |_| 20.0);
        assert_eq!(horizon(&base), 97_500 * MS / 1_000, "a smaller window is tried");
        feed_at(&mut base, 4_700, 5_100, |_| 200 * MS, |_| 20.0);
        assert_eq!(horizon(&base), 400 * MS);
    }

    #[test]
    fn longer_path_is_known_after_three_seconds_or_ten_round_trips() {
        let mut base = of_20_ms();
        feed(&mut base, 1_000, 4_000, |_| 200 * MS);
        assert_eq!(horizon(&base), 130 * MS);
        feed(&mut base, 4_000, 4_200, |at| (200 + at % 10) as u32 * MS);
        assert_eq!(horizon(&base), 400 * MS);
        feed(&mut base, 7_000, 17_000, |_| 1_000 * MS);
        assert_eq!(horizon(&base), 400 * MS, "ten round trips are ten seconds");
        feed(&mut base, 17_000, 17_200, |_| 1_000 * MS);
        assert_eq!(horizon(&base), 1_600 * MS);
        feed(&mut base, 18_000, 18_100, |_| 20 * MS);
        assert_eq!(horizon(&base), 130 * MS, "a shorter path immediately");
    }
}
