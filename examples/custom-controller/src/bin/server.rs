//! `millrace-server` with `delay-aimd`.

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Err(error) = custom_controller::register() {
        eprintln!("custom-server: {error}");
        return ExitCode::FAILURE;
    }
    millrace_server::cli::main()
}
