//! A wake-up with the resolution that pacing needs: epoll's own time-out has milliseconds.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

/// A one-shot timer in an event loop.
pub struct Timer {
    fd: TimerFd,
    armed: Option<Instant>,
}

impl Timer {
    /// Makes a timer that reports expiry as `token`.
    ///
    /// # Errors
    /// When the system has no descriptor left.
    pub fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let fd = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        registry.register(&mut SourceFd(&fd.as_fd().as_raw_fd()), token, Interest::READABLE)?;
        Ok(Self { fd, armed: None })
    }

    /// Wakes the loop at `at`, or not at all.
    ///
    /// # Errors
    /// As timerfd_settime(2); none is expected of a valid timer.
    pub fn arm(&mut self, at: Option<Instant>, now: Instant) -> io::Result<()> {
        if self.armed == at {
            return Ok(());
        }
        self.armed = at;
        match at {
            // Zero would disarm it.
            Some(at) => {
                let after = at.saturating_duration_since(now).max(Duration::from_nanos(1));
                let expiration = Expiration::OneShot(TimeSpec::from_duration(after));
                self.fd.set(expiration, TimerSetTimeFlags::empty())?;
            }
            None => self.fd.unset()?,
        }
        Ok(())
    }

    /// The loop has reported the expiry.
    pub fn fired(&mut self) {
        self.armed = None;
    }
}
