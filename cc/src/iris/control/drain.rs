use std::time::Duration;

use super::super::epoch::EpochOutcome;
use super::super::losses::Count;
use super::Control;
use super::start_up::TRIED_EPOCHS;
use super::state::{DrainMeasurement, Feedback, IrisState};
use super::steady::TYPICAL_RATE_TIME;
use crate::Time;

// The paper has no drains; docs/research/cc/iris.md (`window_s`) has measurements.

/// Rate while the queue drains, as a share of the receiving rate.
const DRAIN_GAIN: f64 = 0.5;
/// Longest drain.
const MAX_DRAIN_TIME: Duration = Duration::from_secs(4);
/// Least time from one drain to the next, as a share of T's window.
const MIN_DRAIN_INTERVAL_FRACTION: f64 = 0.2;
/// An RTT that varies by less than this share of its excess over T during a drain does not show a queue.
/// Chosen by `it_follows_rate_route_and_outage` (tests/controllers/tests/iris.rs).
const MIN_DRAIN_RTT_VARIATION: f64 = 0.2;
/// Consecutive drains without effect that show that T belongs to an earlier path.
const MAX_USELESS_DRAINS: u32 = 2;
/// Consecutive overloaded decisions that need a drain: Eq. 6 lowers the rate by delta/epoch (6 %) at most.
const MAX_OVERLOADED_DECISIONS: u32 = 3;

impl Control {
    /// Halves the rate for as long as the queue needs to drain, and for one more epoch to measure it.
    ///
    /// The paper has no drain, and does not specify T's window. A flow at its target keeps a queue at all
    /// times. After one window the smallest RTT therefore includes B packets of queue: T rises by B packets
    /// with each window. A flow that starts while others hold a queue would count that queue as the path,
    /// and permanently get a larger share. So a flow drains when its smallest RTT is a window old. Flows
    /// that share a queue see its smallest RTT at the same time, drain at the same time, and have the
    /// same T after one window.
    pub(super) fn drain(&mut self, feedback: &Feedback, resume_mbps: f64) {
        // Packets sent after the epoch add to the queue that its packets met.
        let excess = (feedback.outcome.sent_mbps / resume_mbps.max(1e-9) - 1.0).clamp(0.0, 1.0);
        let mut unseen = feedback.now.since(feedback.outcome.closed);
        if self.is_starting() {
            unseen = unseen.min(self.config.epoch() * TRIED_EPOCHS);
        }
        let queue = feedback.queue() + unseen.mul_f64(excess);
        let time = queue.mul_f64(1.0 / (1.0 - DRAIN_GAIN)) + self.config.epoch();
        let until = feedback.now + time.min(MAX_DRAIN_TIME);
        self.state = IrisState::Draining { until, resume_mbps };
        self.last_drain = Some(DrainMeasurement {
            from: feedback.now,
            rtt: feedback.rtt,
            target: feedback.target,
            lowest: feedback.rtt,
            highest: feedback.rtt,
            count: Count::default(),
            judged: false,
        });
        self.overloaded = 0;
        // Without a queue the drain only verifies T, and does not end a rise on a long path: there are too few
        // decisions between two drains.
        if feedback.hold <= TYPICAL_RATE_TIME || !self.is_idle(self.load_packets) {
            self.rises = 0;
        }
        self.set(resume_mbps * DRAIN_GAIN);
        self.drain_decision = self.decision;
    }

    pub(super) fn needs_drain(&self, now: Time, hold: Duration) -> bool {
        let window = self.window(hold);
        let since = self.last_drain.map_or(Duration::MAX, |drain| now.since(drain.from));
        if since < window.mul_f64(MIN_DRAIN_INTERVAL_FRACTION) {
            return false;
        }
        let stale = self.target.lowest_at().is_some_and(|at| now.since(at) > window);
        // An RTT that never varies means an empty queue or a full buffer.
        let unknown = self.target.is_flat() && since > window;
        stale || unknown || self.overloaded >= MAX_OVERLOADED_DECISIONS
    }

    /// Judges from a drain's epochs whether there was a queue. The flow's own queue falls, a queue of other
    /// flows varies, and a queue behind a link that became slower grows. If the RTT does not change, T belongs
    /// to an earlier path, or the buffer is full, which losses show.
    pub(super) fn judge_drain(&mut self, outcome: &EpochOutcome, rtt: Duration) {
        let Some(drain) = &mut self.last_drain else { return };
        if drain.judged || outcome.closed <= drain.from {
            return;
        }
        drain.lowest = drain.lowest.min(rtt);
        drain.highest = drain.highest.max(rtt);
        drain.count.add(outcome.packets, outcome.lost);
        let over = !matches!(self.state, IrisState::Draining { .. });
        if !over || outcome.decision != self.decision {
            return;
        }
        drain.judged = true;
        let varied = drain.highest.saturating_sub(drain.lowest);
        let excess = drain.rtt.saturating_sub(drain.target);
        let unchanged = varied < excess.mul_f64(MIN_DRAIN_RTT_VARIATION);
        let (from, full) = (drain.from, drain.count.share() > self.losses.random());
        self.useless_drains = if unchanged && !full { self.useless_drains + 1 } else { 0 };
        if self.useless_drains >= MAX_USELESS_DRAINS {
            self.useless_drains = 0;
            self.target.forget_before(from);
        }
    }
}
