//! `millrace-server`: the tunnel server (origin side).

use std::process::ExitCode;

fn main() -> ExitCode {
    millrace_server::cli::main()
}
