//! Gives free memory back to the system when the last flow of a process has ended.
//!
//! glibc keeps the pages that many flows at once have used, 10 to 15 MB after 1,000 flows. `malloc_trim(3)`
//! locks each arena while it works, so it runs only when no flow can wait for it.

use std::sync::atomic::{AtomicBool, Ordering};

/// Fewer flows at a time leave too little memory to give back.
const MIN_FLOWS: i64 = 64;

/// Whether there is memory to give back.
#[derive(Debug, Default)]
pub(crate) struct MallocTrim {
    was_busy: AtomicBool,
}

impl MallocTrim {
    /// Gives memory back if `flows` is 0 and was at least [`MIN_FLOWS`] before.
    pub(crate) fn observe(&self, flows: i64) {
        if self.is_due(flows) {
            trim();
        }
    }

    fn is_due(&self, flows: i64) -> bool {
        match flows {
            MIN_FLOWS.. => {
                self.was_busy.store(true, Ordering::Relaxed);
                false
            }
            0 => self.was_busy.swap(false, Ordering::Relaxed),
            _ => false,
        }
    }
}

#[cfg(target_env = "gnu")]
fn trim() {
    // SAFETY: it may be called by any thread at any time.
    unsafe { libc::malloc_trim(0) };
}

/// Other C libraries have no such function.
#[cfg(not(target_env = "gnu"))]
fn trim() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_once_after_many_flows() {
        let trim = MallocTrim::default();
        assert!(!trim.is_due(0));
        assert!(!trim.is_due(MIN_FLOWS - 1) && !trim.is_due(0), "few flows");
        assert!(!trim.is_due(MIN_FLOWS) && !trim.is_due(1));
        assert!(trim.is_due(0));
        assert!(!trim.is_due(0));
    }
}
