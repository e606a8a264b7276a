//! Processor time before others, for what is measured: a process that is not scheduled for
//! milliseconds says nothing about its own timing.

use std::os::unix::process::CommandExt;
use std::process::Command;

const NICE: libc::c_int = -19;

/// Gives `command` precedence, where that is permitted (`CAP_SYS_NICE`).
pub fn raise(command: &mut Command) {
    // SAFETY: setpriority is async-signal-safe and touches no memory of the parent.
    unsafe {
        command.pre_exec(|| {
            libc::setpriority(libc::PRIO_PROCESS, 0, NICE);
            Ok(())
        });
    }
}

/// Gives the calling thread precedence, where that is permitted.
pub fn raise_thread() {
    // SAFETY: no memory is involved. On Linux 0 is the calling thread.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, NICE);
    }
}
