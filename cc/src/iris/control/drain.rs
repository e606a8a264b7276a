use std::time::Duration;

use super::super::epoch::Outcome;
use super::start_up::TRIED_EPOCHS;
use super::{Control, Feedback, State};
use crate::Time;

/// Rate while the queue drains, as a share of what is received.
const GAIN: f64 = 0.5;
/// Longest that the rate stays that low.
const LONGEST: Duration = Duration::from_secs(4);
/// Least time from one drain to the next, as a share of T's window.
const BETWEEN: f64 = 0.2;
/// An overload that lasts for so many decisions is not going away by Eq. 6, which takes at most
/// delta/epoch (6 %) off the rate.
const OVERLOADED_DECISIONS: u32 = 3;

/// What a drain is to show.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drain {
    from: Time,
    /// RTT and T before it.
    rtt: Duration,
    target: Duration,
    /// The smallest RTT since.
    lowest: Option<Duration>,
    judged: bool,
}

impl Control {
    /// Halves the rate for as long as the queue needs to leave, and an epoch more to see it.
    ///
    /// The paper has no drain and leaves T's window open. But a flow at its target keeps a
    /// queue at all times: when the window has passed, the smallest RTT in it is one with B packets
    /// in the queue, T rises by those, and so on, B packets more with each window. And a flow that
    /// comes when others hold a queue takes that for the path: it gets more than they, for good
    /// (two flows: 62 to 38 %). So a flow whose smallest RTT is a window old drains. Flows
    /// that share a queue see its smallest RTT at the same moment, hence drain at the same
    /// moment, and after one window all have the same T.
    pub(super) fn drain(&mut self, feedback: &Feedback, resume_mbps: f64) {
        // The epoch's packets met the queue before those that have left since then.
        let excess = (feedback.outcome.sent_mbps / resume_mbps.max(1e-9) - 1.0).clamp(0.0, 1.0);
        let mut unseen = feedback.now.since(feedback.outcome.closed);
        if self.is_starting() {
            unseen = unseen.min(self.config.epoch() * TRIED_EPOCHS);
        }
        let queue = feedback.queue() + unseen.mul_f64(excess);
        let time = queue.mul_f64(1.0 / (1.0 - GAIN)) + self.config.epoch();
        let until = feedback.now + time.min(LONGEST);
        self.state = State::Draining { until, resume_mbps };
        self.last_drain = Some(Drain {
            from: feedback.now,
            rtt: feedback.rtt,
            target: feedback.target,
            lowest: None,
            judged: false,
        });
        self.overloaded = 0;
        self.rises = 0;
        self.set(resume_mbps * GAIN);
        self.drain_decision = self.decision;
    }

    pub(super) fn needs_drain(&self, now: Time) -> bool {
        let window = self.config.window();
        let since = self.last_drain.map_or(Duration::MAX, |drain| now.since(drain.from));
        if since < window.mul_f64(BETWEEN) {
            return false;
        }
        let stale = self.target.lowest_at().is_some_and(|at| now.since(at) > window);
        // An RTT that never varies is that of an empty queue or that of a full buffer.
        let unknown = self.target.is_flat() && since > window;
        stale || unknown || self.overloaded >= OVERLOADED_DECISIONS
    }

    /// The drain's epochs tell whether the queue was the flow's: if the RTT hardly fell, T is of
    /// another path, or others hold the queue.
    pub(super) fn judge_drain(&mut self, outcome: &Outcome, rtt: Duration) {
        let Some(drain) = &mut self.last_drain else { return };
        if drain.judged || outcome.closed <= drain.from {
            return;
        }
        drain.lowest = Some(drain.lowest.map_or(rtt, |lowest| lowest.min(rtt)));
        let over = !matches!(self.state, State::Draining { .. });
        if !over || outcome.decision != self.decision {
            return;
        }
        drain.judged = true;
        let fallen = drain.rtt.saturating_sub(drain.lowest.unwrap_or(rtt));
        if fallen * 2 < drain.rtt.saturating_sub(drain.target) {
            self.target.forget_before(drain.from);
        }
    }
}
