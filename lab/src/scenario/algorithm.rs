//! Whether an algorithm of the tunnel is known and takes its parameters.

use millrace_cc::registry::{self, AlgorithmError, Spec};
use millrace_mcc::Config;
use serde_json::{Map, Value};

use super::reader::TableReader;
use super::tree::ScenarioResult;

/// # Errors
/// The algorithm of the keys `cc` and `parameters` of a table is unknown, or its parameters are wrong.
pub(super) fn check(
    reader: &TableReader<'_>,
    cc: &str,
    parameters: &Map<String, Value>,
) -> ScenarioResult<()> {
    if cc == Config::NAME {
        let config = serde_json::from_value::<Config>(Value::Object(parameters.clone()));
        return config.map(drop).map_err(|error| reader.error("parameters", error.to_string()));
    }
    let spec = Spec { name: cc.to_owned(), parameters: parameters.clone() };
    registry::find(&spec).map(drop).map_err(|error| {
        let key = match error {
            AlgorithmError::Unknown { .. } => "cc",
            AlgorithmError::Parameters { .. } => "parameters",
        };
        reader.error(key, error.to_string())
    })
}
