//! Algorithms by name.

use std::sync::Arc;

use crate::pcc::VivaceConfig;
use crate::{Bandwidth, ConstantConfig, ControllerConfig};

/// An algorithm that a connection can use.
#[derive(Clone, Debug)]
pub enum Algorithm {
    /// One that the QUIC implementation brings with it.
    Transport {
        /// Our name.
        name: &'static str,
        /// The implementation's name.
        quiche_name: &'static str,
    },
    /// One of this crate.
    Controller(Arc<dyn ControllerConfig>),
}

impl Algorithm {
    /// The name in configurations, scenarios and results.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Transport { name, .. } => name,
            Self::Controller(config) => config.name(),
        }
    }
}

/// A name with its parameters, as a configuration gives it.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// One of [`NAMES`].
    pub name: String,
    /// For `constant`: its rate.
    pub rate: Option<Bandwidth>,
}

impl Spec {
    /// An algorithm with its default parameters.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), rate: None }
    }
}

/// All names that [`find`] knows, aliases included.
pub const NAMES: &[&str] = &["bbr2", "constant", "cubic", "vivace", "vivace-latency"];

/// Why a [`Spec`] names no algorithm.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// No algorithm has this name.
    #[error("unknown congestion control {name:?}; known are {}", NAMES.join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// `constant` without a rate.
    #[error("congestion control \"constant\" needs rate_mbps, greater than 0")]
    NoRate,
}

/// The algorithm that `spec` names.
///
/// # Errors
/// [`Error::Unknown`] lists the known names; [`Error::NoRate`] when `constant` has no rate.
pub fn find(spec: &Spec) -> Result<Algorithm, Error> {
    match spec.name.as_str() {
        "cubic" => Ok(Algorithm::Transport { name: "cubic", quiche_name: "cubic" }),
        "bbr2" => Ok(Algorithm::Transport { name: "bbr2", quiche_name: "bbr2_gcongestion" }),
        "constant" => {
            let rate = spec.rate.filter(|rate| *rate > Bandwidth::ZERO).ok_or(Error::NoRate)?;
            Ok(Algorithm::Controller(Arc::new(ConstantConfig { rate })))
        }
        "vivace" | "vivace-latency" => Ok(Algorithm::Controller(Arc::new(VivaceConfig::latency()))),
        _ => Err(Error::Unknown { name: spec.name.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found() {
        for name in NAMES {
            let rate = Some(Bandwidth::from_mbps(1.0));
            assert!(find(&Spec { name: (*name).to_owned(), rate }).is_ok(), "{name}");
        }
    }

    #[test]
    fn vivace_is_vivace_latency() {
        let names = ["vivace", "vivace-latency"].map(|name| find(&Spec::named(name)));
        for found in names {
            assert_eq!(found.expect("a known name").name(), "vivace-latency");
        }
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = find(&Spec::named("cubik")).expect_err("no such algorithm").to_string();
        assert!(error.contains("\"cubik\"") && error.contains("constant"), "{error}");
    }

    #[test]
    fn a_constant_rate_must_be_given() {
        assert_eq!(find(&Spec::named("constant")).err(), Some(Error::NoRate));
    }
}
