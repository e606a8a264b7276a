//! `millrace-lab` with `delay-aimd`.

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Err(error) = custom_controller::register() {
        eprintln!("custom-lab: {error}");
        return ExitCode::FAILURE;
    }
    millrace_lab::cli::main()
}
