use std::fmt;
use std::time::Duration;

/// A rate in bits per second, with exact integer arithmetic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bandwidth(u64);

const NS_PER_S: u128 = 1_000_000_000;

impl Bandwidth {
    /// Nothing per second.
    pub const ZERO: Self = Self(0);

    /// `bps` bits per second.
    pub const fn from_bits_per_s(bps: u64) -> Self {
        Self(bps)
    }

    /// `rate` bytes per second.
    pub const fn from_bytes_per_s(rate: u64) -> Self {
        Self(rate.saturating_mul(8))
    }

    /// `mbps` times 10^6 bits per second; not-a-number and negative values are zero.
    pub fn from_mbps(mbps: f64) -> Self {
        Self(rounded(mbps * 1e6))
    }

    /// The rate at which `bytes` take `time`; zero when no time passed.
    pub fn from_bytes_and_time(bytes: u64, time: Duration) -> Self {
        match time.as_nanos() {
            0 => Self::ZERO,
            ns => Self(ratio(u128::from(bytes) * 8 * NS_PER_S, ns)),
        }
    }

    /// Bits per second.
    pub const fn bits_per_s(self) -> u64 {
        self.0
    }

    /// Bytes per second, rounded down.
    pub const fn bytes_per_s(self) -> u64 {
        self.0 / 8
    }

    /// 10^6 bits per second.
    pub fn mbps(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// How many whole bytes go out in `time`.
    pub fn bytes_in(self, time: Duration) -> u64 {
        let ns = time.as_nanos();
        match u64::try_from(ns).ok().and_then(|ns| self.0.checked_mul(ns)) {
            Some(bit_ns) => bit_ns / (8 * NS_PER_S as u64),
            None => clamp(u128::from(self.0).saturating_mul(ns) / (8 * NS_PER_S)),
        }
    }

    /// How long `bytes` take, rounded up to a nanosecond; [`Duration::MAX`] at rate zero.
    pub fn time_for(self, bytes: u64) -> Duration {
        if self.0 == 0 {
            return Duration::MAX;
        }
        Duration::from_nanos(match bytes.checked_mul(8 * NS_PER_S as u64) {
            Some(bit_ns) => bit_ns.div_ceil(self.0),
            None => clamp((u128::from(bytes) * 8 * NS_PER_S).div_ceil(u128::from(self.0))),
        })
    }

    /// This rate times a gain that has no unit.
    pub fn scaled(self, gain: f64) -> Self {
        Self(rounded(self.0 as f64 * gain))
    }
}

impl fmt::Display for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} Mbit/s", self.mbps())
    }
}

/// Most quotients are of 64 bits, which a processor divides several times faster.
fn ratio(numerator: u128, denominator: u128) -> u64 {
    match (u64::try_from(numerator), u64::try_from(denominator)) {
        (Ok(numerator), Ok(denominator)) => numerator / denominator,
        _ => clamp(numerator / denominator),
    }
}

/// `value.round() as u64`: the baseline of x86-64 has no rounding instruction, and calls a function for it.
fn rounded(value: f64) -> u64 {
    let whole = value as u64;
    whole.saturating_add(u64::from(value - whole as f64 >= 0.5))
}

fn clamp(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_times_time_is_bytes_and_back() {
        let rate = Bandwidth::from_mbps(12.0);
        assert_eq!(rate.bytes_in(Duration::from_millis(1)), 1500);
        assert_eq!(rate.time_for(1500), Duration::from_millis(1));
        assert_eq!(Bandwidth::from_bytes_and_time(1500, Duration::from_millis(1)), rate);
    }

    #[test]
    fn extremes_saturate_and_do_not_wrap() {
        let fastest = Bandwidth::from_bits_per_s(u64::MAX);
        assert_eq!(fastest.bytes_in(Duration::MAX), u64::MAX);
        assert_eq!(Bandwidth::ZERO.time_for(1), Duration::MAX);
        assert_eq!(Bandwidth::from_bytes_and_time(1, Duration::ZERO), Bandwidth::ZERO);
        assert_eq!(Bandwidth::from_mbps(f64::NAN), Bandwidth::ZERO);
        assert_eq!(Bandwidth::from_mbps(-1.0), Bandwidth::ZERO);
    }

    #[test]
    fn rounding_is_that_of_the_standard_library() {
        let half = 0.5_f64;
        let edges = [
            0.0,
            -0.0,
            half,
            half.next_down(),
            half.next_up(),
            -0.5,
            -1.5,
            1.5,
            2.5,
            1e9 + 0.5,
            f64::MIN_POSITIVE,
            f64::MAX,
            f64::MIN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
        ];
        let powers = (0..=66).map(|bits| 2_f64.powi(bits));
        let near_powers = powers.flat_map(|power| {
            [power.next_down(), power, power.next_up(), power - 0.5, power + 0.5]
        });
        for value in edges.into_iter().chain(near_powers) {
            assert_eq!(rounded(value), value.round() as u64, "{value:e}");
        }
    }

    #[test]
    fn narrow_and_wide_arithmetic_agree() {
        let sizes = (0..64).map(|bits| (1_u64 << bits) - 1).chain([1350, 8_000_000_001]);
        for bytes in sizes.clone() {
            for rate in sizes.clone().filter(|rate| *rate > 0) {
                let rate_bps = Bandwidth::from_bits_per_s(rate);
                let time = (u128::from(bytes) * 8 * NS_PER_S).div_ceil(u128::from(rate));
                assert_eq!(rate_bps.time_for(bytes), Duration::from_nanos(clamp(time)));
                let carried = u128::from(rate) * u128::from(bytes) / (8 * NS_PER_S);
                assert_eq!(rate_bps.bytes_in(Duration::from_nanos(bytes)), clamp(carried));
            }
        }
    }

    #[test]
    fn sending_never_takes_less_than_its_time() {
        let rate = Bandwidth::from_bits_per_s(3);
        assert_eq!(rate.time_for(1), Duration::from_nanos(2_666_666_667));
    }
}
