use std::time::Duration;

use crate::Time;
use crate::estimators::{PeakInFlight, WindowedMin};

// No paper has these thresholds; docs/research/cc/pcc.md has measurements, the tests below cover each.

/// The base RTT is the smallest of this long.
const BASE_RTT_WINDOW: Duration = Duration::from_secs(60);
/// A queue stands if RTTs are above the smallest of this long. Longer than the above, because flows that fill a buffer
/// together may never let it drain; QUIC stacks remember the smallest RTT for as long.
const QUEUE_FREE_RTT_WINDOW: Duration = Duration::from_secs(300);
/// A queue stands if the RTT is more than this multiple of the smallest, and [`MIN_STANDING_QUEUE`] more.
/// Measured in docs/research/mcc.md (Migration).
pub(super) const STANDING_QUEUE_RTT_RATIO: f64 = 1.25;
/// Less may be jitter, or an acknowledgement that was held back.
const MIN_STANDING_QUEUE: Duration = Duration::from_millis(5);
/// A longer path is looked for when RTTs have stayed beyond a standing queue's, and steady, for this long and
/// [`MIN_EXCURSION_RTTS`]. Chosen by `longer_path_is_known_after_half_a_second_or_five_round_trips`.
const MIN_EXCURSION: Duration = Duration::from_millis(500);
const MIN_EXCURSION_RTTS: u32 = 5;
/// Most that the RTTs of an excursion may vary, as a share of the least of them, and at least [`MIN_SPREAD`]: a queue
/// varies with what is sent. Chosen by `varying_queue_does_not_change_the_base_rtt`.
const MAX_EXCURSION_SPREAD: f64 = 1.0 / 16.0;
const MIN_SPREAD: Duration = Duration::from_millis(1);
/// The trial: what is in flight is bounded by this share of the most of the last round trips, for [`TRIAL_RTTS`].
/// That shortens a queue and not a path. Chosen by `standing_queue_shrinks_with_a_smaller_window`.
const TRIAL_WINDOW_FRACTION: f64 = 0.75;
const TRIAL_RTTS: u32 = 4;
/// From a trial that found a queue to the next: with 50 ms a quarter less is in flight in a fiftieth of the time. It
/// doubles with each that finds one, until no queue has stood for as long as an excursion takes: flows that fill a buffer
/// always have one.
const MIN_TRIAL_PAUSE: Duration = Duration::from_secs(10);
const MAX_TRIAL_PAUSE: Duration = Duration::from_secs(80);

/// The path's RTT without a queue.
///
/// Of a latency-sensitive sender the window covers one and a half times the base RTT and a headroom: without a bound the
/// queue of a link that slows down delays feedback, and so grows by seconds. And a loss is that of a full buffer only
/// where a queue stands.
///
/// Of a path that has become longer both would be wrong: the window limits the rate, and each random loss counts as an
/// overflow. RTTs that are those of a standing queue, and steady, are therefore examined by a trial with less in flight.
#[derive(Debug)]
pub(super) struct BaseRtt {
    memory: WindowedMin<Duration>,
    queue_free: WindowedMin<Duration>,
    headroom: Duration,
    limits: RttLimits,
    peak: PeakInFlight,
    excursion: Option<RttExcursion>,
    trial: Option<WindowTrial>,
    /// No trial before.
    next_trial: Time,
    trial_pause: Duration,
    /// When the last RTT of a standing queue was seen.
    queued_at: Time,
}

/// What follows from the smallest RTTs. Kept, because each packet asks for it and they seldom change.
#[derive(Clone, Copy, Debug, Default)]
struct RttLimits {
    /// The smallest RTT, and the time in s that the window covers by it.
    horizon: Option<(Duration, f64)>,
    /// The RTT without a queue, and the one from which on a queue stands.
    standing_queue: Option<(Duration, Duration)>,
}

/// Steady RTTs beyond those of a path without a queue.
#[derive(Clone, Copy, Debug)]
struct RttExcursion {
    since: Time,
    least: Duration,
    most: Duration,
    /// Rate at its start, 10^6 bit/s.
    rate_mbps: f64,
}

impl RttExcursion {
    fn new(sample: &RttContext) -> Self {
        let RttContext { now: since, smoothed: rtt, rate_mbps, .. } = *sample;
        Self { since, least: rtt, most: rtt, rate_mbps }
    }

    fn and(self, rtt: Duration) -> Self {
        Self { least: self.least.min(rtt), most: self.most.max(rtt), ..self }
    }

    fn includes(&self, rtt: Duration) -> bool {
        let least = self.least.min(rtt);
        self.most.max(rtt) - least <= least.mul_f64(MAX_EXCURSION_SPREAD).max(MIN_SPREAD)
    }
}

/// A trial with less in flight.
#[derive(Clone, Copy, Debug)]
struct WindowTrial {
    ends: Time,
    window_bytes: u64,
}

/// What a trial has shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum TrialFinding {
    /// The path has become longer. The rate was this, 10^6 bit/s, before the window may have limited it.
    LongerPath { rate_mbps: f64 },
    /// With less in flight the RTT fell: a queue stood, and has become shorter.
    Queue,
}

/// What a sender knows when an RTT is sampled.
#[derive(Clone, Copy, Debug)]
pub(super) struct RttContext {
    pub(super) now: Time,
    pub(super) latest: Duration,
    pub(super) smoothed: Duration,
    /// The rate in force, 10^6 bit/s.
    pub(super) rate_mbps: f64,
    pub(super) in_flight_bytes: u64,
}

impl RttContext {
    /// How long RTTs have to stay as they are before they show something.
    fn least_time(&self) -> Duration {
        MIN_EXCURSION.max(self.smoothed * MIN_EXCURSION_RTTS)
    }
}

impl BaseRtt {
    pub(super) fn new(headroom: Duration) -> Self {
        let memory = WindowedMin::new(BASE_RTT_WINDOW.as_nanos() as u64);
        let queue_free = WindowedMin::new(QUEUE_FREE_RTT_WINDOW.as_nanos() as u64);
        Self {
            memory,
            queue_free,
            headroom,
            limits: RttLimits::default(),
            peak: PeakInFlight::default(),
            excursion: None,
            trial: None,
            next_trial: Time::ZERO,
            trial_pause: MIN_TRIAL_PAUSE,
            queued_at: Time::ZERO,
        }
    }

    /// Adds a sample. Returns what a trial has shown, if one ends with it.
    pub(super) fn add(&mut self, sample: &RttContext) -> Option<TrialFinding> {
        let now = sample.now;
        self.memory.add(now.as_nanos(), sample.latest);
        self.queue_free.add(now.as_nanos(), sample.latest);
        self.update_limits();
        self.peak.add(now, Some(sample.smoothed), sample.in_flight_bytes);
        let limit = self.standing_queue_rtt()?;
        let beyond = sample.latest > limit && sample.smoothed > limit;
        self.note_queue(beyond, sample);
        let excursion = self.excursion.filter(|it| beyond && it.includes(sample.smoothed));
        match (self.trial, excursion) {
            (Some(_), None) => {
                self.trial = None;
                self.next_trial = now + self.trial_pause;
                self.trial_pause = (self.trial_pause * 2).min(MAX_TRIAL_PAUSE);
                self.excursion = beyond.then(|| RttExcursion::new(sample));
                return Some(TrialFinding::Queue);
            }
            (Some(trial), Some(excursion)) if now >= trial.ends => {
                let rate_mbps = self.start_again(now, &excursion).max(sample.rate_mbps);
                return Some(TrialFinding::LongerPath { rate_mbps });
            }
            (None, Some(excursion)) if self.is_trial_due(sample, &excursion) => {
                self.trial = Some(WindowTrial {
                    ends: now + sample.smoothed * TRIAL_RTTS,
                    window_bytes: (TRIAL_WINDOW_FRACTION * self.peak.get()) as u64,
                });
            }
            _ => {}
        }
        self.excursion = beyond.then(|| match excursion {
            Some(it) => it.and(sample.smoothed),
            None => RttExcursion::new(sample),
        });
        None
    }

    fn is_trial_due(&self, sample: &RttContext, excursion: &RttExcursion) -> bool {
        sample.now.since(excursion.since) > sample.least_time() && sample.now >= self.next_trial
    }

    /// A trial is due with the next excursion when no queue has stood for long enough.
    fn note_queue(&mut self, stands: bool, sample: &RttContext) {
        if stands {
            self.queued_at = sample.now;
        } else if sample.now.since(self.queued_at) > sample.least_time() {
            self.next_trial = sample.now;
            self.trial_pause = MIN_TRIAL_PAUSE;
        }
    }

    /// The RTTs of the excursion are the path's. Returns the rate at its start.
    fn start_again(&mut self, now: Time, excursion: &RttExcursion) -> f64 {
        self.excursion = None;
        self.trial = None;
        self.trial_pause = MIN_TRIAL_PAUSE;
        for memory in [&mut self.memory, &mut self.queue_free] {
            memory.clear();
            memory.add(now.as_nanos(), excursion.least);
        }
        self.update_limits();
        excursion.rate_mbps
    }

    /// The smallest RTT of the path at a warm start, whose queue may stand.
    pub(super) fn begin_with(&mut self, now: Time, min_rtt: Duration) {
        self.queue_free.add(now.as_nanos(), min_rtt);
        self.update_limits();
    }

    fn update_limits(&mut self) {
        let (least, base) = (self.memory.get(), self.queue_free.get());
        if self.limits.horizon.map(|(of, _)| of) != least {
            let horizon_s = |least: Duration| (least * 3 / 2 + self.headroom).as_secs_f64();
            self.limits.horizon = least.map(|least| (least, horizon_s(least)));
        }
        if self.limits.standing_queue.map(|(of, _)| of) != base {
            let standing = |base: Duration| {
                base.mul_f64(STANDING_QUEUE_RTT_RATIO).max(base + MIN_STANDING_QUEUE)
            };
            self.limits.standing_queue = base.map(|base| (base, standing(base)));
        }
    }

    /// The RTT without a queue; `None` before the first sample.
    pub(super) fn queue_free(&self) -> Option<Duration> {
        self.queue_free.get()
    }

    /// The RTT from which on a queue stands; `None` before the first sample.
    pub(super) fn standing_queue_rtt(&self) -> Option<Duration> {
        self.limits.standing_queue.map(|(_, rtt)| rtt)
    }

    /// The time that the window covers, s; `None` before the first sample.
    pub(super) fn window_horizon_s(&self) -> Option<f64> {
        self.limits.horizon.map(|(_, horizon_s)| horizon_s)
    }

    /// Most bytes in flight during a trial.
    pub(super) fn trial_window_bytes(&self) -> Option<u64> {
        self.trial.map(|trial| trial.window_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn horizon(base: &BaseRtt) -> Option<Duration> {
        base.window_horizon_s().map(Duration::from_secs_f64)
    }

    fn add(
        base: &mut BaseRtt,
        at_ms: u64,
        rtt: Duration,
        in_flight_bytes: u64,
    ) -> Option<TrialFinding> {
        base.add(&RttContext {
            now: Time::from_nanos(at_ms * 1_000_000),
            latest: rtt,
            smoothed: rtt,
            rate_mbps: 20.0,
            in_flight_bytes,
        })
    }

    /// Adds a sample each 20 ms from one time to another, with 100 kB in flight. Returns what was found last.
    fn feed(
        base: &mut BaseRtt,
        from_ms: u64,
        to_ms: u64,
        rtt: impl Fn(u64) -> Duration,
    ) -> Option<TrialFinding> {
        (from_ms..to_ms).step_by(20).filter_map(|at| add(base, at, rtt(at), 100_000)).last()
    }

    fn of_20_ms() -> BaseRtt {
        let mut base = BaseRtt::new(100 * MS);
        feed(&mut base, 0, 1_000, |_| 20 * MS);
        assert_eq!(horizon(&base), Some(130 * MS));
        base
    }

    #[test]
    fn longer_path_is_known_after_half_a_second_or_five_round_trips() {
        let mut base = of_20_ms();
        assert_eq!(feed(&mut base, 1_000, 1_500, |_| 60 * MS), None);
        assert_eq!(base.trial_window_bytes(), None);
        assert_eq!(feed(&mut base, 1_500, 1_560, |_| 60 * MS), None);
        assert_eq!(base.trial_window_bytes(), Some(75_000), "less in flight is tried");
        let longer = Some(TrialFinding::LongerPath { rate_mbps: 20.0 });
        assert_eq!(feed(&mut base, 1_560, 1_800, |_| 60 * MS), longer);
        assert_eq!((base.queue_free(), horizon(&base)), (Some(60 * MS), Some(190 * MS)));
        assert_eq!(base.trial_window_bytes(), None);
        assert_eq!(feed(&mut base, 2_000, 7_100, |_| 1_000 * MS), None);
        assert_eq!(base.trial_window_bytes(), Some(75_000), "five round trips are five seconds");
        feed(&mut base, 7_100, 11_100, |at| (1_000 + at % 50) as u32 * MS);
        assert_eq!(horizon(&base), Some(1_600 * MS));
        feed(&mut base, 12_000, 12_020, |_| 20 * MS);
        assert_eq!(horizon(&base), Some(130 * MS), "a shorter path immediately");
    }

    #[test]
    fn varying_queue_does_not_change_the_base_rtt() {
        let mut base = of_20_ms();
        feed(&mut base, 1_000, 20_000, |at| (100 + at % 400 / 40) as u32 * MS);
        assert_eq!(base.queue_free(), Some(20 * MS));
        assert_eq!(base.trial_window_bytes(), None, "nothing is tried");
    }

    #[test]
    fn standing_queue_shrinks_with_a_smaller_window() {
        let mut base = of_20_ms();
        let mut tried = 0;
        for at in (1_000..60_000).step_by(20) {
            let in_flight = base.trial_window_bytes().unwrap_or(200_000);
            tried += u32::from(in_flight < 200_000);
            // 16 Mbit/s are carried: the queue is as long as what is in flight.
            let rtt = Duration::from_micros(in_flight / 2);
            let found = add(&mut base, at, rtt, in_flight);
            assert!(matches!(found, None | Some(TrialFinding::Queue)), "{found:?} at {at} ms");
        }
        assert_eq!(base.queue_free(), Some(20 * MS));
        // The first shorter sample ends each trial; the next come 10, 20 and 40 s later.
        assert_eq!(tried, 3, "of 2,950 samples");
    }

    #[test]
    fn trial_is_due_again_when_no_queue_has_stood_for_a_while() {
        let mut base = of_20_ms();
        feed(&mut base, 1_000, 1_560, |_| 60 * MS);
        assert_eq!(feed(&mut base, 1_560, 1_580, |_| 40 * MS), Some(TrialFinding::Queue));
        feed(&mut base, 1_580, 3_000, |_| 40 * MS);
        assert_eq!(base.trial_window_bytes(), None, "not so soon");
        feed(&mut base, 3_000, 3_600, |_| 20 * MS);
        let longer = Some(TrialFinding::LongerPath { rate_mbps: 20.0 });
        assert_eq!(feed(&mut base, 3_600, 4_500, |_| 60 * MS), longer);
    }

    #[test]
    fn excursion_within_a_base_rtt_that_expires_is_none() {
        let mut base = of_20_ms();
        // 24 ms are no queue of 20 ms; when those expire after five minutes, 29 ms are none either.
        feed(&mut base, 1_000, 301_000, |_| 24 * MS);
        assert_eq!(feed(&mut base, 301_000, 303_000, |_| 29 * MS), None);
        assert_eq!(base.queue_free(), Some(24 * MS));
    }
}
