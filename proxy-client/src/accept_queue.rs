//! Queue of listeners with connections to accept, and pauses in accepting.

use std::io;
use std::time::{Duration, Instant};

use nix::errno::Errno;

/// Pause after accept(2) has failed for lack of descriptors or memory. Connections wait in the kernel's queue
/// meanwhile. Short compared with any client's timeout, and long enough that retrying is cheap.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The listeners that may have connections to accept, each at most once.
#[derive(Debug, Default)]
pub(crate) struct AcceptQueue {
    listeners: Vec<usize>,
    paused_until: Option<Instant>,
}

impl AcceptQueue {
    /// Adds a listener that may have connections.
    pub(crate) fn add(&mut self, listener: usize) {
        if !self.listeners.contains(&listener) {
            self.listeners.push(listener);
        }
    }

    /// Takes the listeners to accept from now; empty during a pause.
    pub(crate) fn take(&mut self, now: Instant) -> Vec<usize> {
        if self.paused_until.is_some_and(|until| now < until) {
            return Vec::new();
        }
        self.paused_until = None;
        std::mem::take(&mut self.listeners)
    }

    /// Stops accepting for [`ACCEPT_PAUSE`].
    pub(crate) fn pause(&mut self, now: Instant) {
        self.paused_until = Some(now + ACCEPT_PAUSE);
    }

    /// When a pause ends.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.paused_until
    }

    /// Removes all listeners and the pause.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Whether the process or the system has run out of what accept(2) needs.
pub(crate) fn is_out_of_resources(error: &io::Error) -> bool {
    let lacking = [Errno::EMFILE, Errno::ENFILE, Errno::ENOBUFS, Errno::ENOMEM];
    error.raw_os_error().is_some_and(|code| lacking.contains(&Errno::from_raw(code)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_queued_once() {
        let mut queue = AcceptQueue::default();
        for _ in 0..1000 {
            queue.add(1);
            queue.add(0);
        }
        let now = Instant::now();
        assert_eq!(queue.take(now), [1, 0]);
        assert!(queue.take(now).is_empty());
    }

    #[test]
    fn nothing_is_accepted_during_a_pause() {
        let mut queue = AcceptQueue::default();
        let now = Instant::now();
        queue.pause(now);
        queue.add(3);
        assert!(queue.take(now).is_empty());
        let end = queue.next_deadline().unwrap();
        assert_eq!(queue.take(end), [3]);
        assert_eq!(queue.next_deadline(), None);
    }

    #[test]
    fn lack_of_descriptors_is_told_from_other_errors() {
        let error = |errno: Errno| io::Error::from_raw_os_error(errno as i32);
        assert!(is_out_of_resources(&error(Errno::EMFILE)));
        assert!(is_out_of_resources(&error(Errno::ENFILE)));
        assert!(!is_out_of_resources(&error(Errno::ECONNABORTED)));
        assert!(!is_out_of_resources(&io::Error::other("x")));
    }
}
