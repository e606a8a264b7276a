use std::sync::Arc;

use serde::de::Error;
use serde_json::{Map, Value};

use super::config::{NoiseFilter, PccConfig, StartUpKind, Steps};
use super::utility::Utility;
use crate::algorithm::{Algorithm, AlgorithmEntry};

/// The algorithms of this family.
pub(crate) const ENTRIES: &[AlgorithmEntry] = &[
    AlgorithmEntry {
        names: &["vivace-latency", "vivace"],
        summary: "Vivace: learns its rate from throughput, loss and the trend of the RTT",
        source: "PCC Vivace, NSDI 2018",
        make: |given| make(VIVACE_LATENCY, given),
    },
    AlgorithmEntry {
        names: &["vivace-loss"],
        summary: "Vivace without regard to the RTT",
        source: "PCC Vivace, NSDI 2018",
        make: |given| make(VIVACE_LOSS, given),
    },
    AlgorithmEntry {
        names: &["vivace-lte"],
        summary: "Vivace with little regard to the RTT, for mobile links",
        source: "PCC Vivace, NSDI 2018",
        make: |given| make(VIVACE_LTE, given),
    },
    AlgorithmEntry {
        names: &["vivace-weighted"],
        summary: "Vivace for a chosen share of the link",
        source: "PCC Vivace, NSDI 2018",
        make: |given| make(VIVACE_WEIGHTED, given),
    },
    AlgorithmEntry {
        names: &["proteus-p"],
        summary: "Proteus, primary: Vivace that counts no gain for a falling RTT",
        source: "PCC Proteus, SIGCOMM 2020",
        make: |given| make(PROTEUS_P, given),
    },
    AlgorithmEntry {
        names: &["proteus-s"],
        summary: "Proteus, scavenger: takes the bandwidth that other flows leave",
        source: "PCC Proteus, SIGCOMM 2020",
        make: |given| make(PROTEUS_S, given),
    },
    AlgorithmEntry {
        names: &["proteus-h"],
        summary: "Proteus, hybrid: primary up to a rate, scavenger above it",
        source: "PCC Proteus, SIGCOMM 2020",
        make: |given| make(PROTEUS_H, given),
    },
    AlgorithmEntry {
        names: &["allegro"],
        summary: "Allegro: throughput as long as loss stays below 5 %",
        source: "PCC, NSDI 2015",
        make: |given| make(ALLEGRO, given),
    },
    AlgorithmEntry {
        names: &["allegro-latency"],
        summary: "Allegro with regard to the RTT",
        source: "PCC, NSDI 2015",
        make: |given| make(ALLEGRO_LATENCY, given),
    },
];

/// Vivace (NSDI '18).
pub const VIVACE_LATENCY: PccConfig = vivace("vivace-latency", Utility::VIVACE_LATENCY);
/// Vivace that is not latency-sensitive: fills queues, and is not starved by flows that do.
pub const VIVACE_LOSS: PccConfig = vivace("vivace-loss", Utility::VIVACE_LOSS);
/// Vivace for cellular links.
pub const VIVACE_LTE: PccConfig = vivace("vivace-lte", Utility::VIVACE_LTE);
/// Vivace with a configured share of the bottleneck.
///
/// The gradient is almost flat around the equilibrium, so that steps must be as small as it, and
/// drop-tail must not favour one flow (docs/research/cc/pcc.md, `gap_spread`).
pub const VIVACE_WEIGHTED: PccConfig = PccConfig {
    min_change: 0.0,
    queued_increase_packets: None,
    queued_min_decrease: 0.0,
    queued_loss_errors: None,
    loss_window_growth: 0.5,
    gap_spread: 0.9,
    max_boundary_down_by_rtt: None,
    ..vivace("vivace-weighted", Utility::VIVACE_WEIGHTED)
};
/// Proteus as primary flow (SIGCOMM '20).
pub const PROTEUS_P: PccConfig = proteus("proteus-p", Utility::PROTEUS_P);
/// Proteus as scavenger, without bandwidth probes.
pub const PROTEUS_S: PccConfig =
    PccConfig { bandwidth_probe: false, ..proteus("proteus-s", Utility::PROTEUS_S) };
/// Proteus as primary flow up to a rate.
pub const PROTEUS_H: PccConfig = proteus("proteus-h", Utility::PROTEUS_H);
/// PCC Allegro (NSDI '15).
pub const ALLEGRO: PccConfig = allegro("allegro", Utility::Allegro {});
/// PCC Allegro with its latency-aware utility.
pub const ALLEGRO_LATENCY: PccConfig = allegro("allegro-latency", Utility::AllegroLatency {});

const fn vivace(name: &'static str, utility: Utility) -> PccConfig {
    PccConfig {
        noise_filter: NoiseFilter::Floors,
        gradient_errors: 2.0,
        loss_errors: 2.0,
        fall_at_loss: Some(0.1),
        burst_decrease: Some(0.7),
        max_boundary: Some(0.1),
        max_boundary_down: Some(0.1),
        max_boundary_down_by_rtt: Some(0.05),
        min_change: 0.005,
        queued_increase_packets: Some(2.0),
        queued_min_decrease: 0.05,
        queued_loss_errors: Some(1.0),
        base_rtt_window: true,
        queue_headroom_ms: 50.0,
        loss_window_s: 10.0,
        bandwidth_probe: true,
        initial_ignorance: true,
        start_from_delivered: true,
        ..published(name, utility)
    }
}

const fn proteus(name: &'static str, utility: Utility) -> PccConfig {
    PccConfig {
        noise_filter: NoiseFilter::Proteus,
        queued_increase_packets: None,
        queued_min_decrease: 0.0,
        queued_loss_errors: None,
        max_boundary_down_by_rtt: None,
        ..vivace(name, utility)
    }
}

/// Fixed steps have no boundary. The interval is NSDI '15, Section 3.1.
///
/// Start-up is Vivace's: otherwise one random loss in ten packets ends it at about 1 Mbit/s, and steps of
/// one per cent then take minutes.
const fn allegro(name: &'static str, utility: Utility) -> PccConfig {
    PccConfig {
        steps: Steps::Fixed,
        interval_round_trips: [1.7, 2.2],
        probe_step: 0.01,
        fall_at_loss: Some(0.1),
        burst_decrease: Some(0.7),
        base_rtt_window: true,
        loss_window_s: 10.0,
        initial_ignorance: true,
        start_from_delivered: true,
        ..published(name, utility)
    }
}

/// The paper's values (Table 1).
const fn published(name: &'static str, utility: Utility) -> PccConfig {
    PccConfig {
        name,
        utility,
        steps: Steps::Gradient,
        interval_round_trips: [1.0, 1.0],
        probe_step: 0.05,
        conversion_factor: 1.0,
        boundary_start: 0.05,
        boundary_step: 0.1,
        max_boundary: None,
        max_boundary_down: None,
        max_boundary_down_by_rtt: None,
        min_change: 0.0,
        queued_increase_packets: None,
        queued_min_decrease: 0.0,
        queued_loss_errors: None,
        min_change_mbps: 0.0,
        min_probe_mbps: 0.0,
        agreeing_pairs: false,
        pooled_loss: 0.0,
        gradient_filter: 0.01,
        gradient_quantum: 0.0,
        gradient_errors: 0.0,
        loss_errors: 0.0,
        double_check: true,
        double_check_loss: 0.0,
        fall_at_loss: None,
        burst_decrease: None,
        halve_at_loss: None,
        interval_timeout: true,
        gap_spread: 0.0,
        base_rtt_window: false,
        loss_window_s: 0.0,
        loss_window_growth: 1.0,
        queue_headroom_ms: 100.0,
        noise_filter: NoiseFilter::None,
        bandwidth_probe: false,
        initial_rate_mbps: None,
        initial_window_packets: None,
        start_up: StartUpKind::Doubling,
        initial_ignorance: false,
        start_from_delivered: false,
    }
}

impl PccConfig {
    /// The same member with the constants of its paper and nothing beyond them.
    #[must_use]
    pub fn as_published(self) -> Self {
        let papers = published(self.name, self.utility);
        Self {
            steps: self.steps,
            interval_round_trips: self.interval_round_trips,
            probe_step: self.probe_step,
            noise_filter: match self.noise_filter {
                NoiseFilter::Proteus => NoiseFilter::Proteus,
                NoiseFilter::None | NoiseFilter::Floors => NoiseFilter::None,
            },
            initial_window_packets: Some(INITIAL_WINDOW_PACKETS),
            ..papers
        }
    }

    /// A member of Vivace with the rules of the authors' code, where they differ from the paper; `None` for other
    /// members, which the code does not have.
    ///
    /// Source: `PCCproject/PCC-Uspace`, branch NSDI-2018, commit 98ac94623da656b4776a53359a36d10c0a27fab5, whose
    /// behaviour is described in docs/research/cc/pcc.md; no code of it is here. Not modelled: its steps while the
    /// rate moves (gradients between successive rates), its steeper amplifier after several steps, and its window.
    #[must_use]
    pub fn as_nsdi18_code(self) -> Option<Self> {
        let Utility::Vivace { exponent, latency_weight, loss_weight, .. } = self.utility else {
            return None;
        };
        let latency_weight = match self.utility == Utility::VIVACE_LATENCY {
            true => CODE_LATENCY_WEIGHT,
            false => latency_weight,
        };
        Some(Self {
            utility: Utility::Vivace { exponent, latency_weight, loss_weight, loss_knee: 0.03 },
            agreeing_pairs: true,
            pooled_loss: 0.01,
            gradient_filter: 0.0,
            gradient_quantum: 0.02,
            min_change_mbps: 0.5,
            min_probe_mbps: 0.5,
            boundary_step: 0.06,
            double_check_loss: 0.05,
            halve_at_loss: Some(0.5),
            interval_timeout: false,
            initial_rate_mbps: Some(1.6),
            initial_ignorance: true,
            ..self.as_published()
        })
    }
}

/// Initial window of the papers' time (RFC 6928, Section 2), for presets that reproduce them.
const INITIAL_WINDOW_PACKETS: u64 = 10;
/// b of Vivace-Latency in the authors' code, for rates in Mibit/s.
const CODE_LATENCY_WEIGHT: f64 = 11_330.0;

/// `preset` (`default`, `published` or `nsdi18-code`) gives the values that the other parameters override. A utility's
/// fields are parameters of the member.
fn make(member: PccConfig, mut given: Map<String, Value>) -> Result<Algorithm, serde_json::Error> {
    let base = match given.remove("preset") {
        None => member,
        Some(preset) => match preset.as_str() {
            Some("default") => member,
            Some("published") => member.as_published(),
            Some("nsdi18-code") => member.as_nsdi18_code().ok_or_else(|| {
                serde_json::Error::custom("preset \"nsdi18-code\" is of vivace members only")
            })?,
            _ => {
                let presets = "\"default\", \"published\" or \"nsdi18-code\"";
                return Err(Error::custom(format!("preset must be {presets}")));
            }
        },
    };
    let mut all = serde_json::to_value(base)?;
    for (name, value) in given {
        let of_utility = name != "form" && all["utility"].get(&name).is_some();
        let fields = if of_utility { &mut all["utility"] } else { &mut all };
        fields[name.as_str()] = value;
    }
    let mut config: PccConfig = serde_json::from_value(all)?;
    config.name = base.name;
    match config.fault() {
        Some(fault) => Err(Error::custom(fault)),
        None => Ok(Algorithm::Controller(Arc::new(config))),
    }
}

#[cfg(test)]
mod tests {
    use crate::registry::{self, Spec};

    fn settings(spec: &Spec) -> String {
        match registry::find(spec).expect("a possible member") {
            registry::Algorithm::Controller(config) => format!("{config:?}"),
            registry::Algorithm::Transport { .. } => unreachable!("of this crate"),
        }
    }

    #[test]
    fn settings_of_the_member_and_of_its_utility_are_set_by_name() {
        let spec = Spec::named("vivace-weighted").with("share", 0.25).with("boundary_start", 0.07);
        let settings =
            settings(&spec.with("noise_filter", "proteus").with("start_up", "pipelined"));
        for part in ["share: 0.25", "boundary_start: 0.07", "Proteus", "Pipelined"] {
            assert!(settings.contains(part), "{part}: {settings}");
        }
    }

    #[test]
    fn parameters_override_the_preset() {
        let published = Spec::named("vivace").with("preset", "published");
        assert!(settings(&published).contains("max_boundary: None"));
        let changed = settings(&published.with("conversion_factor", 1.5));
        assert!(changed.contains("conversion_factor: 1.5") && changed.contains("loss_errors: 0.0"));
    }

    #[test]
    fn the_preset_of_the_authors_code_is_of_vivace_with_its_constants() {
        let code = |name: &str| Spec::named(name).with("preset", "nsdi18-code");
        let latency = settings(&code("vivace-latency"));
        for part in
            ["latency_weight: 11330.0", "loss_knee: 0.03", "agreeing_pairs: true", "Some(1.6)"]
        {
            assert!(latency.contains(part), "{part}: {latency}");
        }
        assert!(settings(&code("vivace-loss")).contains("latency_weight: 0.0"));
        assert!(settings(&code("vivace-loss").with("loss_knee", 0.05)).contains("loss_knee: 0.05"));
        for name in ["vivace-weighted", "proteus-p", "allegro"] {
            let error = registry::find(&code(name)).expect_err(name).to_string();
            assert!(error.contains("of vivace members only"), "{error}");
        }
    }

    #[test]
    fn invalid_parameters_are_named_in_the_error() {
        let error = |name: &str, parameter: &str, value: serde_json::Value| {
            let spec = Spec::named(name).with(parameter, value);
            registry::find(&spec).expect_err(parameter).to_string()
        };
        assert!(error("vivace-weighted", "share", 0.0.into()).contains("share"));
        assert!(error("vivace-latency", "share", 0.5.into()).contains("share"));
        assert!(error("vivace-latency", "form", "allegro".into()).contains("form"));
        assert!(error("allegro", "probe_step", 0.9.into()).contains("probe_step"));
        assert!(error("proteus-s", "preset", "paper".into()).contains("published"));
        assert!(error("vivace-loss", "max_boundary", (-1.0).into()).contains("below 0"));
    }
}
