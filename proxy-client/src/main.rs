//! `millrace-client`: the tunnel client on the viewer side.

use std::process::ExitCode;

fn main() -> ExitCode {
    millrace_client::cli::main()
}
