//! Processor time before others, for what is measured: a process that is not scheduled for
//! milliseconds says nothing about its own timing. Niceness would not do, since it only counts within
//! one session or container.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Lowest of the real-time priorities, in turns with its equals.
const PRIORITY: libc::c_int = 1;

/// Gives `command` precedence, where that is permitted (`CAP_SYS_NICE`).
pub fn raise(command: &mut Command) {
    // SAFETY: sched_setscheduler is async-signal-safe and touches no memory of the parent.
    unsafe {
        command.pre_exec(|| {
            raise_thread();
            Ok(())
        });
    }
}

/// Gives the calling thread precedence, where that is permitted.
pub fn raise_thread() {
    let parameters = libc::sched_param { sched_priority: PRIORITY };
    // SAFETY: the pointer is to a live structure. 0 is the calling thread.
    unsafe {
        libc::sched_setscheduler(0, libc::SCHED_RR, &raw const parameters);
    }
}
