//! Counts that were read now and then, as if they had been read at any moment.

/// Moments, ascending, with counts that never fall.
#[derive(Debug, Clone, Default)]
pub struct Steps(Vec<(f64, f64)>);

impl FromIterator<(f64, f64)> for Steps {
    fn from_iter<I: IntoIterator<Item = (f64, f64)>>(readings: I) -> Self {
        Self(readings.into_iter().collect())
    }
}

impl Steps {
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

    /// How much it rises from one moment to another.
    #[must_use]
    pub fn between(&self, from_s: f64, to_s: f64) -> f64 {
        self.at(to_s) - self.at(from_s)
    }

    /// When it was read first.
    #[must_use]
    pub fn first_s(&self) -> Option<f64> {
        self.0.first().map(|(at_s, _)| *at_s)
    }

    /// When it was read last.
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
        let steps: Steps = [(1.0, 100.0), (2.0, 200.0), (4.0, 200.0)].into_iter().collect();
        assert_eq!(steps.at(0.5), 0.0);
        assert_eq!(steps.at(1.0), 100.0);
        assert_eq!(steps.at(1.25), 125.0);
        assert_eq!(steps.at(3.0), 200.0);
        assert_eq!(steps.at(9.0), 200.0);
        assert_eq!(steps.between(1.5, 3.0), 50.0);
        assert_eq!((steps.first_s(), steps.last_s()), (Some(1.0), Some(4.0)));
        assert_eq!(Steps::default().at(1.0), 0.0);
    }
}
