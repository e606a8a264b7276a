//! An algorithm, and what a family of algorithms tells of its members.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::ControllerConfig;

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

    /// The same text for the same algorithm with the same parameters, and for no other.
    pub fn settings(&self) -> String {
        match self {
            Self::Transport { name, .. } => (*name).to_owned(),
            Self::Controller(config) => format!("{} {config:?}", config.name()),
        }
    }
}

/// A name with its parameters, as a configuration gives it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spec {
    /// One of [`crate::registry::names`].
    pub name: String,
    /// Fields of the algorithm's settings that differ from their defaults.
    pub parameters: Map<String, Value>,
}

impl Spec {
    /// An algorithm with its default parameters.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), parameters: Map::new() }
    }

    /// Sets one parameter.
    #[must_use]
    pub fn with(mut self, parameter: &str, value: impl Into<Value>) -> Self {
        self.parameters.insert(parameter.to_owned(), value.into());
        self
    }
}

/// An algorithm as the registry lists it. [`crate::registry::add`] takes those of other crates.
///
/// ```
/// use millrace_cc::{AlgorithmEntry, ConstantConfig, read_settings};
///
/// const STEADY: AlgorithmEntry = AlgorithmEntry {
///     names: &["steady"],
///     summary: "a constant rate",
///     source: "this crate",
///     make: read_settings::<ConstantConfig>,
/// };
/// ```
pub struct AlgorithmEntry {
    /// Its name, then its aliases.
    pub names: &'static [&'static str],
    /// What it is, in less than a line.
    pub summary: &'static str,
    /// Where it is described: RFC, draft or paper.
    pub source: &'static str,
    /// Makes its settings from the parameters given.
    pub make: fn(Map<String, Value>) -> Result<Algorithm, serde_json::Error>,
}

/// For [`AlgorithmEntry::make`]: settings that serde can read. A field without a default has to be given.
///
/// # Errors
/// A parameter that the settings do not have, or a value that it can't have.
pub fn read_settings<C: ControllerConfig + DeserializeOwned + 'static>(
    parameters: Map<String, Value>,
) -> Result<Algorithm, serde_json::Error> {
    let config: C = serde_json::from_value(Value::Object(parameters))?;
    Ok(Algorithm::Controller(Arc::new(config)))
}
