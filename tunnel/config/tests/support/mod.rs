//! The algorithms that both programs know.

use millrace_cc::registry::{AlgorithmError, Spec, find};
use millrace_config::{AlgorithmProblem, CongestionControl};

/// As both programs check them, which is tested with their binaries.
pub fn known(choice: &CongestionControl) -> Result<(), AlgorithmProblem> {
    let spec = Spec { name: choice.name.clone(), parameters: choice.parameters.clone() };
    find(&spec).map(drop).map_err(|error| match error {
        AlgorithmError::Unknown { .. } => AlgorithmProblem::Name(error.to_string()),
        AlgorithmError::Parameters { name, parameter, reason } => {
            AlgorithmProblem::Parameter { parameter, problem: format!("{name:?}: {reason}") }
        }
    })
}
