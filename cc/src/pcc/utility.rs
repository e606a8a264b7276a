/// u(x, g, L) = x^t - b x g - c x L: Eq. 1 of the Vivace paper (NSDI '18, Section 3; written
/// out in the talk's slides). Socially concave for t < 1, hence one fair equilibrium
/// (Theorem 1).
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Utility {
    /// t: how much more rate is worth.
    pub exponent: f64,
    /// b: weight of the RTT gradient.
    pub latency_weight: f64,
    /// c: weight of loss.
    pub loss_weight: f64,
}

impl Utility {
    /// Vivace-Latency (Section 5): b = 900 so that up to 1000 senders on 1000 Mbit/s
    /// inflate no latency in theory (Theorem 2), c = 11.35 to endure 5 % random loss
    /// (c = t C^(t-1) / p, Section 3.2).
    pub const LATENCY: Self = Self { exponent: 0.9, latency_weight: 900.0, loss_weight: 11.35 };

    /// The utility of sending `rate_mbps` (10^6 bit/s, as actually sent) that met the RTT
    /// gradient `gradient` (s/s) and lost the fraction `loss` of its packets.
    pub fn of(&self, rate_mbps: f64, gradient: f64, loss: f64) -> f64 {
        rate_mbps.powf(self.exponent)
            - self.latency_weight * rate_mbps * gradient
            - self.loss_weight * rate_mbps * loss
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_values_of_equation_1() {
        let of = |gradient, loss| Utility::LATENCY.of(100.0, gradient, loss);
        assert!((of(0.0, 0.0) - 63.0957).abs() < 1e-3);
        assert!((of(0.01, 0.0) + 836.904).abs() < 1e-3);
        assert!((of(0.0, 0.05) - 6.3457).abs() < 1e-3);
    }
}
