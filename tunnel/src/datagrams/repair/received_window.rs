//! Which packets have arrived, of the newest ones.

use millrace_wire::repair::Sequence;

/// Packets that are remembered: 2 s of a stream of 95 Mbit/s. Older ones count as arrived.
const WINDOW_NUMBERS: u32 = 16_384;
const WINDOW_WORDS: usize = WINDOW_NUMBERS as usize / 64;

/// A set of the newest sequence numbers, one bit each.
#[derive(Debug)]
pub(super) struct ReceivedWindow {
    newest: Option<Sequence>,
    bits: Box<[u64; WINDOW_WORDS]>,
}

impl Default for ReceivedWindow {
    fn default() -> Self {
        Self { newest: None, bits: Box::new([0; WINDOW_WORDS]) }
    }
}

impl ReceivedWindow {
    /// Adds a number. Returns whether it is new.
    pub(super) fn insert(&mut self, sequence: Sequence) -> bool {
        let ahead = self.newest.map_or(i32::MAX, |newest| sequence.ahead_of(newest));
        if ahead > 0 {
            self.advance(ahead.unsigned_abs(), sequence);
        } else if !self.is_within(sequence) {
            return false;
        }
        let (word, bit) = place(sequence);
        let is_new = self.bits[word] & bit == 0;
        self.bits[word] |= bit;
        is_new
    }

    /// Whether it is one of the newest numbers. The number that is half of all away is both ahead and behind, and counts
    /// as behind: [`Sequence::ahead_of`] is negative either way.
    fn is_within(&self, sequence: Sequence) -> bool {
        let window = 0..WINDOW_NUMBERS as i32;
        self.newest.is_none_or(|newest| window.contains(&newest.ahead_of(sequence)))
    }

    /// Makes `newest` the newest number, by so many ahead of the one before; those between are missing.
    fn advance(&mut self, ahead: u32, newest: Sequence) {
        if ahead >= WINDOW_NUMBERS {
            self.bits.fill(0);
        } else {
            for back in 0..ahead {
                let (word, bit) = place(Sequence::new(newest.value().wrapping_sub(back)));
                self.bits[word] &= !bit;
            }
        }
        self.newest = Some(newest);
    }
}

fn place(sequence: Sequence) -> (usize, u64) {
    let index = sequence.value() % WINDOW_NUMBERS;
    ((index / 64) as usize, 1 << (index % 64))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_number_is_new_once() {
        let mut window = ReceivedWindow::default();
        for number in [5, 7, 6, 4] {
            assert!(window.insert(Sequence::new(number)), "{number}");
            assert!(!window.insert(Sequence::new(number)), "{number}");
        }
        assert!(window.insert(Sequence::new(8)) && window.insert(Sequence::new(3)));
    }

    #[test]
    fn numbers_that_are_too_old_count_as_received() {
        let mut window = ReceivedWindow::default();
        assert!(window.insert(Sequence::new(0)));
        assert!(window.insert(Sequence::new(WINDOW_NUMBERS)));
        assert!(!window.insert(Sequence::new(0)));
        assert!(window.insert(Sequence::new(1)), "the oldest that is remembered");
    }

    #[test]
    fn the_number_half_of_all_away_is_outside_the_window() {
        let mut window = ReceivedWindow::default();
        assert!(window.insert(Sequence::new(7)));
        let opposite = Sequence::new(7 + (1 << 21));
        assert!(!window.is_within(opposite) && !window.insert(opposite));
        assert!(window.is_within(Sequence::new(7)) && window.insert(Sequence::new(6)));
    }

    #[test]
    fn a_window_is_a_set_wherever_numbers_begin() {
        // The generator of Numerical Recipes.
        let mut state = 1_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 8
        };
        for _ in 0..200 {
            let (mut window, mut model, mut at) =
                (ReceivedWindow::default(), HashSet::new(), next());
            for _ in 0..50 {
                at = at.wrapping_add_signed(next() as i32 % 600 - 300);
                let sequence = Sequence::new(at);
                assert_eq!(window.insert(sequence), model.insert(sequence));
            }
        }
    }
}
