use std::collections::VecDeque;

/// Most packets remembered: 1.4 GB in flight of full packets, or 10 Gbit/s for a second.
const MAX_PACKETS: usize = 1 << 20;
/// Free slots that are kept without compaction.
const MAX_FREE_SLOTS: usize = 64;

/// A note for each packet in flight.
///
/// Packets are ordered by number, with gaps. A packet is found by its distance from the oldest one,
/// which is its index apart from gaps: no hashing, and a jump of the numbers costs nothing. Memory
/// follows the packets in flight and is bounded.
#[derive(Clone, Debug)]
pub(crate) struct SentRing<T> {
    packets: VecDeque<RingSlot<T>>,
    /// Slots whose packets are in flight.
    live: usize,
    largest_taken: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct RingSlot<T> {
    number: u64,
    /// `None` after the packet was taken.
    note: Option<T>,
}

impl<T> Default for SentRing<T> {
    fn default() -> Self {
        Self { packets: VecDeque::new(), live: 0, largest_taken: None }
    }
}

impl<T: Copy> SentRing<T> {
    /// Remembers a packet. One whose number does not ascend is not remembered.
    pub(crate) fn push(&mut self, number: u64, note: T) {
        if self.packets.back().is_some_and(|last| last.number >= number) {
            return;
        }
        if self.packets.len() >= MAX_PACKETS && !self.make_room() {
            return;
        }
        self.packets.push_back(RingSlot { number, note: Some(note) });
        self.live += 1;
    }

    /// Removes a packet. Returns its note.
    pub(crate) fn take(&mut self, number: u64) -> Option<T> {
        let index = self.find(number)?;
        let note = self.packets[index].note.take()?;
        self.live -= 1;
        self.largest_taken = self.largest_taken.max(Some(number));
        while self.packets.front().is_some_and(|slot| slot.note.is_none()) {
            self.packets.pop_front();
        }
        // A packet that is never reported would keep all slots after it.
        if self.packets.len() > 2 * self.live + MAX_FREE_SLOTS {
            self.packets.retain(|slot| slot.note.is_some());
        }
        Some(note)
    }

    /// Searches downwards from where the packet would be if no number were left out.
    fn find(&self, number: u64) -> Option<usize> {
        let first = self.packets.front()?.number;
        let distance = usize::try_from(number.checked_sub(first)?).unwrap_or(usize::MAX);
        let mut high = distance.min(self.packets.len() - 1);
        if self.packets[high].number == number {
            return Some(high);
        }
        let mut step = 1;
        while self.packets[high].number > number {
            let low = high.saturating_sub(step);
            if self.packets[low].number <= number {
                return self.search(low, high, number);
            }
            high = low;
            step *= 2;
        }
        None
    }

    fn search(&self, mut low: usize, mut high: usize, number: u64) -> Option<usize> {
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.packets[middle].number < number {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        (self.packets[low].number == number).then_some(low)
    }

    /// Drops the oldest packet if later ones have long been reported.
    fn make_room(&mut self) -> bool {
        let overtaken =
            self.packets.front().is_some_and(|slot| Some(slot.number) < self.largest_taken);
        if overtaken && self.packets.pop_front().is_some_and(|slot| slot.note.is_some()) {
            self.live -= 1;
        }
        overtaken
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand_core::{RngCore, SeedableRng};

    use super::*;

    #[test]
    fn ring_agrees_with_a_map_for_any_order_and_gaps() {
        let mut rng = rand_pcg::Pcg64Mcg::seed_from_u64(7);
        let (mut ring, mut map) = (SentRing::default(), BTreeMap::new());
        let mut number = 0;
        for round in 0..100_000_u32 {
            if rng.next_u32() % 100 < 52 {
                number += 1 + u64::from(rng.next_u32() % 8 == 0) * u64::from(rng.next_u32() % 50);
                number += u64::from(rng.next_u32() % 10_000 == 0) << 40;
                ring.push(number, round);
                map.insert(number, round);
            } else {
                let some = map.keys().nth(rng.next_u32() as usize % (map.len() + 1).min(50));
                let asked =
                    some.copied().unwrap_or(number + 3) + u64::from(rng.next_u32() % 9 == 0);
                assert_eq!(ring.take(asked), map.remove(&asked));
            }
            assert_eq!(ring.live, map.len());
        }
    }

    #[test]
    fn memory_depends_on_unreported_packets_and_not_on_numbers() {
        let mut ring = SentRing::default();
        let mut number = 0;
        for round in 0..1_000_000_u64 {
            number += 1 << 40;
            ring.push(number, round);
            // Every thousandth packet is never reported.
            if round % 1000 != 0 {
                assert_eq!(ring.take(number), Some(round));
            }
        }
        assert_eq!(ring.live, 1000);
        assert!(ring.packets.len() <= 2 * 1000 + MAX_FREE_SLOTS, "{}", ring.packets.len());
        assert!(ring.packets.capacity() <= 8192, "{}", ring.packets.capacity());
    }

    #[test]
    fn memory_is_bounded() {
        let mut ring = SentRing::default();
        let most = MAX_PACKETS as u64;
        (0..most + 10).for_each(|number| ring.push(number, number));
        assert_eq!(ring.packets.len(), MAX_PACKETS);
        assert_eq!(ring.take(most + 1), None, "there was no room");
        assert_eq!(ring.take(5), Some(5));
        ring.push(most + 20, 1);
        assert_eq!(ring.take(0), None, "number 5 has overtaken it");
        assert_eq!(ring.take(most + 20), Some(1));
        assert_eq!(ring.take(1), Some(1));
    }

    #[test]
    fn a_number_that_does_not_ascend_is_not_taken_for_another() {
        let mut ring = SentRing::default();
        ring.push(10, 'a');
        ring.push(10, 'b');
        ring.push(9, 'c');
        assert_eq!((ring.take(9), ring.take(10), ring.take(10)), (None, Some('a'), None));
    }
}
