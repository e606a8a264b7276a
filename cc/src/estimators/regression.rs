use std::time::Duration;

/// Least squares line through (time, value) points, kept as sums: no point is stored.
///
/// The running form (Welford) keeps its precision however far the times are from zero.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Regression {
    points: f64,
    mean_x: f64,
    mean_y: f64,
    xx: f64,
    xy: f64,
    yy: f64,
}

/// A slope with its standard error, both without unit (seconds per second).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Slope {
    pub(crate) value: f64,
    pub(crate) error: f64,
}

impl Regression {
    /// Adds the RTT of a packet sent `at` after the interval began.
    pub(crate) fn add(&mut self, at: Duration, rtt: Duration) {
        self.add_point(at.as_secs_f64(), rtt.as_secs_f64());
    }

    /// Adds a point; the slope then has the unit of `y` over that of `x`.
    pub(crate) fn add_point(&mut self, x: f64, y: f64) {
        self.points += 1.0;
        let (dx, dy) = (x - self.mean_x, y - self.mean_y);
        self.mean_x += dx / self.points;
        self.mean_y += dy / self.points;
        self.xx += dx * (x - self.mean_x);
        self.xy += dx * (y - self.mean_y);
        self.yy += dy * (y - self.mean_y);
    }

    /// Multiplies the weight of all points so far by `weight`, 0 to 1.
    pub(crate) fn fade(&mut self, weight: f64) {
        self.points *= weight;
        self.xx *= weight;
        self.xy *= weight;
        self.yy *= weight;
    }

    /// The slope; zero while there are fewer than two distinct times. With two points
    /// the error is unknown and zero.
    pub(crate) fn slope(&self) -> Slope {
        if self.points < 2.0 || self.xx <= f64::EPSILON * f64::EPSILON {
            return Slope::default();
        }
        let value = self.xy / self.xx;
        let residual = (self.yy - value * self.xy).max(0.0);
        let error = match self.points > 2.0 {
            true => (residual / (self.points - 2.0) / self.xx).sqrt(),
            false => 0.0,
        };
        Slope { value, error }
    }

    /// Mean of the values; zero without points.
    pub(crate) fn mean_s(&self) -> f64 {
        self.mean_y
    }

    /// Standard deviation of the values.
    pub(crate) fn deviation_s(&self) -> f64 {
        (self.yy.max(0.0) / self.points.max(1.0)).sqrt()
    }

    /// Root mean square of the residuals from the line.
    pub(crate) fn residual_s(&self) -> f64 {
        let explained = if self.xx > 0.0 { self.xy * self.xy / self.xx } else { 0.0 };
        ((self.yy - explained).max(0.0) / self.points.max(1.0)).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(points: &[(u64, u64)]) -> Slope {
        let mut regression = Regression::default();
        for (at, rtt) in points {
            regression.add(Duration::from_micros(*at), Duration::from_micros(*rtt));
        }
        regression.slope()
    }

    #[test]
    fn a_line_is_found_exactly() {
        let slope = line(&[(0, 100), (1000, 150), (2000, 200), (4000, 300)]);
        assert!((slope.value - 0.05).abs() < 1e-9, "{slope:?}");
        assert!(slope.error < 1e-6, "{slope:?}");
    }

    #[test]
    fn scatter_shows_in_the_error() {
        // Residuals -5, +10, -5 around a flat line: error = sqrt(150 / 1) / sqrt(2e6) us/us.
        let slope = line(&[(0, 95), (1000, 110), (2000, 95)]);
        assert!(slope.value.abs() < 1e-9, "{slope:?}");
        assert!((slope.error - (150.0_f64 / 2e6).sqrt()).abs() < 1e-6, "{slope:?}");
    }

    #[test]
    fn mean_deviation_and_residual_are_those_of_the_points() {
        let mut regression = Regression::default();
        for (at, rtt) in [(0, 95), (1000, 110), (2000, 95)] {
            regression.add(Duration::from_micros(at), Duration::from_micros(rtt));
        }
        assert!((regression.mean_s() - 100e-6).abs() < 1e-12);
        // The line is flat, so both are sqrt((25 + 100 + 25) / 3) us.
        assert!((regression.deviation_s() - 50_f64.sqrt() * 1e-6).abs() < 1e-12);
        assert!((regression.residual_s() - 50_f64.sqrt() * 1e-6).abs() < 1e-12);
    }

    #[test]
    fn what_has_faded_counts_less() {
        let mut regression = Regression::default();
        let slope = |regression: &mut Regression, slope: f64| {
            for x in [-2.0, -1.0, 1.0, 2.0] {
                regression.add_point(x, slope * x);
            }
            regression.slope().value
        };
        assert!((slope(&mut regression, 2.0) - 2.0).abs() < 1e-9);
        regression.fade(0.5);
        assert!((regression.slope().value - 2.0).abs() < 1e-9);
        assert!((slope(&mut regression, 8.0) - 6.0).abs() < 1e-9);
    }

    #[test]
    fn too_few_points_have_no_slope() {
        assert_eq!(line(&[]), Slope::default());
        assert_eq!(line(&[(5, 100)]), Slope::default());
        assert_eq!(line(&[(5, 100), (5, 900)]), Slope::default());
    }
}
