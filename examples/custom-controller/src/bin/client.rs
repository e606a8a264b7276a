//! `millrace-client` with `delay-aimd`.

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Err(error) = custom_controller::register() {
        eprintln!("custom-client: {error}");
        return ExitCode::FAILURE;
    }
    millrace_client::cli::main()
}
