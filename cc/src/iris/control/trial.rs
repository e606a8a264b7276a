use std::time::Duration;

use super::super::epoch::Outcome;
use super::super::losses::Verdict;
use super::{Control, Feedback, State};

/// A queue of this part of the RTT is none.
const EMPTY_QUEUE: u32 = 20;
/// Where the queue load reaches B the buffer can hold it, and Eq. 7 answers; losses then decide
/// only when an epoch loses more than this share, which no competitor's overflow does.
const HEAVY_LOSS: f64 = 0.2;
/// B is for a buffer that holds it. Losses of its own lower the flow's target to this share, and
/// it grows back by so many packets a second: additive increase and multiplicative decrease,
/// which make the targets of flows that share a buffer equal. With B alone, 15 flows in a
/// buffer of 104 packets lose 20 %.
const LOAD_DECREASE: f64 = 0.7;
pub(super) const LOAD_INCREASE_PER_S: f64 = 0.5;
const LEAST_LOAD_PACKETS: f64 = 2.0;
/// After a rise that made losses the flow goes at Eq. 6's pace only, for so many round trips.
const CAREFUL_ROUNDS: u32 = 5;
/// A trial keeps to its rate for so many round trips, and grows from then on by this share a decision
/// while there is no queue.
const TRIAL_ROUNDS: u32 = 10;
const TRIAL_GROWTH: f64 = 1.1;
/// Else it goes back a little.
const TRIAL_BACK: f64 = 0.97;

impl Control {
    /// What the epoch's losses say of the rate.
    pub(super) fn judge_losses(&mut self, outcome: &Outcome, hold: Duration) -> Verdict {
        let (packets, lost) = (outcome.packets, outcome.lost);
        if self.is_starting() {
            self.judge_start_up_losses(outcome);
            return Verdict::Random;
        }
        let heavy = lost as f64 > HEAVY_LOSS * packets as f64;
        if self.load_packets >= self.load_target && !heavy && !self.losses.is_trying() {
            return Verdict::Random;
        }
        let round_packets = self.per_second(outcome.sent_mbps) * hold.as_secs_f64();
        let settled = outcome.decision >= self.trial_decision;
        let empty = (self.trial_queue / 2).max(outcome.rtt.unwrap_or_default() / EMPTY_QUEUE);
        let known = self.losses.random();
        let drained = settled.then_some(self.queue <= empty);
        let verdict = self.losses.on_epoch((packets, lost), round_packets, drained);
        if self.losses.random() > known || verdict == Verdict::Mistake {
            self.load_target = self.load_target.max(self.load_before_trial);
        }
        verdict
    }

    /// The flow loses packets by its own rate: down to what arrives, to see whether that ends it.
    pub(super) fn begin_trial(&mut self, feedback: &Feedback, share: f64) {
        if self.rises > 0 {
            self.careful_until = feedback.now + feedback.hold * CAREFUL_ROUNDS;
        }
        self.rises = 0;
        self.load_before_trial = self.load_target;
        self.load_target = (self.load_target * LOAD_DECREASE).max(LEAST_LOAD_PACKETS);
        // Of an epoch that lacked data nothing is known but that its packets were lost. (A player's last
        // packet of a segment, lost and sent again, made a trial at 0.07 of 1.4 Mbit/s, of 200 packets.)
        let arrives = match feedback.outcome.partial {
            true => self.lasting_mbps(),
            false => feedback.newest_mbps,
        };
        self.trial_mbps = (arrives * share).min(self.lasting_mbps());
        self.trial_since = feedback.now;
        self.received_before = None;
        match &mut self.state {
            State::Draining { resume_mbps, .. } => *resume_mbps = self.trial_mbps,
            _ => self.set(self.trial_mbps),
        }
        self.trial_decision = self.decision;
        self.trial_queue = self.queue;
    }

    /// The highest rate of the trial that is on.
    ///
    /// It takes hundreds of packets, on a slow link seconds, after which the link may carry far more:
    /// a fall to a quarter for two seconds, which overflowed the buffer, held a flow at a
    /// third of a link of 1.5 Mbit/s for 14 s. A link that is so slow that the trial takes many
    /// rounds has no buffer that could be full without showing it.
    pub(super) fn trial_limit(&mut self, feedback: &Feedback, load: f64) -> f64 {
        if feedback.now.since(self.trial_since) > feedback.hold * TRIAL_ROUNDS {
            let gain = if self.is_idle(load) { TRIAL_GROWTH } else { TRIAL_BACK };
            self.trial_mbps =
                feedback.received_mbps.max(self.trial_mbps.min(self.rate_mbps)) * gain;
        }
        self.trial_mbps
    }
}
