/// Least packets over which losses are judged against chance. Fewer see nothing below some per
/// cent, more are late.
const LEAST_MEMORY_PACKETS: f64 = 400.0;
/// The same in start-up, which sends more with each round: 42 Mbit/s on 800 ms are 2,000 in 4 s.
const START_UP_PACKETS: f64 = 4000.0;
/// How far losses must exceed what chance would have, in standard deviations.
const DEVIATIONS: f64 = 4.0;
/// Least packets of a trial, and losses that it must have had at the share before it. It also lasts
/// for a round trip: on a long path 5 losses say little of their share, and the rest of the round
/// costs 3 % of it.
const TRIAL_PACKETS: f64 = 200.0;
const TRIAL_LOST: f64 = 5.0;
/// Losses that stay above this share of what they were are not the flow's.
const REMAINING: f64 = 0.5;
/// Rate of a trial, as a share of what arrives: a little less, so that a buffer that was full
/// drains.
const TRIAL_GAIN: f64 = 0.97;
/// Most that is believed to be random. The paper shows 5 %.
const MOST_RANDOM: f64 = 0.2;

/// Most that is borne where others seem to overflow the buffer: above that all who share it back
/// off.
const MOST_SHARED: f64 = 0.03;

/// Packets and those of them that were lost.
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

    /// Takes back up to `mistakes` losses; how many are left to take back.
    fn pardon(&mut self, mistakes: u64) -> u64 {
        let pardoned = (mistakes as f64).min(self.lost.floor());
        self.lost -= pardoned;
        mistakes - pardoned as u64
    }

    /// Lets all that was before count for no more than `most_packets`.
    pub(super) fn fade(&mut self, most_packets: f64) {
        let keep = (most_packets / self.packets.max(1.0)).min(1.0);
        self.packets *= keep;
        self.lost *= keep;
    }

    pub(super) fn lost(&self) -> f64 {
        self.lost
    }

    pub(super) fn share(&self) -> f64 {
        self.lost / self.packets.max(1.0)
    }

    /// Standard deviation of what is lost at `random`, and one for what is not known of it.
    fn deviation(&self, random: f64) -> f64 {
        (self.packets * random * (1.0 - random) + 1.0).sqrt()
    }

    /// Whether that is more than chance makes of `random`.
    pub(super) fn exceeds(&self, random: f64) -> bool {
        self.lost > self.packets * random + DEVIATIONS * self.deviation(random) + 1.0
    }

    fn falls_short_of(&self, random: f64) -> bool {
        self.lost + DEVIATIONS * self.deviation(random) < self.packets * random
    }
}

/// What losses say of the rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    /// Chance.
    Random,
    /// More than chance: a trial begins at this share of what the times of acknowledgements make
    /// of the receiving rate.
    Excess { share: f64 },
    /// A trial is on: the rate may not rise.
    Trial,
    /// The trial that was on is over: what it was for were packets that came late.
    Mistake,
}

#[derive(Clone, Copy, Debug)]
struct Trial {
    /// What was lost before it: in the second of two trials, in the first.
    cause: Count,
    /// What was more than chance: the cause of the first of two trials.
    excess: Count,
    count: Count,
    /// Whether one before it ended with losses.
    repeated: bool,
    /// Whether the queue went in it.
    drained: bool,
}

/// Tells losses that the flow itself causes, by filling a buffer that can't hold its queue
/// load, from random ones.
///
/// The paper takes the receiving rate from times alone, and then loses any number of packets where
/// the buffer holds less than B: the delay of a full buffer does not grow, so that the
/// receiving rate seems to equal the sending rate, and the queue load stays below its target.
/// (10 kB at 20 Mbit/s: by Eq. 3 the rate rises to 30 Mbit/s.) Here losses that exceed the random
/// ones lower the receiving rate. Then the flow tries: at a rate that arrives, losses of its own
/// end, random ones stay.
#[derive(Debug, Default)]
pub(super) struct Losses {
    random: f64,
    recent: Count,
    trial: Option<Trial>,
    /// Losses that were none, to be taken back.
    mistaken: u64,
}

impl Losses {
    /// A packet that had been taken for lost was late. On a path that reorders by more than a
    /// sender expects (15 ms of jitter at 20 Mbit/s) mistakes would be congestion otherwise:
    /// iris-mid had 0.80 of the link, and 0.96 with this.
    pub(super) fn on_mistake(&mut self) {
        self.mistaken = self.mistaken.saturating_add(1);
    }

    /// Takes mistakes back: from an epoch's losses, then from those before it. Whether a trial has
    /// lost its cause.
    fn pardon(&mut self, lost: &mut u64) -> bool {
        let of_epoch = self.mistaken.min(*lost);
        *lost -= of_epoch;
        let before = std::mem::take(&mut self.mistaken) - of_epoch;
        let Some(trial) = &mut self.trial else {
            self.recent.pardon(before);
            return false;
        };
        let rest = trial.cause.pardon(before);
        trial.count.pardon(rest);
        trial.excess.pardon(before);
        // Not by `cause`: what a first trial has lost need not be more than chance to be repeated.
        before > 0 && !trial.excess.exceeds(self.random)
    }

    /// Takes in an epoch of start-up that showed no queue: its losses are random.
    pub(super) fn on_start_up(&mut self, packets: u64, lost: u64) {
        self.recent.add(packets, lost);
        self.recent.fade(START_UP_PACKETS);
        self.random = self.recent.share().min(MOST_RANDOM);
    }

    /// Whether a trial is on.
    pub(super) fn is_trying(&self) -> bool {
        self.trial.is_some()
    }

    /// Takes in an epoch. `round_packets` is how many packets make a round trip. `settled` is
    /// there when the epoch was sent after the last verdict, and then tells whether the
    /// queue had drained.
    pub(super) fn on_epoch(
        &mut self,
        (packets, mut lost): (u64, u64),
        round_packets: f64,
        settled: Option<bool>,
    ) -> Verdict {
        if self.pardon(&mut lost) {
            self.trial = None;
            self.recent = Count::default();
            return Verdict::Mistake;
        }
        if let Some(trial) = &mut self.trial {
            if let Some(drained) = settled {
                trial.count.add(packets, lost);
                trial.drained |= drained;
            }
            let enough = TRIAL_PACKETS.max(TRIAL_LOST / trial.cause.share()).max(round_packets);
            if trial.count.packets < enough {
                return Verdict::Trial;
            }
            let Trial { cause, excess, count, repeated, drained } = *trial;
            self.trial = None;
            self.recent = Count::default();
            if count.share() <= REMAINING * cause.share() {
                return Verdict::Random;
            }
            // In a queue that stays, others make them: to back off alone would leave them the path.
            if !drained {
                self.random = count.share().clamp(self.random, MOST_SHARED.max(self.random));
                return Verdict::Random;
            }
            // Once may be the rest of a fall of the capacity.
            if !repeated {
                return self.try_below(count, Some(excess));
            }
            self.random = cause.with(count).share().min(MOST_RANDOM);
            return Verdict::Random;
        }
        self.recent.add(packets, lost);
        self.recent.fade(round_packets.max(LEAST_MEMORY_PACKETS));
        if self.recent.falls_short_of(self.random) {
            self.random = self.recent.share();
        }
        let mut epoch = Count::default();
        epoch.add(packets, lost);
        match [epoch, self.recent].into_iter().find(|count| count.exceeds(self.random)) {
            Some(count) => self.try_below(count, None),
            None => Verdict::Random,
        }
    }

    /// `again` is what was more than chance before the first of two trials.
    fn try_below(&mut self, lost: Count, again: Option<Count>) -> Verdict {
        self.trial = Some(Trial {
            cause: lost,
            excess: again.unwrap_or(lost),
            count: Count::default(),
            repeated: again.is_some(),
            drained: false,
        });
        let arriving = (1.0 - lost.share()) / (1.0 - self.random);
        Verdict::Excess { share: TRIAL_GAIN * arriving.min(1.0) }
    }

    /// Share of packets that is lost by chance.
    pub(super) fn random(&self) -> f64 {
        self.random
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Epochs of 100 packets on a path that carries 100 at a time, and loses some by chance.
    fn follow(losses: &mut Losses, random: u64, epochs: usize) -> f64 {
        let mut sent = 105.0_f64;
        let mut settled = None;
        for _ in 0..epochs {
            let packets = sent.round() as u64;
            let lost = packets.saturating_sub(100) + random;
            match losses.on_epoch((packets, lost), 200.0, settled) {
                Verdict::Excess { share } => {
                    sent *= share;
                    settled = None;
                }
                Verdict::Trial => settled = Some(sent < 100.0),
                Verdict::Random | Verdict::Mistake => {}
            }
        }
        sent
    }

    #[test]
    fn losses_of_its_own_lower_the_rate_and_are_not_learnt() {
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
            assert_eq!(losses.on_epoch((100, lost), 200.0, None), Verdict::Random);
        }
        for _ in 0..10 {
            losses.on_epoch((100, 0), 200.0, None);
        }
        assert!(losses.random() < 0.02, "they have ended: {}", losses.random());
    }

    #[test]
    fn what_start_up_saw_too_little_of_is_learnt_from_two_trials() {
        let mut losses = Losses::default();
        losses.on_start_up(400, 1);
        let mut trials = 0;
        for epoch in 0..400 {
            // 0.74 %, at 180 packets in 50 ms; a round trip has 3000.
            let lost = [1, 2, 1][epoch % 3];
            let settled = Some(true);
            let verdict = losses.on_epoch((180, lost), 3000.0, settled);
            trials += u32::from(matches!(verdict, Verdict::Excess { .. }));
        }
        assert_eq!(trials, 2);
        assert!((losses.random() - 0.0074).abs() < 0.001, "{}", losses.random());
    }

    #[test]
    fn a_trial_ends_when_the_packets_were_only_late() {
        let mut losses = Losses::default();
        let verdict = losses.on_epoch((100, 20), 200.0, None);
        assert!(matches!(verdict, Verdict::Excess { .. }), "{verdict:?}");
        (0..15).for_each(|_| losses.on_mistake());
        assert_eq!(losses.on_epoch((100, 5), 200.0, None), Verdict::Trial, "ten were lost");
        (0..10).for_each(|_| losses.on_mistake());
        assert_eq!(losses.on_epoch((100, 0), 200.0, None), Verdict::Mistake);
        assert_eq!(losses.on_epoch((100, 0), 200.0, None), Verdict::Random);
        assert_eq!(losses.random(), 0.0);
    }

    #[test]
    fn half_of_the_capacity_is_noticed_at_once() {
        let verdict = Losses::default().on_epoch((100, 50), 200.0, None);
        assert_eq!(verdict, Verdict::Excess { share: 0.5 * TRIAL_GAIN });
    }
}
