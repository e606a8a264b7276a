use std::collections::VecDeque;

/// The largest of the samples that are not older than a window, exactly.
///
/// A monotonic queue: a sample that a later one exceeds is removed. `position` is in the unit of the
/// window (nanoseconds, rounds) and never decreases. Memory is bounded: beyond [`MAX_SAMPLES`] the newest
/// two are merged, which keeps the maximum.
#[derive(Clone, Debug)]
pub(crate) struct WindowedMax<T> {
    window: u64,
    /// Position and value, values falling.
    samples: VecDeque<(u64, T)>,
}

/// Bounds memory and the time of one update.
const MAX_SAMPLES: usize = 256;

impl<T: Copy + PartialOrd> WindowedMax<T> {
    pub(crate) fn new(window: u64) -> Self {
        Self { window, samples: VecDeque::with_capacity(MAX_SAMPLES) }
    }

    pub(crate) fn set_window(&mut self, window: u64) {
        self.window = window;
    }

    pub(crate) fn add(&mut self, position: u64, value: T) {
        self.expire(position);
        while self.samples.back().is_some_and(|(_, other)| *other <= value) {
            self.samples.pop_back();
        }
        // A larger sample expires at the same position.
        if self.samples.back().is_some_and(|(at, _)| *at == position) {
            return;
        }
        match self.samples.len() < MAX_SAMPLES {
            true => self.samples.push_back((position, value)),
            false => {
                if let Some(last) = self.samples.back_mut() {
                    last.0 = position;
                }
            }
        }
    }

    /// Removes samples older than the window.
    pub(crate) fn expire(&mut self, position: u64) {
        let oldest = position.saturating_sub(self.window);
        while self.samples.front().is_some_and(|(at, _)| *at < oldest) {
            self.samples.pop_front();
        }
    }

    pub(crate) fn get(&self) -> Option<T> {
        self.samples.front().map(|(_, value)| *value)
    }

    pub(crate) fn clear(&mut self) {
        self.samples.clear();
    }
}

/// The smallest of the samples that are not older than a window, kept as in [`WindowedMax`].
#[derive(Clone, Debug)]
pub(crate) struct WindowedMin<T>(WindowedMax<std::cmp::Reverse<T>>);

impl<T: Copy + Ord> WindowedMin<T> {
    pub(crate) fn new(window: u64) -> Self {
        Self(WindowedMax::new(window))
    }

    pub(crate) fn set_window(&mut self, window: u64) {
        self.0.set_window(window);
    }

    pub(crate) fn add(&mut self, position: u64, value: T) {
        self.0.add(position, std::cmp::Reverse(value));
    }

    pub(crate) fn get(&self) -> Option<T> {
        self.0.get().map(|value| value.0)
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::{RngCore, SeedableRng};

    #[test]
    fn it_is_the_extreme_of_the_window() {
        let mut rng = rand_pcg::Pcg64Mcg::seed_from_u64(1);
        let (mut max, mut min) = (WindowedMax::new(20), WindowedMin::new(20));
        let mut seen = Vec::new();
        for at in 0..2000_u64 {
            let value = rng.next_u32() % 1000;
            seen.push(value);
            max.add(at, value);
            min.add(at, value);
            let window = &seen[seen.len().saturating_sub(21)..];
            assert_eq!(max.get(), window.iter().max().copied());
            assert_eq!(min.get(), window.iter().min().copied());
        }
        max.expire(3000);
        assert_eq!(max.get(), None);
        min.clear();
        assert_eq!(min.get(), None);
    }

    #[test]
    fn memory_is_bounded_and_the_maximum_kept() {
        let mut max = WindowedMax::new(u64::MAX);
        for at in 0..10_000_u64 {
            max.add(at, 10_000 - at);
        }
        assert_eq!(max.samples.len(), MAX_SAMPLES);
        assert_eq!(max.get(), Some(10_000));
    }
}
