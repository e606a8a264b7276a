//! Counts that were read periodically, interpolated between the readings.

/// Ascending times, with counts that never decrease.
#[derive(Debug, Clone, Default)]
pub struct InterpolatedCounter(Vec<(f64, f64)>);

impl FromIterator<(f64, f64)> for InterpolatedCounter {
    fn from_iter<I: IntoIterator<Item = (f64, f64)>>(readings: I) -> Self {
        Self(readings.into_iter().collect())
    }
}

impl InterpolatedCounter {
    /// The count at `at_s`: between two readings on the line that joins them, before the first one
    /// nothing, after the last one what it was.
    #[must_use]
    pub fn at(&self, at_s: f64) -> f64 {
        let after = self.0.partition_point(|(read_s, _)| *read_s <= at_s);
        match (after.checked_sub(1).map(|before| self.0[before]), self.0.get(after)) {
            (None, _) => 0.0,
            (Some((_, count)), None) => count,
            (Some((from_s, from)), Some((to_s, to))) => {
                from + (to - from) * (at_s - from_s) / (to_s - from_s)
            }
        }
    }

    /// The increase from one moment to another.
    #[must_use]
    pub fn between(&self, from_s: f64, to_s: f64) -> f64 {
        self.at(to_s) - self.at(from_s)
    }

    /// Time of the first reading.
    #[must_use]
    pub fn first_s(&self) -> Option<f64> {
        self.0.first().map(|(at_s, _)| *at_s)
    }

    /// Time of the last reading.
    #[must_use]
    pub fn last_s(&self) -> Option<f64> {
        self.0.last().map(|(at_s, _)| *at_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_lie_on_the_line_between_readings() {
        let readings = [(1.0, 100.0), (2.0, 200.0), (4.0, 200.0)];
        let counter: InterpolatedCounter = readings.into_iter().collect();
        assert_eq!(counter.at(0.5), 0.0);
        assert_eq!(counter.at(1.0), 100.0);
        assert_eq!(counter.at(1.25), 125.0);
        assert_eq!(counter.at(3.0), 200.0);
        assert_eq!(counter.at(9.0), 200.0);
        assert_eq!(counter.between(1.5, 3.0), 50.0);
        assert_eq!((counter.first_s(), counter.last_s()), (Some(1.0), Some(4.0)));
        assert_eq!(InterpolatedCounter::default().at(1.0), 0.0);
    }
}
