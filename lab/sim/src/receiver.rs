use std::collections::VecDeque;
use std::time::Duration;

use crate::AckPolicy;

/// An acknowledgement on its way back.
///
/// It covers all packets received so far, as the ranges of an ACK frame do (RFC 9000, Section 19.3). A
/// lost one therefore only costs time. The limit on ranges is not modelled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ack {
    /// When it reaches the sender.
    pub due_ns: u64,
    /// Packets received before it was sent.
    pub received: u64,
    /// The largest packet number received.
    pub largest: u64,
    /// Delay since that packet arrived.
    pub delay_ns: u64,
}

/// Received packets and their acknowledgements.
#[derive(Debug)]
pub(crate) struct Receiver {
    every: u32,
    max_delay_ns: u64,
    aggregation_ns: u64,
    /// Packet numbers, in order of arrival, that no acknowledgement has reported to the sender yet.
    numbers: VecDeque<u64>,
    /// Packets received.
    count: u64,
    largest: Option<u64>,
    largest_at_ns: u64,
    /// Packets since the last acknowledgement.
    pending: u32,
    deadline_ns: Option<u64>,
    acks: VecDeque<Ack>,
    last_due_ns: u64,
    units: UnitSet,
}

impl Receiver {
    pub(crate) fn new(policy: &AckPolicy) -> Self {
        let ns = |duration: Duration| duration.as_nanos() as u64;
        Self {
            every: policy.every,
            max_delay_ns: ns(policy.max_delay),
            aggregation_ns: ns(policy.aggregation),
            numbers: VecDeque::new(),
            count: 0,
            largest: None,
            largest_at_ns: 0,
            pending: 0,
            deadline_ns: None,
            acks: VecDeque::new(),
            last_due_ns: 0,
            units: UnitSet::default(),
        }
    }

    /// A packet arrives. Returns whether it must be acknowledged immediately (RFC 9000, Section 13.2.1:
    /// also when it is out of order), and whether its data is new.
    pub(crate) fn on_packet(&mut self, now_ns: u64, number: u64, unit: u64) -> (bool, bool) {
        let in_order = number == self.largest.map_or(0, |largest| largest + 1);
        if self.largest.is_none_or(|largest| number > largest) {
            self.largest = Some(number);
            self.largest_at_ns = now_ns;
        }
        self.numbers.push_back(number);
        self.count += 1;
        self.pending += 1;
        if self.pending == 1 {
            self.deadline_ns = Some(now_ns + self.max_delay_ns);
        }
        (!in_order || self.pending >= self.every, self.units.insert(unit))
    }

    /// Sends an acknowledgement, which reaches the sender after `back_ns` unless it is `lost`.
    pub(crate) fn acknowledge(&mut self, now_ns: u64, back_ns: u64, lost: bool) {
        self.pending = 0;
        self.deadline_ns = None;
        let Some(largest) = self.largest.filter(|_| !lost) else { return };
        let released_ns = match self.aggregation_ns {
            0 => now_ns,
            every_ns => now_ns.next_multiple_of(every_ns),
        };
        // On a path that becomes shorter no acknowledgement overtakes another.
        let due_ns = (released_ns + back_ns).max(self.last_due_ns);
        self.last_due_ns = due_ns;
        let delay_ns = now_ns - self.largest_at_ns;
        self.acks.push_back(Ack { due_ns, received: self.count, largest, delay_ns });
    }

    /// When an acknowledgement must leave regardless of the number of packets.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        self.deadline_ns
    }

    /// When the next acknowledgement reaches the sender.
    pub(crate) fn next_ack_ns(&self) -> Option<u64> {
        self.acks.front().map(|ack| ack.due_ns)
    }

    /// Removes the next acknowledgement that has reached the sender. Returns it with the numbers that it reports first.
    pub(crate) fn pop_ack(
        &mut self,
        now_ns: u64,
    ) -> Option<(Ack, impl Iterator<Item = u64> + use<'_>)> {
        let ack = self.acks.pop_front_if(|ack| ack.due_ns <= now_ns)?;
        // `numbers` holds the last of all `count` numbers.
        let reported = self.count - self.numbers.len() as u64;
        let unreported = (ack.received - reported) as usize;
        Some((ack, self.numbers.drain(..unreported)))
    }

    /// Whether the first `units` units have all arrived.
    pub(crate) fn has_all(&self, units: u64) -> bool {
        self.units.below >= units
    }

    /// Units that have arrived without a gap.
    pub(crate) fn units_in_order(&self) -> u64 {
        self.units.below
    }
}

/// The units of data received: all units below `below`, and some above it.
#[derive(Debug, Default)]
struct UnitSet {
    below: u64,
    /// Bit i of word w stands for unit `(below / 64 + w) * 64 + i`.
    words: VecDeque<u64>,
}

impl UnitSet {
    /// Adds `unit`. Returns whether it is new.
    fn insert(&mut self, unit: u64) -> bool {
        if unit < self.below {
            return false;
        }
        let word = (unit / 64 - self.below / 64) as usize;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        let bit = 1 << (unit % 64);
        if self.words[word] & bit != 0 {
            return false;
        }
        self.words[word] |= bit;
        if unit == self.below {
            self.advance();
        }
        true
    }

    fn advance(&mut self) {
        while let Some(word) = self.words.front() {
            let ones = u64::from((word >> (self.below % 64)).trailing_ones());
            let room = 64 - self.below % 64;
            self.below += ones.min(room);
            if ones < room {
                return;
            }
            self.words.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_new_once_in_any_order() {
        let mut units = UnitSet::default();
        // 7919 has no factor in common with 1000: every unit once, scattered.
        for step in 0..1000 {
            assert!(units.insert(step * 7919 % 1000));
        }
        assert_eq!((units.below, units.words.len()), (1000, 1));
        assert!((0..1000).all(|unit| !units.insert(unit)));
        assert!(units.insert(1000) && units.insert(1002) && !units.insert(1002));
        assert_eq!(units.below, 1001);
    }
}
