//! Configuration files: no text may do worse than be refused with a reason that names the file.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use millrace_config::{AlgorithmProblem, CongestionControl, parse_client, parse_server};

/// As an algorithm's own check would: by name, and by the number of parameters.
fn check(choice: &CongestionControl) -> Result<(), AlgorithmProblem> {
    if !["constant", "cubic", "vivace-latency"].contains(&choice.name.as_str()) {
        return Err(AlgorithmProblem::Name("unknown".to_owned()));
    }
    match choice.parameters.keys().nth(1) {
        None => Ok(()),
        Some(parameter) => Err(AlgorithmProblem::Parameter {
            parameter: Some(parameter.clone()),
            problem: "unknown".to_owned(),
        }),
    }
}

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let file = Path::new("fuzzed.toml");
    let refusals = [parse_client(text, file, &check).err(), parse_server(text, file, &check).err()];
    for error in refusals.into_iter().flatten() {
        let reason = error.to_string();
        assert!(reason.contains("fuzzed.toml"), "{reason}");
    }
});
