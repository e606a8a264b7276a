use super::super::epoch::Outcome;
use super::{Control, Feedback, State};

/// What the rate is multiplied with in start-up.
pub(super) const START_GAIN: f64 = 2.0;
/// Start-up ends when less than this share of its rate is received while the queue load is above
/// B: the queue grows.
const QUEUE_RECEIVED: f64 = 0.9;
/// And in any case above so many times B.
const OVERLOAD: f64 = 3.0;
/// It also ends when this many packets and this share are lost beyond the random losses: a
/// doubling that is too much loses up to half, and no random loss is meant to end it.
const LOST_PACKETS: f64 = 3.0;
const LOST_SHARE: f64 = 0.2;
/// A doubled rate is tried for so many epochs, and the rest of the round trip goes on at the one
/// before: what is too much fills the queue for 200 ms and not for a round trip. At 20 Mbit/s
/// and 1000 ms over 60 s: 17.3 Mbit/s with 10 ms of queueing on average, 17.8 with 36 without.
pub(super) const TRIED_EPOCHS: u32 = 4;
/// Over at least so many packets, because the first epochs have two.
const LEAST_PACKETS: f64 = 20.0;
/// A queue load below this share of B is none: what is then lost is lost by chance.
const EMPTY: f64 = 0.25;

impl Control {
    /// Doubles the rate (Section V-C), once per round trip and not with each epoch: there would be
    /// 16 doublings before the first feedback on a path of 800 ms. Ends by queue load as well as by
    /// loss: the paper would fill whatever buffer there is.
    pub(super) fn start_up(&mut self, feedback: &Feedback) {
        let outcome = &feedback.outcome;
        let load = self.load_packets / self.config.load_packets;
        let growing = feedback.newest_mbps < QUEUE_RECEIVED * outcome.sent_mbps;
        let lost = self.start_losses.lost() >= LOST_PACKETS
            && self.start_losses.share() > self.losses.random() + LOST_SHARE;
        let overloaded = load > OVERLOAD || load > 1.0 && growing;
        // The queue is still there when the rate before is sent again, and says the same. It is not
        // tried twice: a video's segments would end in each try.
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
            self.slope.fit();
            self.drain(feedback, self.received_mbps);
        } else if !outcome.partial {
            self.received_mbps = feedback.newest_mbps;
            let until = feedback.now + self.config.epoch() * TRIED_EPOCHS;
            self.state = State::Starting { until: Some(until), good_mbps: outcome.sent_mbps };
            self.set(outcome.sent_mbps * START_GAIN);
            self.tried_decision = self.decision;
        }
    }

    /// What a partial epoch can't say less than: the rate of the round before, which met no queue.
    ///
    /// Its packets left in a burst after a pause, so that its rate counts the pause and its stretch
    /// the burst. One in three starts on real packets at 42 Mbit/s and 800 ms ended so, at 10 to 31
    /// Mbit/s after 36 had arrived.
    fn proven(&self, outcome: &Outcome) -> f64 {
        match self.state {
            State::Starting { good_mbps, .. } if outcome.partial => good_mbps,
            _ => 0.0,
        }
    }

    pub(super) fn judge_start_up_losses(&mut self, outcome: &Outcome) {
        self.start_losses.add(outcome.packets, outcome.lost);
        self.start_losses.fade(LEAST_PACKETS.max(outcome.packets as f64));
        let few = (outcome.lost as f64) < LOST_SHARE * outcome.packets as f64;
        if few && self.load_packets < EMPTY * self.config.load_packets {
            self.losses.on_start_up(outcome.packets, outcome.lost);
        }
    }
}
