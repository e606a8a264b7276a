use serde::{Deserialize, Serialize};

use crate::Tuning;

/// alpha, the steepness of the sigmoid (PCC, NSDI '15, Section 2.2: at least 100).
const LOSS_STEEPNESS: f64 = 100.0;
/// Loss that Allegro tolerates (PCC, NSDI '15, Section 2.2).
const TOLERATED_LOSS: f64 = 0.05;
/// Steepness of the latency term of Allegro-Latency (PCC, NSDI '15, Section 4.4).
const LATENCY_STEEPNESS: f64 = 10.0;

/// Measurements of one monitor interval after noise filters.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct FilteredOutcome {
    /// Rate as actually sent, 10^6 bit/s.
    pub(super) rate_mbps: f64,
    /// Share of its packets that were lost.
    pub(super) loss: f64,
    /// RTT gradient, s/s.
    pub(super) gradient: f64,
    /// Standard deviation of its RTTs, s.
    pub(super) deviation_s: f64,
    /// Mean of its RTTs, s; zero if it had none.
    pub(super) rtt_s: f64,
    /// Mean RTT of the previous interval, s; zero if it had none.
    pub(super) previous_rtt_s: f64,
}

/// The objective of a member of the family.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "form", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Utility {
    /// x^t - b x g - c x L: Eq. 1 of the Vivace paper (NSDI '18, Section 3; written out in the
    /// talk's slides). Socially concave for t < 1, hence one fair equilibrium (Theorem 1).
    Vivace {
        /// t: exponent of the rate.
        exponent: f64,
        /// b: weight of the RTT gradient g.
        latency_weight: f64,
        /// c: weight of the loss rate L.
        loss_weight: f64,
        /// Loss rate up to which the weight is 1. The paper has 0.
        loss_knee: f64,
    },
    /// x - c_i x (1 / (1 - L) - 1) with c_i = C / x_i* = 1 / share: Eq. 3 and Theorem 4.
    Weighted {
        /// x_i* / C: the share of the bottleneck that this flow is to have, above 0 to 1.
        share: f64,
    },
    /// Proteus-P (SIGCOMM '20, Section 4): Eq. 1, but a falling RTT does not increase utility.
    ProteusPrimary {
        /// t, as in Eq. 1.
        exponent: f64,
        /// b, as in Eq. 1.
        latency_weight: f64,
        /// c, as in Eq. 1.
        loss_weight: f64,
    },
    /// Proteus-S (SIGCOMM '20, Section 4): a scavenger. RTT variation lowers utility: competing flows
    /// cause it before they fill a queue.
    ProteusScavenger {
        /// t, as in Eq. 1.
        exponent: f64,
        /// b, as in Eq. 1.
        latency_weight: f64,
        /// c, as in Eq. 1.
        loss_weight: f64,
        /// d: weight of the RTT's standard deviation in seconds.
        deviation_weight: f64,
    },
    /// Proteus-H (SIGCOMM '20, Section 4): Proteus-P up to a rate, a scavenger above it.
    ProteusHybrid {
        /// t, as in Eq. 1.
        exponent: f64,
        /// b, as in Eq. 1.
        latency_weight: f64,
        /// c, as in Eq. 1.
        loss_weight: f64,
        /// d, as in Proteus-S.
        deviation_weight: f64,
        /// The rate above which it yields, 10^6 bit/s.
        yield_above_mbps: f64,
    },
    /// T sigmoid(L - 0.05) - x L with T = x (1 - L): PCC Allegro (NSDI '15, Section 2.2).
    Allegro {},
    /// Allegro's utility, lower for an RTT that has grown, divided by the RTT: what the Vivace paper calls
    /// Allegro-Latency (PCC, NSDI '15, Section 4.4). No equilibrium is proven for it.
    AllegroLatency {},
}

impl Utility {
    /// Vivace-Latency (Section 5): b = 900 so that up to 1000 senders on 1000 Mbit/s
    /// inflate no latency in theory (Theorem 2), c = 11.35 to tolerate 5 % random loss
    /// (c = t C^(t-1) / p, Section 3.2).
    pub const VIVACE_LATENCY: Self = Self::vivace(900.0);
    /// Vivace-Loss (Section 5): not latency-sensitive.
    pub const VIVACE_LOSS: Self = Self::vivace(0.0);
    /// For cellular links, with few competing flows and noisy RTTs (Section 5.1.4).
    pub const VIVACE_LTE: Self = Self::vivace(2.0);
    /// The whole bottleneck; `share` configures less.
    pub const VIVACE_WEIGHTED: Self = Self::Weighted { share: 1.0 };
    /// The weights of Vivace-Latency.
    pub const PROTEUS_P: Self =
        Self::ProteusPrimary { exponent: 0.9, latency_weight: 900.0, loss_weight: 11.35 };
    /// d = 1500.
    pub const PROTEUS_S: Self = Self::ProteusScavenger {
        exponent: 0.9,
        latency_weight: 900.0,
        loss_weight: 11.35,
        deviation_weight: 1500.0,
    };
    /// Yields above 10 Mbit/s by default: more than a video of one screen needs.
    pub const PROTEUS_H: Self = Self::ProteusHybrid {
        exponent: 0.9,
        latency_weight: 900.0,
        loss_weight: 11.35,
        deviation_weight: 1500.0,
        yield_above_mbps: 10.0,
    };

    const fn vivace(latency_weight: f64) -> Self {
        Self::Vivace { exponent: 0.9, latency_weight, loss_weight: 11.35, loss_knee: 0.0 }
    }

    /// The utility of what was observed.
    pub(super) fn of(&self, seen: &FilteredOutcome) -> f64 {
        let rate = seen.rate_mbps;
        let eq1 = |exponent: f64, latency_weight: f64, loss_weight: f64, gradient: f64| {
            libm::pow(rate, exponent)
                - latency_weight * rate * gradient
                - loss_weight * rate * seen.loss
        };
        let rising = seen.gradient.max(0.0);
        match *self {
            Self::Vivace { exponent, latency_weight, loss_weight, loss_knee } => {
                let weight = if seen.loss <= loss_knee { 1.0 } else { loss_weight };
                eq1(exponent, latency_weight, weight, seen.gradient)
            }
            Self::Weighted { share } => {
                let arrived = (1.0 - seen.loss).max(1e-3);
                rate - rate / share * (1.0 / arrived - 1.0)
            }
            Self::ProteusPrimary { exponent, latency_weight, loss_weight } => {
                eq1(exponent, latency_weight, loss_weight, rising)
            }
            Self::ProteusScavenger { exponent, latency_weight, loss_weight, deviation_weight } => {
                eq1(exponent, latency_weight, loss_weight, rising)
                    - deviation_weight * rate * seen.deviation_s
            }
            Self::ProteusHybrid {
                exponent,
                latency_weight,
                loss_weight,
                deviation_weight,
                yield_above_mbps,
            } => {
                let yields = if rate < yield_above_mbps { 0.0 } else { deviation_weight };
                eq1(exponent, latency_weight, loss_weight, rising)
                    - yields * rate * seen.deviation_s
            }
            Self::Allegro {} => allegro(rate, seen.loss, 1.0),
            Self::AllegroLatency {} => allegro_latency(seen),
        }
    }

    /// Whether a queue lowers utility before it overflows.
    pub(super) fn is_latency_sensitive(&self) -> bool {
        match *self {
            Self::Vivace { latency_weight, .. }
            | Self::ProteusPrimary { latency_weight, .. }
            | Self::ProteusScavenger { latency_weight, .. }
            | Self::ProteusHybrid { latency_weight, .. } => latency_weight > 0.0,
            Self::Weighted { .. } | Self::Allegro {} => false,
            Self::AllegroLatency {} => true,
        }
    }

    /// Changes the objective. Returns whether this utility supports that.
    pub(super) fn tune(&mut self, tuning: Tuning) -> bool {
        match (self, tuning) {
            (Self::Weighted { share }, Tuning::Share(wanted)) if wanted > 0.0 && wanted <= 1.0 => {
                *share = wanted;
                true
            }
            (Self::ProteusHybrid { yield_above_mbps, .. }, Tuning::YieldAbove(rate)) => {
                *yield_above_mbps = rate.mbps();
                true
            }
            _ => false,
        }
    }

    /// Why these settings are invalid; `None` if they are valid.
    pub(super) fn fault(&self) -> Option<&'static str> {
        match *self {
            Self::Weighted { share } if !(share > 0.0 && share <= 1.0) => {
                Some("share must be above 0 and at most 1")
            }
            Self::ProteusHybrid { yield_above_mbps, .. } if yield_above_mbps.is_nan() => {
                Some("yield_above_mbps must be a rate")
            }
            _ => None,
        }
    }
}

fn allegro(rate: f64, loss: f64, latency: f64) -> f64 {
    let tolerance = 1.0 / (1.0 + libm::exp(LOSS_STEEPNESS * (loss - TOLERATED_LOSS)));
    rate * (1.0 - loss) * tolerance * latency - rate * loss
}

fn allegro_latency(seen: &FilteredOutcome) -> f64 {
    if seen.rtt_s <= 0.0 {
        return allegro(seen.rate_mbps, seen.loss, 0.5);
    }
    let before = if seen.previous_rtt_s > 0.0 { seen.previous_rtt_s } else { seen.rtt_s };
    let growth = 1.0 - before / seen.rtt_s;
    let latency = 1.0 - 1.0 / (1.0 + libm::exp(-LATENCY_STEEPNESS * growth));
    allegro(seen.rate_mbps, seen.loss, latency) / seen.rtt_s
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(utility: Utility, rate_mbps: f64, gradient: f64, loss: f64) -> f64 {
        utility.of(&FilteredOutcome { rate_mbps, gradient, loss, ..FilteredOutcome::default() })
    }

    fn close(value: f64, wanted: f64) {
        assert!((value - wanted).abs() < 1e-3 * wanted.abs().max(1.0) / 10.0, "{value} {wanted}");
    }

    #[test]
    fn check_values_of_equation_1() {
        let latency = |gradient, loss| of(Utility::VIVACE_LATENCY, 100.0, gradient, loss);
        close(latency(0.0, 0.0), 63.0957);
        close(latency(0.01, 0.0), -836.904);
        close(latency(-0.01, 0.0), 963.0957);
        close(latency(0.0, 0.05), 6.3457);
        close(of(Utility::VIVACE_LOSS, 100.0, 0.01, 0.05), 6.3457);
        close(of(Utility::VIVACE_LTE, 100.0, 0.01, 0.0), 61.0957);
    }

    #[test]
    fn equation_3_has_its_maximum_at_the_share() {
        // Two flows of 75 and 25 on 100: the effect of one more or less on each at S = C.
        let loss = |sum: f64| (1.0 - 100.0 / sum).max(0.0);
        for (share, at) in [(0.75, 75.0), (0.25, 25.0)] {
            let utility = Utility::Weighted { share };
            let with = |rate: f64| of(utility, rate, 0.0, loss(100.0 - at + rate));
            assert!(with(at) > with(at - 1.0) && with(at) > with(at + 1.0), "{share}");
        }
        // Eq. 3 by hand: 100 - 2 * 100 * (1 / 0.9 - 1).
        close(of(Utility::Weighted { share: 0.5 }, 100.0, 0.0, 0.1), 77.7778);
    }

    #[test]
    fn proteus_yields_to_rtt_variation_and_ignores_a_falling_rtt() {
        let seen =
            FilteredOutcome { rate_mbps: 100.0, deviation_s: 0.001, ..FilteredOutcome::default() };
        close(Utility::PROTEUS_P.of(&seen), 63.0957);
        close(Utility::PROTEUS_S.of(&seen), 63.0957 - 150.0);
        close(Utility::PROTEUS_H.of(&seen), 63.0957 - 150.0);
        let slow = FilteredOutcome { rate_mbps: 9.0, ..seen };
        close(Utility::PROTEUS_H.of(&slow), Utility::PROTEUS_P.of(&slow));
        close(of(Utility::PROTEUS_P, 100.0, -0.01, 0.0), 63.0957);
        close(of(Utility::PROTEUS_P, 100.0, 0.01, 0.05), 6.3457 - 900.0);
    }

    #[test]
    fn check_values_of_allegro() {
        let values = [(0.0, 99.3307), (0.01, 96.2194), (0.05, 42.5), (0.06, 19.2805)];
        for (loss, wanted) in values {
            close(of(Utility::Allegro {}, 100.0, 0.0, loss), wanted);
        }
    }

    #[test]
    fn allegro_latency_wants_a_short_and_steady_rtt() {
        let of = |rtt_s, previous_rtt_s| {
            let seen = FilteredOutcome {
                rate_mbps: 100.0,
                rtt_s,
                previous_rtt_s,
                ..FilteredOutcome::default()
            };
            Utility::AllegroLatency {}.of(&seen)
        };
        // 99.3307 / 2 / 0.03 with a steady RTT of 30 ms.
        close(of(0.03, 0.03), 1655.512);
        assert!(of(0.03, 0.03) > of(0.04, 0.04) && of(0.04, 0.04) > of(0.04, 0.03));
        assert!(of(0.03, 0.03) == of(0.03, 0.0), "nothing to compare with yet");
    }

    #[test]
    fn only_what_a_utility_has_can_be_tuned() {
        let mut weighted = Utility::VIVACE_WEIGHTED;
        assert!(weighted.tune(Tuning::Share(0.25)));
        assert_eq!(weighted, Utility::Weighted { share: 0.25 });
        assert!(!weighted.tune(Tuning::Share(0.0)) && !weighted.tune(Tuning::Share(1.5)));
        let above = Tuning::YieldAbove(crate::Bandwidth::from_mbps(4.0));
        assert!(!weighted.tune(above));
        let mut hybrid = Utility::PROTEUS_H;
        assert!(hybrid.tune(above) && !hybrid.tune(Tuning::Share(0.5)));
        let seen =
            FilteredOutcome { rate_mbps: 5.0, deviation_s: 0.1, ..FilteredOutcome::default() };
        close(hybrid.of(&seen), 5.0_f64.powf(0.9) - 750.0);
    }
}
