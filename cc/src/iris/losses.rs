// The paper has no such thresholds; docs/research/cc/iris.md has measurements.

/// Packets over which the loss rate is compared with the random one, at least. Fewer detect only several per
/// cent, more detect it late.
const MIN_MEMORY_PACKETS: f64 = 400.0;
/// Packets over which start-up measures the random loss rate. More than [`MIN_MEMORY_PACKETS`], because start-up sends
/// more in each round.
const START_UP_MEMORY_PACKETS: f64 = 4000.0;
/// Standard deviations by which losses must exceed random loss.
const SIGNIFICANT_DEVIATIONS: f64 = 4.0;
/// Least packets of a trial. A trial also lasts for a round trip, and until [`MIN_TRIAL_LOSSES`].
/// Chosen by `random_loss_that_start_up_underestimates_is_learnt_from_two_trials`.
const MIN_TRIAL_PACKETS: f64 = 200.0;
/// Packets that a trial would lose at the loss rate before it, at least.
const MIN_TRIAL_LOSSES: f64 = 5.0;
/// A trial shows that the flow caused the losses if the loss rate falls to this share or less.
/// Chosen by `random_losses_are_learnt_from_a_trial_and_then_ignored`.
const MAX_REMAINING_LOSS_RATIO: f64 = 0.5;
/// Rate of a trial, as a share of the delivery rate: a little less, so that a full buffer drains.
const TRIAL_GAIN: f64 = 0.97;
/// Highest loss rate that counts as random. The paper shows 5 %.
const MAX_RANDOM_LOSS: f64 = 0.2;
/// Highest loss rate that is tolerated where other flows seem to overflow the buffer: above it all flows
/// that share the buffer must back off.
/// Chosen by `a_full_buffer_is_not_taken_for_the_path` (tests/controllers/tests/iris.rs).
const MAX_SHARED_LOSS: f64 = 0.03;

/// Numbers of packets sent and lost.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Count {
    packets: f64,
    lost: f64,
}

impl Count {
    pub(super) fn add(&mut self, packets: u64, lost: u64) {
        self.packets += packets as f64;
        self.lost += lost as f64;
    }

    fn with(self, other: Self) -> Self {
        Self { packets: self.packets + other.packets, lost: self.lost + other.lost }
    }

    /// Removes up to `spurious` losses. Returns how many could not be removed.
    fn take_back(&mut self, spurious: u64) -> u64 {
        let removed = (spurious as f64).min(self.lost.floor());
        self.lost -= removed;
        spurious - removed as u64
    }

    /// Scales the counts down to `max_packets`.
    pub(super) fn fade(&mut self, max_packets: f64) {
        let keep = (max_packets / self.packets.max(1.0)).min(1.0);
        self.packets *= keep;
        self.lost *= keep;
    }

    pub(super) fn lost(&self) -> f64 {
        self.lost
    }

    pub(super) fn share(&self) -> f64 {
        self.lost / self.packets.max(1.0)
    }

    /// Standard deviation of the number of losses at the loss rate `random`, plus one for its uncertainty.
    fn deviation(&self, random: f64) -> f64 {
        (self.packets * random * (1.0 - random) + 1.0).sqrt()
    }

    /// Whether the losses are significantly more than at the loss rate `random`.
    pub(super) fn exceeds(&self, random: f64) -> bool {
        self.lost > self.packets * random + SIGNIFICANT_DEVIATIONS * self.deviation(random) + 1.0
    }

    /// Whether the losses are significantly less than at the loss rate `random`.
    fn is_below(&self, random: f64) -> bool {
        self.lost + SIGNIFICANT_DEVIATIONS * self.deviation(random) < self.packets * random
    }
}

/// What losses show about the rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum LossVerdict {
    /// They are random.
    Random,
    /// They are more than random: a trial starts at this share of the receiving rate that the times
    /// of acknowledgements show.
    Excess { share: f64 },
    /// A trial is running: the rate must not rise.
    Trial,
    /// The trial is over because the losses that caused it were spurious.
    Spurious,
}

#[derive(Clone, Copy, Debug)]
struct Trial {
    /// Losses before it. For the second of two trials: losses during the first.
    cause: Count,
    /// Losses that were more than random. For the second of two trials: the cause of the first.
    excess: Count,
    count: Count,
    /// Whether it is the second of two trials.
    repeated: bool,
    /// Whether the queue drained during the trial.
    drained: bool,
}

/// Distinguishes losses that the flow causes, by filling a buffer that can't hold its queue load,
/// from random (non-congestion) loss.
///
/// The paper derives the receiving rate from times alone, and then has unbounded losses where the
/// buffer holds less than B: the delay of a full buffer does not grow, so that the receiving rate
/// seems to equal the sending rate, and the queue load stays below its target. Here losses beyond the
/// random ones lower the receiving rate, and start a trial: at a rate that the path delivers, losses
/// caused by the flow end and random ones remain.
#[derive(Debug, Default)]
pub(super) struct Losses {
    random: f64,
    recent: Count,
    trial: Option<Trial>,
    /// Spurious losses that are not removed from the counts yet.
    spurious: u64,
}

impl Losses {
    /// A packet that was declared lost was only late. Without this, reordering beyond the sender's
    /// threshold would count as congestion.
    pub(super) fn on_spurious_loss(&mut self) {
        self.spurious = self.spurious.saturating_add(1);
    }

    /// Removes spurious losses from an epoch's losses, then from those before it. Returns whether the
    /// running trial has lost its cause.
    fn take_back_spurious(&mut self, lost: &mut u64) -> bool {
        let of_epoch = self.spurious.min(*lost);
        *lost -= of_epoch;
        let before = std::mem::take(&mut self.spurious) - of_epoch;
        let Some(trial) = &mut self.trial else {
            self.recent.take_back(before);
            return false;
        };
        let rest = trial.cause.take_back(before);
        trial.count.take_back(rest);
        trial.excess.take_back(before);
        // Not by `cause`: a first trial is repeated even if its own losses are not more than random.
        before > 0 && !trial.excess.exceeds(self.random)
    }

    /// Counts an epoch of start-up that showed no queue: its losses are random.
    pub(super) fn on_start_up(&mut self, packets: u64, lost: u64) {
        self.recent.add(packets, lost);
        self.recent.fade(START_UP_MEMORY_PACKETS);
        self.random = self.recent.share().min(MAX_RANDOM_LOSS);
    }

    pub(super) fn is_trial_running(&self) -> bool {
        self.trial.is_some()
    }

    /// Counts an epoch. `round_packets` is the number of packets per round trip. `settled` is present
    /// if the epoch was sent after the last verdict, and tells whether the queue had drained.
    pub(super) fn on_epoch(
        &mut self,
        (packets, mut lost): (u64, u64),
        round_packets: f64,
        settled: Option<bool>,
    ) -> LossVerdict {
        if self.take_back_spurious(&mut lost) {
            self.trial = None;
            self.recent = Count::default();
            return LossVerdict::Spurious;
        }
        if let Some(trial) = &mut self.trial {
            if let Some(drained) = settled {
                trial.count.add(packets, lost);
                trial.drained |= drained;
            }
            let least_packets =
                MIN_TRIAL_PACKETS.max(MIN_TRIAL_LOSSES / trial.cause.share()).max(round_packets);
            if trial.count.packets < least_packets {
                return LossVerdict::Trial;
            }
            let Trial { cause, excess, count, repeated, drained } = *trial;
            self.trial = None;
            self.recent = Count::default();
            if count.share() <= MAX_REMAINING_LOSS_RATIO * cause.share() {
                return LossVerdict::Random;
            }
            // With a standing queue other flows cause the losses: backing off alone would leave the path to them.
            if !drained {
                self.random = count.share().clamp(self.random, MAX_SHARED_LOSS.max(self.random));
                return LossVerdict::Random;
            }
            // After a single trial the losses may still result from a drop of the capacity.
            if !repeated {
                return self.begin_trial(count, Some(excess));
            }
            self.random = cause.with(count).share().min(MAX_RANDOM_LOSS);
            return LossVerdict::Random;
        }
        self.recent.add(packets, lost);
        self.recent.fade(round_packets.max(MIN_MEMORY_PACKETS));
        if self.recent.is_below(self.random) {
            self.random = self.recent.share();
        }
        let mut epoch = Count::default();
        epoch.add(packets, lost);
        match [epoch, self.recent].into_iter().find(|count| count.exceeds(self.random)) {
            Some(count) => self.begin_trial(count, None),
            None => LossVerdict::Random,
        }
    }

    /// `first_excess` is present for the second of two trials: the losses that caused the first.
    fn begin_trial(&mut self, lost: Count, first_excess: Option<Count>) -> LossVerdict {
        self.trial = Some(Trial {
            cause: lost,
            excess: first_excess.unwrap_or(lost),
            count: Count::default(),
            repeated: first_excess.is_some(),
            drained: false,
        });
        let delivered = (1.0 - lost.share()) / (1.0 - self.random);
        LossVerdict::Excess { share: TRIAL_GAIN * delivered.min(1.0) }
    }

    /// Random loss rate.
    pub(super) fn random(&self) -> f64 {
        self.random
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Epochs of 100 packets on a path that carries 100 per epoch, with random loss.
    fn follow(losses: &mut Losses, random: u64, epochs: usize) -> f64 {
        let mut sent = 105.0_f64;
        let mut settled = None;
        for _ in 0..epochs {
            let packets = sent.round() as u64;
            let lost = packets.saturating_sub(100) + random;
            match losses.on_epoch((packets, lost), 200.0, settled) {
                LossVerdict::Excess { share } => {
                    sent *= share;
                    settled = None;
                }
                LossVerdict::Trial => settled = Some(sent < 100.0),
                LossVerdict::Random | LossVerdict::Spurious => {}
            }
        }
        sent
    }

    #[test]
    fn losses_caused_by_the_flow_lower_the_rate_and_are_not_learnt() {
        let mut losses = Losses::default();
        let sent = follow(&mut losses, 0, 50);
        assert!((95.0..=100.0).contains(&sent), "{sent}");
        assert_eq!(losses.random(), 0.0);
    }

    #[test]
    fn random_losses_are_learnt_from_a_trial_and_then_ignored() {
        let mut losses = Losses::default();
        let sent = follow(&mut losses, 5, 50);
        assert!((80.0..=100.0).contains(&sent), "{sent}");
        assert!((losses.random() - 0.05).abs() < 0.01, "{}", losses.random());
        for lost in [5, 2, 9, 6, 3, 8] {
            assert_eq!(losses.on_epoch((100, lost), 200.0, None), LossVerdict::Random);
        }
        for _ in 0..10 {
            losses.on_epoch((100, 0), 200.0, None);
        }
        assert!(losses.random() < 0.02, "they have ended: {}", losses.random());
    }

    #[test]
    fn random_loss_that_start_up_underestimates_is_learnt_from_two_trials() {
        let mut losses = Losses::default();
        losses.on_start_up(400, 1);
        let mut trials = 0;
        for epoch in 0..400 {
            // 0.74 %, at 180 packets in 50 ms; a round trip has 3000.
            let lost = [1, 2, 1][epoch % 3];
            let settled = Some(true);
            let verdict = losses.on_epoch((180, lost), 3000.0, settled);
            trials += u32::from(matches!(verdict, LossVerdict::Excess { .. }));
        }
        assert_eq!(trials, 2);
        assert!((losses.random() - 0.0074).abs() < 0.001, "{}", losses.random());
    }

    #[test]
    fn spurious_losses_end_a_trial() {
        let mut losses = Losses::default();
        let verdict = losses.on_epoch((100, 20), 200.0, None);
        assert!(matches!(verdict, LossVerdict::Excess { .. }), "{verdict:?}");
        (0..15).for_each(|_| losses.on_spurious_loss());
        assert_eq!(losses.on_epoch((100, 5), 200.0, None), LossVerdict::Trial, "ten were lost");
        (0..10).for_each(|_| losses.on_spurious_loss());
        assert_eq!(losses.on_epoch((100, 0), 200.0, None), LossVerdict::Spurious);
        assert_eq!(losses.on_epoch((100, 0), 200.0, None), LossVerdict::Random);
        assert_eq!(losses.random(), 0.0);
    }

    #[test]
    fn halved_capacity_starts_a_trial_immediately() {
        let verdict = Losses::default().on_epoch((100, 50), 200.0, None);
        assert_eq!(verdict, LossVerdict::Excess { share: 0.5 * TRIAL_GAIN });
    }
}
