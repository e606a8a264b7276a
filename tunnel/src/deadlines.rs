//! When each of many things is due.

use std::collections::BTreeSet;
use std::time::Instant;

/// The due times of numbered things, at most one each.
#[derive(Debug, Default)]
pub struct Deadlines {
    by_time: BTreeSet<(Instant, usize)>,
    by_number: Vec<Option<Instant>>,
}

impl Deadlines {
    /// `number` is due at `at`, and no more when it was due before; `None` for never.
    pub fn set(&mut self, number: usize, at: Option<Instant>) {
        if self.by_number.len() <= number {
            self.by_number.resize(number + 1, None);
        }
        if self.by_number[number] == at {
            return;
        }
        if let Some(before) = std::mem::replace(&mut self.by_number[number], at) {
            self.by_time.remove(&(before, number));
        }
        if let Some(at) = at {
            self.by_time.insert((at, number));
        }
    }

    /// The earliest due time.
    pub fn next(&self) -> Option<Instant> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Takes out one thing that is due at `now`.
    pub fn pop(&mut self, now: Instant) -> Option<usize> {
        let (at, number) = *self.by_time.first()?;
        if at > now {
            return None;
        }
        self.set(number, None);
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn things_come_due_in_order_and_once() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut deadlines = Deadlines::default();
        deadlines.set(3, Some(at(30)));
        deadlines.set(1, Some(at(10)));
        deadlines.set(2, Some(at(20)));
        deadlines.set(3, Some(at(5)));
        deadlines.set(2, None);
        assert_eq!(deadlines.next(), Some(at(5)));
        assert_eq!(deadlines.pop(at(4)), None);
        assert_eq!(deadlines.pop(at(10)), Some(3));
        assert_eq!(deadlines.pop(at(10)), Some(1));
        assert_eq!(deadlines.pop(at(100)), None);
        assert_eq!(deadlines.next(), None);
    }
}
