use std::time::Duration;

use super::super::epoch::Outcome;
use super::super::losses::Count;
use super::start_up::TRIED_EPOCHS;
use super::steady::USUAL_HOLD;
use super::{Control, Feedback, State};
use crate::Time;

/// Rate while the queue drains, as a share of what is received.
const GAIN: f64 = 0.5;
/// Longest that the rate stays that low.
const LONGEST: Duration = Duration::from_secs(4);
/// Least time from one drain to the next, as a share of T's window.
const BETWEEN: f64 = 0.2;
/// An RTT that varies by less than this share of the excess over T is not that of a queue.
const UNCHANGED: f64 = 0.2;
/// So many drains in a row show that T is of another path.
const USELESS_DRAINS: u32 = 2;
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
    /// The RTTs since that differ most from it.
    lowest: Duration,
    highest: Duration,
    count: Count,
    judged: bool,
}

impl Control {
    /// Halves the rate for as long as the queue needs to leave, and an epoch more to see it.
    ///
    /// The paper has no drain and leaves T's window open. But a flow at its target keeps a
    /// queue at all times: when the window has passed, the smallest RTT in it is one with B packets
    /// in the queue, T rises by those, and so on, B packets more with each window. And a flow that
    /// comes when others hold a queue takes that for the path: it gets more than they, for good
    /// (two flows: 62 to 38 % in theory). So a flow whose smallest RTT is a window old drains. Flows
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
            lowest: feedback.rtt,
            highest: feedback.rtt,
            count: Count::default(),
            judged: false,
        });
        self.overloaded = 0;
        // Without a queue to drain it only looks whether T is right. On 800 ms there are six
        // decisions from one look to the next, too few for a rise that begins with 0.1 %. (With
        // acknowledgements in bunches of 20 ms on 30 ms it is as well that a rise ends: 0.74, 0.69.)
        if feedback.hold <= USUAL_HOLD || !self.is_idle(self.load_packets) {
            self.rises = 0;
        }
        self.set(resume_mbps * GAIN);
        self.drain_decision = self.decision;
    }

    pub(super) fn needs_drain(&self, now: Time, hold: Duration) -> bool {
        let window = self.window(hold);
        let since = self.last_drain.map_or(Duration::MAX, |drain| now.since(drain.from));
        if since < window.mul_f64(BETWEEN) {
            return false;
        }
        let stale = self.target.lowest_at().is_some_and(|at| now.since(at) > window);
        // An RTT that never varies is that of an empty queue or that of a full buffer.
        let unknown = self.target.is_flat() && since > window;
        stale || unknown || self.overloaded >= OVERLOADED_DECISIONS
    }

    /// The drain's epochs tell whether there was a queue: one of the flow's own falls, one of
    /// others varies, and a rate that fell lets it grow. If the RTT stays as it was, T is of
    /// another path, or the buffer is full, which losses tell.
    pub(super) fn judge_drain(&mut self, outcome: &Outcome, rtt: Duration) {
        let Some(drain) = &mut self.last_drain else { return };
        if drain.judged || outcome.closed <= drain.from {
            return;
        }
        drain.lowest = drain.lowest.min(rtt);
        drain.highest = drain.highest.max(rtt);
        drain.count.add(outcome.packets, outcome.lost);
        let over = !matches!(self.state, State::Draining { .. });
        if !over || outcome.decision != self.decision {
            return;
        }
        drain.judged = true;
        let varied = drain.highest.saturating_sub(drain.lowest);
        let excess = drain.rtt.saturating_sub(drain.target);
        let unchanged = varied < excess.mul_f64(UNCHANGED);
        let (from, full) = (drain.from, drain.count.share() > self.losses.random());
        self.useless_drains = if unchanged && !full { self.useless_drains + 1 } else { 0 };
        if self.useless_drains >= USELESS_DRAINS {
            self.useless_drains = 0;
            self.target.forget_before(from);
        }
    }
}
