//! The priority of the emulator's thread.

use std::fs::File;
use std::io::Write;

use nix::errno::Errno;

/// Above ordinary threads, below the kernel's own real-time threads (50).
pub const FIFO_PRIORITY: i32 = 10;

const NICE: i32 = -15;

/// Lifts the calling thread above all ordinary ones, or above most, and asks for exact timers. Says in
/// words what was granted.
pub fn raise(realtime: bool) -> &'static str {
    // SAFETY: plain values; both calls affect the calling thread only.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64) };
    if realtime {
        let param = libc::sched_param { sched_priority: FIFO_PRIORITY };
        // SAFETY: `param` outlives the call; 0 is the calling thread.
        if Errno::result(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &param) }).is_ok() {
            return "SCHED_FIFO 10";
        }
    }
    // SAFETY: plain values; on Linux 0 is the calling thread.
    match Errno::result(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) }) {
        Ok(_) => "nice -15",
        Err(_) => "normal",
    }
}

/// While it is held, no processor of this machine enters a sleep state that takes long to leave, and a
/// virtual machine hands no processor back to its host (Documentation/power/pm_qos_interface.rst).
#[derive(Debug)]
pub struct Awake {
    _held: File,
}

impl Awake {
    /// `None` where the kernel doesn't offer it.
    #[must_use]
    pub fn hold() -> Option<Self> {
        let mut held = File::options().write(true).open("/dev/cpu_dma_latency").ok()?;
        held.write_all(&0_i32.to_ne_bytes()).ok()?;
        Some(Self { _held: held })
    }
}
