use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// A moment, as nanoseconds since an epoch that the driver chooses and keeps
/// for the whole life of a connection. Never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The epoch itself.
    pub const ZERO: Self = Self(0);

    /// A moment `ns` nanoseconds after the epoch.
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since the epoch.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds since the epoch.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Time that passed since `earlier`; zero if that lies ahead.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, after: Duration) -> Self {
        let ns = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(ns))
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, after: Duration) {
        *self = *self + after;
    }
}

impl Sub for Time {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_never_go_below_zero() {
        let (a, b) = (Time::from_nanos(5), Time::from_nanos(8));
        assert_eq!(b - a, Duration::from_nanos(3));
        assert_eq!(a - b, Duration::ZERO);
    }

    #[test]
    fn the_end_of_time_is_not_passed() {
        assert_eq!(Time::ZERO + Duration::MAX, Time::from_nanos(u64::MAX));
    }
}
