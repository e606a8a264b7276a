//! Programs of the host that tell its state.

use std::process::Command;

/// The output of a program, or the reason for its failure.
pub(crate) fn output(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{program}: {}", said.lines().next().unwrap_or("failed")));
    }
    String::from_utf8(output.stdout).map_err(|error| format!("{program}: {error}"))
}
