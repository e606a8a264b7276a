//! Where the built programs are.

use std::env;
use std::path::PathBuf;
use std::process::Command;

/// `millrace-client`, ready for its arguments.
///
/// # Panics
/// When it has not been built.
#[must_use]
pub fn client() -> Command {
    Command::new(path("millrace-client"))
}

/// `millrace-server`, ready for its arguments.
///
/// # Panics
/// When it has not been built.
#[must_use]
pub fn server() -> Command {
    Command::new(path("millrace-server"))
}

/// A program in the directory `MILLRACE_BIN_DIR`, or beside the tests' own build directory.
///
/// # Panics
/// When it has not been built.
#[must_use]
pub fn path(name: &str) -> PathBuf {
    let directory = env::var_os("MILLRACE_BIN_DIR").map_or_else(
        || {
            // target/release/deps/TEST-HASH
            let test = env::current_exe().expect("a running program has a path");
            let profile = test.parent().and_then(|deps| deps.parent());
            profile.expect("cargo puts tests into target/PROFILE/deps").to_owned()
        },
        PathBuf::from,
    );
    let program = directory.join(name);
    assert!(program.is_file(), "{} is not there: run `make build` first", program.display());
    program
}
