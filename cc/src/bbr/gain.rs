use crate::Bandwidth;

/// A factor without unit, as the exact ratio that it is defined by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gain {
    numerator: u32,
    denominator: u32,
}

impl Gain {
    pub(super) const ONE: Self = Self::new(1, 1);

    pub(super) const fn new(numerator: u32, denominator: u32) -> Self {
        assert!(denominator > 0);
        Self { numerator, denominator }
    }

    pub(super) const fn inverse(self) -> Self {
        Self::new(self.denominator, self.numerator)
    }

    /// One less this.
    pub(super) const fn complement(self) -> Self {
        Self::new(self.denominator - self.numerator, self.denominator)
    }

    pub(super) fn of_bytes(self, bytes: u64) -> u64 {
        match bytes.checked_mul(u64::from(self.numerator)) {
            Some(product) => product / u64::from(self.denominator),
            None => {
                let product = u128::from(bytes) * u128::from(self.numerator);
                u64::try_from(product / u128::from(self.denominator)).unwrap_or(u64::MAX)
            }
        }
    }

    pub(super) fn of_rate(self, rate: Bandwidth) -> Bandwidth {
        Bandwidth::from_bits_per_s(self.of_bytes(rate.bits_per_s()))
    }

    pub(super) const fn is_above_one(self) -> bool {
        self.numerator > self.denominator
    }

    pub(super) const fn is_below_one(self) -> bool {
        self.numerator < self.denominator
    }

    pub(super) fn as_f64(self) -> f64 {
        f64::from(self.numerator) / f64::from(self.denominator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gain_is_exact_and_does_not_wrap() {
        let gain = Gain::new(5, 4);
        assert_eq!(gain.of_bytes(1_000_001), 1_250_001);
        assert_eq!(gain.of_rate(Bandwidth::from_mbps(80.0)), Bandwidth::from_mbps(100.0));
        assert_eq!(gain.of_bytes(u64::MAX), u64::MAX);
        assert!(gain.is_above_one() && !gain.is_below_one());
        assert!(!Gain::ONE.is_above_one() && !Gain::ONE.is_below_one());
        assert_eq!(Gain::new(3, 4).as_f64(), 0.75);
    }
}
