/// Least packets over which losses are judged against chance. Fewer see nothing below some
/// per cent, more are late.
const LEAST_MEMORY_PACKETS: f64 = 400.0;
/// Packets after which the rate of random losses is taken over.
const BLOCK_PACKETS: f64 = 200.0;
/// How far losses must exceed what chance would have, in standard deviations.
const DEVIATIONS: f64 = 3.0;
/// Most that is believed to be random. The paper shows 5 %.
const MOST_RANDOM: f64 = 0.1;

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    packets: f64,
    lost: f64,
}

impl Count {
    fn add(&mut self, packets: u64, lost: u64) {
        self.packets += packets as f64;
        self.lost += lost as f64;
    }

    fn fade(&mut self, most_packets: f64) {
        let keep = (most_packets / self.packets.max(1.0)).min(1.0);
        self.packets *= keep;
        self.lost *= keep;
    }

    fn share(&self) -> f64 {
        self.lost / self.packets.max(1.0)
    }

    /// Whether that is more than losses at rate `base` would be by chance.
    fn exceeds(&self, base: f64) -> bool {
        let variance = self.packets * base * (1.0 - base) + 1.0;
        self.lost > self.packets * base + DEVIATIONS * variance.sqrt() + 1.0
    }
}

/// Tells losses that the flow itself causes, by filling a buffer that can't hold its queue
/// load, from random ones.
///
/// The paper has one receiving rate, by times alone, and loses any number of packets
/// where the buffer holds less than B: the full buffer's delay no longer grows, so the receiving
/// rate seems to equal the sending rate, and the queue load stays below its target. Losses that
/// exceed the random ones therefore lower the receiving rate. Random are those that stay while
/// the flow sends less than the path can carry: only such epochs teach the rate of them.
#[derive(Debug, Default)]
pub(super) struct Losses {
    random: f64,
    recent: Count,
    block: Count,
}

impl Losses {
    /// The share of packets that arrive as far as the flow's own rate decides, 1 while losses are
    /// by chance.
    ///
    /// `round_packets` is how many packets make a round trip, `below_capacity` whether the path
    /// could have carried more.
    pub(super) fn on_epoch(
        &mut self,
        (packets, lost): (u64, u64),
        round_packets: f64,
        below_capacity: bool,
    ) -> f64 {
        if below_capacity {
            self.learn(packets, lost);
        }
        self.recent.add(packets, lost);
        self.recent.fade(round_packets.max(LEAST_MEMORY_PACKETS));
        let mut epoch = Count::default();
        epoch.add(packets, lost);
        match [epoch, self.recent].into_iter().find(|count| count.exceeds(self.random)) {
            Some(count) => {
                // Answered once: the next answer is to what the lower rate loses.
                self.recent = Count::default();
                ((1.0 - count.share()) / (1.0 - self.random)).min(1.0)
            }
            None => 1.0,
        }
    }

    fn learn(&mut self, packets: u64, lost: u64) {
        self.block.add(packets, lost);
        if self.block.packets >= BLOCK_PACKETS {
            self.random = self.block.share().min(MOST_RANDOM);
            self.block = Count::default();
        }
    }

    /// Share of packets that is lost by chance.
    pub(super) fn random(&self) -> f64 {
        self.random
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_losses_are_learnt_below_capacity_and_ignored_at_it() {
        let mut losses = Losses::default();
        for _ in 0..10 {
            losses.on_epoch((100, 5), 200.0, true);
        }
        assert!((losses.random() - 0.05).abs() < 1e-9);
        for lost in [5, 2, 9, 6, 3, 8] {
            assert_eq!(losses.on_epoch((100, lost), 200.0, false), 1.0);
        }
        assert!((losses.random() - 0.05).abs() < 1e-9, "at capacity nothing is learnt");
    }

    #[test]
    fn a_buffer_that_overflows_lowers_the_rate_at_once_or_as_soon_as_it_is_sure() {
        let mut losses = Losses::default();
        assert_eq!(losses.on_epoch((100, 50), 200.0, false), 0.5);
        let few = (0..4).map(|_| losses.on_epoch((100, 2), 200.0, false)).collect::<Vec<_>>();
        assert_eq!(few[..2], [1.0, 1.0]);
        assert!(few.contains(&0.98), "{few:?}");
        assert_eq!(losses.random(), 0.0);
    }
}
