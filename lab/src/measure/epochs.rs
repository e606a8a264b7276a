//! What the epochs of a flow say of its path: how the round trip follows sending and receiving rate (Iris,
//! Section III).

use millrace_sim::PacketDelivered;

/// Fewer points say nothing of a line.
const MIN_POINTS: u64 = 10;

/// Packets of one epoch that have arrived.
#[derive(Debug, Clone, Copy, Default)]
struct SentEpoch {
    number: u64,
    packets: u64,
    bytes: u64,
    delay_sum_s: f64,
    last_arrival_s: f64,
}

impl SentEpoch {
    fn mean_delay_s(&self) -> f64 {
        self.delay_sum_s / self.packets as f64
    }
}

/// Epochs of a flow in turn, and the line through what they say.
#[derive(Debug)]
pub(super) struct EpochRecord {
    epoch_s: f64,
    warmup_s: f64,
    current: SentEpoch,
    previous: Option<SentEpoch>,
    line: FittedLine,
}

impl EpochRecord {
    pub(super) fn new(epoch_s: f64, warmup_s: f64) -> Self {
        let (current, line) = (SentEpoch::default(), FittedLine::default());
        Self { epoch_s, warmup_s, current, previous: None, line }
    }

    pub(super) fn add(&mut self, packet: &PacketDelivered) {
        let sent_s = packet.sent.as_secs_f64();
        if sent_s < self.warmup_s {
            return;
        }
        let number = (sent_s / self.epoch_s) as u64;
        // A packet that others of a later epoch have overtaken is in none.
        if number < self.current.number {
            return;
        }
        if number > self.current.number {
            self.complete();
            self.current = SentEpoch { number, ..SentEpoch::default() };
        }
        let arrival_s = packet.at.as_secs_f64();
        self.current.packets += 1;
        self.current.bytes += packet.bytes;
        self.current.delay_sum_s += arrival_s - sent_s;
        self.current.last_arrival_s = self.current.last_arrival_s.max(arrival_s);
    }

    /// x, r and the change of the round trip of the current epoch (Eq. 1, and r as in Section V-A). The way back has no
    /// queue, so that the delay to the receiver changes as the round trip does.
    fn complete(&mut self) {
        let epoch = self.current;
        if epoch.packets == 0 {
            return;
        }
        let before = self.previous.replace(epoch).filter(|it| it.number + 1 == epoch.number);
        let Some(before) = before else { return };
        let received_s = epoch.last_arrival_s - before.last_arrival_s;
        if received_s <= 0.0 {
            return;
        }
        let megabits = epoch.bytes as f64 * 8e-6;
        let excess_mbps = megabits / self.epoch_s - megabits / received_s;
        self.line.add(excess_mbps, (epoch.mean_delay_s() - before.mean_delay_s()) * 1e3);
    }

    /// The line through all complete epochs; `None` with too few of them.
    pub(super) fn line(&self) -> Option<&FittedLine> {
        (self.line.points >= MIN_POINTS).then_some(&self.line)
    }
}

/// A line by least squares, which is the maximum likelihood of Eq. 2 with Gaussian noise.
#[derive(Debug, Default)]
pub(super) struct FittedLine {
    points: u64,
    mean_x: f64,
    mean_y: f64,
    squares_x: f64,
    squares_y: f64,
    products: f64,
}

impl FittedLine {
    /// By Welford's method: sums of squares would lose the digits.
    fn add(&mut self, x: f64, y: f64) {
        self.points += 1;
        let (from_x, from_y) = (x - self.mean_x, y - self.mean_y);
        self.mean_x += from_x / self.points as f64;
        self.mean_y += from_y / self.points as f64;
        self.squares_x += from_x * (x - self.mean_x);
        self.squares_y += from_y * (y - self.mean_y);
        self.products += from_x * (y - self.mean_y);
    }

    /// Pearson's coefficient; `None` where one of both never changes.
    pub(super) fn correlation(&self) -> Option<f64> {
        let product = (self.squares_x * self.squares_y).sqrt();
        (product > 0.0).then(|| self.products / product)
    }

    /// k of Eq. 2, ms for each Mbit/s.
    pub(super) fn slope_ms(&self) -> Option<f64> {
        (self.squares_x > 0.0).then(|| self.products / self.squares_x)
    }

    /// b of Eq. 2, ms.
    pub(super) fn intercept_ms(&self) -> Option<f64> {
        self.slope_ms().map(|slope| self.mean_y - slope * self.mean_x)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use millrace_cc::Time;

    use super::*;

    /// A queue of 12 Mbit/s, a packet of 1500 bytes in a millisecond, with a second of packets at first, and epochs of
    /// `packets` each.
    fn queue(packets: &[u64], extra_ms: impl Fn(u64) -> u64) -> EpochRecord {
        let mut record = EpochRecord::new(0.1, 0.0);
        let (mut free_us, mut number) = (1_000_000, 0);
        for (epoch, count) in packets.iter().enumerate() {
            for packet in 0..*count {
                let sent_us = epoch as u64 * 100_000 + packet * 100_000 / count;
                free_us = free_us.max(sent_us) + 1_000;
                number += 1;
                let at = |us: u64| Time::ZERO + Duration::from_micros(us);
                let (sent, arrival) = (at(sent_us), at(free_us + 10_000 + extra_ms(number) * 1000));
                let waited = Duration::ZERO;
                record.add(&PacketDelivered { flow: 0, sent, at: arrival, bytes: 1500, waited });
            }
        }
        record
    }

    /// Rates around 12 Mbit/s for ten epochs each.
    fn loaded() -> Vec<u64> {
        let rates = [110, 90, 105, 95, 115, 85, 120, 80, 112, 88];
        rates.iter().flat_map(|rate| [*rate; 10]).collect()
    }

    #[test]
    fn round_trip_follows_the_excess_of_rate_as_a_queue_does() {
        let record = queue(&loaded(), |_| 0);
        let line = record.line().expect("100 epochs");
        let correlation = line.correlation().expect("both change");
        assert!(correlation > 0.9, "{correlation}");
        let slope = line.slope_ms().expect("it changes");
        assert!((7.0..9.5).contains(&slope), "{slope} ms for each Mbit/s, e / r = 8.3");
        assert!(line.intercept_ms().expect("a line").abs() < 1.0);
    }

    #[test]
    fn jitter_weakens_the_correlation() {
        let noisy = queue(&loaded(), |number| if (number / 100) % 2 == 0 { 0 } else { 30 });
        let of = |record: &EpochRecord| record.line().unwrap().correlation().unwrap();
        let (clean, noisy) = (of(&queue(&loaded(), |_| 0)), of(&noisy));
        assert!(noisy < clean - 0.05, "{noisy} {clean}");
    }

    #[test]
    fn few_epochs_and_the_warm_up_say_nothing() {
        assert!(queue(&loaded()[..5], |_| 0).line().is_none());
        let mut record = EpochRecord::new(0.1, 100.0);
        let packet = PacketDelivered {
            flow: 0,
            sent: Time::ZERO,
            at: Time::ZERO,
            bytes: 1500,
            waited: Duration::ZERO,
        };
        (0..100).for_each(|_| record.add(&packet));
        assert!(record.line().is_none());
    }
}
