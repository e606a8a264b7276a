//! The program, the machine and the time of results.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::utsname::uname;
use serde::Serialize;

use crate::checkout;

/// What may differ between two runs of the same scenario with the same seed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunStamp {
    /// Of the checkout that holds the program, with `+` where it had changes; null outside of one.
    pub commit: Option<String>,
    /// As it was called.
    pub command: Vec<String>,
    /// Of millrace-lab.
    pub version: &'static str,
    /// Its release.
    pub kernel: String,
    /// Of the machine.
    pub architecture: String,
    /// How many there are to use.
    pub cpus: usize,
    /// Seconds since 1970.
    pub finished_unix_s: u64,
    /// How long it took.
    pub wall_s: f64,
}

impl RunStamp {
    /// Of this process and machine.
    #[must_use]
    pub fn here() -> Self {
        let text = |value: &std::ffi::OsStr| value.to_string_lossy().into_owned();
        let system = uname().ok();
        let system = system.as_ref();
        Self {
            commit: commit(),
            command: std::env::args().collect(),
            version: env!("CARGO_PKG_VERSION"),
            kernel: system.map(|system| text(system.release())).unwrap_or_default(),
            architecture: system.map(|system| text(system.machine())).unwrap_or_default(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            finished_unix_s: 0,
            wall_s: 0.0,
        }
    }

    /// The same for something that took `wall_s` and ends now.
    #[must_use]
    pub fn after(&self, wall_s: f64) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Self { finished_unix_s: now, wall_s: (wall_s * 1e3).round() / 1e3, ..self.clone() }
    }
}

fn commit() -> Option<String> {
    let checkout = checkout::directory()?;
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(&checkout).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "HEAD"])?;
    let changes = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(if changes.is_empty() { commit } else { format!("{commit}+") })
}
