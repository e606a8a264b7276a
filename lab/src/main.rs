//! `millrace-lab`.

use std::process::ExitCode;

fn main() -> ExitCode {
    millrace_lab::cli::main()
}
