//! A median with the range of its values.

use serde::Serialize;

use crate::measure::median;

/// A median with its range.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MedianRange {
    /// The median.
    pub median: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest one.
    pub max: f64,
    /// Number of values.
    pub count: usize,
}

impl MedianRange {
    /// Of these values; `None` of none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.into_iter().collect();
        Some(Self {
            median: median(values.iter().copied())?,
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            count: values.len(),
        })
    }

    /// With so many digits after the point, and the range where there are several values.
    pub fn shown(&self, digits: usize) -> String {
        let Self { median, min, max, count } = *self;
        match count {
            1 => format!("{median:.digits$}"),
            _ => format!("{median:.digits$} ({min:.digits$}-{max:.digits$})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_has_its_range_where_there_are_several_values() {
        let range = MedianRange::of([3.0, 1.0, 2.0]).unwrap();
        assert_eq!(range.shown(1), "2.0 (1.0-3.0)");
        assert_eq!(MedianRange::of([2.5]).unwrap().shown(2), "2.50");
        assert_eq!(MedianRange::of([]), None);
    }
}
