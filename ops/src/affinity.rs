//! Processors of threads: a thread has those of the one that starts it (sched_setaffinity(2)).

use std::io;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// Of the calling thread.
const THIS: Pid = Pid::from_raw(0);

/// While it lives, what the calling thread starts runs on one processor; the thread itself afterwards on
/// all that it had before.
#[derive(Debug)]
pub struct OneProcessor {
    before: CpuSet,
}

impl OneProcessor {
    /// For a worker and what belongs to it: of the processors that we may use, one after the other.
    ///
    /// # Errors
    /// The system's.
    pub fn of(worker: u8) -> io::Result<Self> {
        let before = sched_getaffinity(THIS)?;
        let usable = (0..CpuSet::count()).filter(|it| before.is_set(*it) == Ok(true));
        let usable: Vec<usize> = usable.collect();
        let mut one = CpuSet::new();
        one.set(usable[usize::from(worker) % usable.len()])?;
        sched_setaffinity(THIS, &one)?;
        Ok(Self { before })
    }
}

impl Drop for OneProcessor {
    fn drop(&mut self) {
        // They were allowed before.
        let _ = sched_setaffinity(THIS, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn processors() -> Vec<usize> {
        let set = sched_getaffinity(THIS).unwrap();
        (0..CpuSet::count()).filter(|it| set.is_set(*it).unwrap()).collect()
    }

    #[test]
    fn what_is_started_has_one_and_the_thread_all_again() {
        let all = processors();
        for worker in 0..=u8::try_from(all.len()).unwrap() {
            let one = OneProcessor::of(worker).unwrap();
            let started = std::thread::spawn(processors);
            drop(one);
            assert_eq!(started.join().unwrap(), [all[usize::from(worker) % all.len()]]);
            assert_eq!(processors(), all);
        }
    }
}
