use std::time::Duration;

use super::super::epoch::EpochOutcome;
use super::super::losses::LossVerdict;
use super::Control;
use super::state::{Feedback, IrisState};

// The paper has no trials; docs/research/cc/iris.md has measurements.

/// The queue counts as drained below the RTT divided by this.
const DRAINED_QUEUE_DIVISOR: u32 = 20;
/// Where the queue load reaches its target the buffer holds B, and Eq. 7 responds. Losses then count only if an epoch
/// loses more than this share: the overflow of competing flows does not cause that.
const HEAVY_LOSS_RATE: f64 = 0.2;
/// A trial multiplies the target load, which is B at first, by this. Together with [`LOAD_INCREASE_PER_S`] that is
/// additive increase and multiplicative decrease, which equalises the targets of flows that share a buffer.
/// Chosen by `a_full_buffer_is_not_taken_for_the_path` (tests/controllers/tests/iris.rs).
const LOAD_DECREASE: f64 = 0.7;
/// Increase of the target load, packets per second, up to B.
pub(super) const LOAD_INCREASE_PER_S: f64 = 0.5;
/// Least target load, packets.
const MIN_LOAD_PACKETS: f64 = 2.0;
/// Round trips without faster rises after a rise that caused losses.
const CAREFUL_RTTS: u32 = 5;
/// A trial keeps its rate for this many round trips. Then the rate grows by [`TRIAL_GROWTH`] per decision
/// without a queue, and changes by [`TRIAL_BACKOFF`] with one.
const TRIAL_RTTS: u32 = 10;
const TRIAL_GROWTH: f64 = 1.1;
const TRIAL_BACKOFF: f64 = 0.97;

impl Control {
    /// Judges an epoch's losses.
    pub(super) fn judge_losses(&mut self, outcome: &EpochOutcome, hold: Duration) -> LossVerdict {
        let (packets, lost) = (outcome.packets, outcome.lost);
        if self.is_starting() {
            self.judge_start_up_losses(outcome);
            return LossVerdict::Random;
        }
        if !self.config.extensions.trials {
            return LossVerdict::Random;
        }
        let heavy = lost as f64 > HEAVY_LOSS_RATE * packets as f64;
        if self.load_packets >= self.load_target && !heavy && !self.losses.is_trial_running() {
            return LossVerdict::Random;
        }
        let round_packets = self.per_second(outcome.sent_mbps) * hold.as_secs_f64();
        let settled = outcome.decision >= self.trial_decision;
        let drained_queue = outcome.rtt.unwrap_or_default() / DRAINED_QUEUE_DIVISOR;
        let empty = (self.trial_queue / 2).max(drained_queue);
        let known = self.losses.random();
        let drained = settled.then_some(self.queue <= empty);
        let verdict = self.losses.on_epoch((packets, lost), round_packets, drained);
        if self.losses.random() > known || verdict == LossVerdict::Spurious {
            self.load_target = self.load_target.max(self.load_before_trial);
        }
        verdict
    }

    /// The rate seems to cause losses: lowers it to the delivery rate, to see whether that ends them.
    pub(super) fn begin_trial(&mut self, feedback: &Feedback, share: f64) {
        if self.rises > 0 {
            self.careful_until = feedback.now + feedback.hold * CAREFUL_RTTS;
        }
        self.rises = 0;
        self.load_before_trial = self.load_target;
        self.load_target = (self.load_target * LOAD_DECREASE).max(MIN_LOAD_PACKETS);
        // An epoch that lacked data has no valid receiving rate.
        let delivered = match feedback.outcome.partial {
            true => self.steady_state_mbps(),
            false => feedback.newest_mbps,
        };
        self.trial_mbps = (delivered * share).min(self.steady_state_mbps());
        self.trial_since = feedback.now;
        self.received_before = None;
        match &mut self.state {
            IrisState::Draining { resume_mbps, .. } => *resume_mbps = self.trial_mbps,
            _ => self.set(self.trial_mbps),
        }
        self.trial_decision = self.decision;
        self.trial_queue = self.queue;
    }

    /// The highest rate of the running trial.
    ///
    /// A trial takes hundreds of packets, on a slow link seconds, after which the link may carry far more.
    /// On a link so slow that the trial takes many round trips, a full buffer shows as a queue.
    pub(super) fn trial_limit(&mut self, feedback: &Feedback, load: f64) -> f64 {
        if feedback.now.since(self.trial_since) > feedback.hold * TRIAL_RTTS {
            let gain = if self.is_idle(load) { TRIAL_GROWTH } else { TRIAL_BACKOFF };
            self.trial_mbps =
                feedback.received_mbps.max(self.trial_mbps.min(self.rate_mbps)) * gain;
        }
        self.trial_mbps
    }
}
