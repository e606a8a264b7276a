//! What a reload can't change.

use millrace_config::{Admin, Log, Runtime};

/// The parts of a configuration that both programs have and that are as they were at the start.
#[derive(Clone, Copy, Debug)]
pub struct ImmutableConfig<'a> {
    /// `[runtime]`
    pub runtime: &'a Runtime,
    /// `[admin]`
    pub admin: &'a Admin,
    /// `[log]`
    pub log: &'a Log,
}

/// Warns of keys that have changed and that a running process can't follow: those of both programs,
/// from `started` to `now`, and the program's `own`.
pub fn needs_restart(
    started: ImmutableConfig<'_>,
    now: ImmutableConfig<'_>,
    own: &[(&'static str, bool)],
) {
    let common = [
        ("runtime.workers", now.runtime.workers != started.runtime.workers),
        ("runtime.pin_workers", now.runtime.pin_workers != started.runtime.pin_workers),
        ("runtime.user", now.runtime.user != started.runtime.user),
        ("runtime.group", now.runtime.group != started.runtime.group),
        ("admin", now.admin != started.admin),
        ("log", now.log != started.log),
    ];
    for (key, _) in own.iter().chain(&common).filter(|(_, changed)| *changed) {
        tracing::warn!(key, "change needs a restart; all other changes are in force");
    }
}
