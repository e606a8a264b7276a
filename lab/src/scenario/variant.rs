//! Other settings of the algorithms than a scenario's: those of a paper, of its authors' code, of its year.

use millrace_cc::registry::{self, Spec};
use serde::Serialize;
use serde_json::Value;

/// Algorithms that the papers are about begin with one of these; all others are baselines.
const SUBJECTS: [&str; 2] = ["vivace", "iris"];
/// They have `paced`, and the kernels of 2018 did not pace them.
pub(super) const WINDOW_BASELINES: [&str; 6] =
    ["cubic", "reno", "vegas", "illinois", "hybla", "westwood"];
/// They have the preset `published`.
pub(super) const PCC_BASELINES: [&str; 2] = ["allegro", "allegro-latency"];

/// Which settings the algorithms of a scenario have instead of their defaults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct AlgorithmVariant {
    /// Of the members of Vivace and Iris that have this preset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<AlgorithmPreset>,
    /// Of the algorithms that they are compared with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baselines: Option<BaselineSettings>,
}

/// Value of the parameter `preset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
pub enum AlgorithmPreset {
    /// Constants and rules of the paper
    #[serde(rename = "published")]
    Published,
    /// Rules of the code that Vivace's authors released; Iris has no such code
    #[serde(rename = "nsdi18-code")]
    #[value(name = "nsdi18-code")]
    Nsdi18Code,
}

/// Settings of the algorithms that papers compare theirs with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
pub enum BaselineSettings {
    /// CUBIC, Reno, Vegas, Illinois, Hybla and Westwood+ do not pace, Allegro has the start-up of its paper
    #[serde(rename = "2018")]
    #[value(name = "2018")]
    Of2018,
    /// The same, and BBR has no policer detection
    #[serde(rename = "2018-no-policer")]
    #[value(name = "2018-no-policer")]
    Of2018WithoutPolicer,
}

impl AlgorithmPreset {
    /// Its value in scenario files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::Nsdi18Code => "nsdi18-code",
        }
    }

    /// The preset of this name; `None` of no preset.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Published, Self::Nsdi18Code].into_iter().find(|preset| preset.name() == name)
    }

    /// Whether an algorithm of the papers has it.
    #[must_use]
    pub fn is_of(self, cc: &str) -> bool {
        let spec = Spec::named(cc).with("preset", self.name());
        SUBJECTS.iter().any(|subject| cc.starts_with(subject)) && registry::find(&spec).is_ok()
    }

    pub(super) fn parameter(self, cc: &str) -> Option<(&'static str, Value)> {
        self.is_of(cc).then(|| ("preset", self.name().into()))
    }
}

impl BaselineSettings {
    pub(super) fn parameter(self, cc: &str) -> Option<(&'static str, Value)> {
        match cc {
            _ if WINDOW_BASELINES.contains(&cc) => Some(("paced", false.into())),
            _ if PCC_BASELINES.contains(&cc) => {
                Some(("preset", AlgorithmPreset::Published.name().into()))
            }
            "bbr" if self == Self::Of2018WithoutPolicer => {
                Some(("policer_detection", false.into()))
            }
            _ => None,
        }
    }
}
