//! What the process is, as `/status` shows it.

use std::time::Instant;

/// What a process is.
#[derive(Clone, Copy, Debug)]
pub struct ProgramInfo {
    /// `client` or `server`.
    pub role: &'static str,
    /// As `--version` shows it.
    pub version: &'static str,
}

/// The process, as it was when the listener began.
#[derive(Debug)]
pub(super) struct StartedProgram {
    pub(super) info: ProgramInfo,
    pub(super) host: Option<String>,
    pub(super) started: Instant,
}

impl StartedProgram {
    pub(super) fn new(info: ProgramInfo) -> Self {
        Self { info, host: host_name(), started: Instant::now() }
    }
}

fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim_end().to_owned()).filter(|name| !name.is_empty())
}
