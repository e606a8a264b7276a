use super::super::epoch::EpochOutcome;
use super::Control;
use super::state::{Feedback, IrisState, START_GAIN};

// The paper ends start-up by loss alone; docs/research/cc/iris.md (Deviations from the paper) has measurements.

/// Start-up ends when the queue load is above B and less than this share of the rate is received: the
/// queue grows.
const MIN_RECEIVED_FRACTION: f64 = 0.9;
/// Start-up ends in any case when the queue load is above this multiple of B.
const MAX_LOAD_RATIO: f64 = 3.0;
/// Losses that end start-up, at least, if their share exceeds random loss by [`MIN_EXCESS_LOSS`].
const MIN_LOST_PACKETS: f64 = 3.0;
/// Loss rate beyond random loss that ends start-up. A doubling that is too high loses up to half, random loss less.
const MIN_EXCESS_LOSS: f64 = 0.2;
/// A doubled rate is tried for this many epochs. The rest of the round trip continues at the previous rate: an
/// excessive rate fills the queue for 200 ms and not for a round trip.
pub(super) const TRIED_EPOCHS: u32 = 4;
/// Packets over which start-up's loss is measured, at least: the first epochs have two packets.
const MIN_LOSS_PACKETS: f64 = 20.0;
/// Loss counts as random while the queue load is below this share of B.
const MAX_EMPTY_LOAD_RATIO: f64 = 0.25;

impl Control {
    /// Doubles the rate (Section V-C) once per round trip and not with each epoch: there would be
    /// 16 doublings before the first feedback on a path of 800 ms. Ends by queue load as well as by
    /// loss: by loss alone it would fill any buffer.
    pub(super) fn start_up(&mut self, feedback: &Feedback) {
        let outcome = &feedback.outcome;
        let load = self.load_packets / self.config.load_packets;
        let growing = feedback.newest_mbps < MIN_RECEIVED_FRACTION * outcome.sent_mbps;
        let lost = self.start_losses.lost() >= MIN_LOST_PACKETS
            && self.start_losses.share() > self.losses.random() + MIN_EXCESS_LOSS;
        let overloaded = load > MAX_LOAD_RATIO || load > 1.0 && growing;
        // An epoch that lacked data is decided at the previous rate, which still shows the queue. The rate is not
        // tried twice: a video's segments could end in each try.
        let unclear = overloaded && outcome.partial && outcome.decision == self.tried_decision;
        if unclear {
            self.unclear_decision = Some(self.tried_decision);
        }
        let tried_enough = overloaded || self.unclear_decision == Some(self.tried_decision);
        if lost || tried_enough && !unclear {
            let share = (1.0 - self.start_losses.share()) / (1.0 - self.losses.random());
            let arrived = if lost { outcome.sent_mbps * share } else { f64::INFINITY };
            let received = feedback.newest_mbps.min(arrived);
            self.note_received(feedback.now, received.max(self.proven(outcome)));
            self.slope.on_start_up_end();
            match self.config.extensions.drains {
                true => self.drain(feedback, self.received_mbps),
                false => self.continue_at(self.received_mbps),
            }
        } else if !outcome.partial {
            self.received_mbps = feedback.newest_mbps;
            let until = feedback.now + self.config.epoch() * TRIED_EPOCHS;
            self.state = IrisState::Starting { until: Some(until), good_mbps: outcome.sent_mbps };
            self.set(outcome.sent_mbps * START_GAIN);
            self.tried_decision = self.decision;
        }
    }

    /// Lower bound of the receiving rate of a partial epoch: the rate of the previous round, which met no queue.
    ///
    /// The packets of a partial epoch may have left in a burst after a pause: its rate includes the pause,
    /// its stretch only the burst.
    fn proven(&self, outcome: &EpochOutcome) -> f64 {
        match self.state {
            IrisState::Starting { good_mbps, .. } if outcome.partial => good_mbps,
            _ => 0.0,
        }
    }

    pub(super) fn judge_start_up_losses(&mut self, outcome: &EpochOutcome) {
        self.start_losses.add(outcome.packets, outcome.lost);
        self.start_losses.fade(MIN_LOSS_PACKETS.max(outcome.packets as f64));
        let few = (outcome.lost as f64) < MIN_EXCESS_LOSS * outcome.packets as f64;
        if few && self.load_packets < MAX_EMPTY_LOAD_RATIO * self.config.load_packets {
            self.losses.on_start_up(outcome.packets, outcome.lost);
        }
    }
}
