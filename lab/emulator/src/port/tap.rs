//! A TAP device: a frame for each read and write, no time stamps
//! (Documentation/networking/tuntap.rst).

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use super::system::{BATCH, check};
use crate::frame::{EthernetFrame, FramePool, ReceivedFrame};

/// The kernel's list of interfaces with their counters, of the namespace in which it is opened.
const COUNTERS: &str = "/proc/thread-self/net/dev";
/// The count of frames that found no room, among the 16 of a line there.
const TRANSMIT_DROPS: usize = 11;

/// A TAP device that exists already.
#[derive(Debug)]
pub struct Tap {
    device: File,
    name: String,
    counters: File,
    drops_before: u64,
}

impl Tap {
    /// Attaches to the device `name` of the calling thread's network namespace.
    pub fn open(name: &str) -> io::Result<Self> {
        let mut options = File::options();
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
        let device = options.open("/dev/net/tun")?;
        // SAFETY: all-zero is a valid ifreq.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        if name.len() >= request.ifr_name.len() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the name is too long"));
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
        // SAFETY: the request outlives the call, and its name ends with a zero.
        check(unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
        let counters = File::open(COUNTERS)?;
        let mut tap = Self { device, name: name.to_owned(), counters, drops_before: 0 };
        tap.drops_before = tap.drops()?;
        Ok(tap)
    }

    /// As [`super::Port::receive`].
    pub fn receive(
        &self,
        pool: &mut FramePool,
        received: &mut Vec<ReceivedFrame>,
    ) -> io::Result<usize> {
        let mut oversize = 0;
        for _ in 0..BATCH {
            let mut frame = pool.take();
            // What does not fit is cut off: a frame that fills all of its room may have been longer.
            let length = match (&self.device).read(frame.room.as_mut_slice()) {
                Ok(length) => length,
                Err(error) => {
                    pool.put(frame);
                    return match error.kind() {
                        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(oversize),
                        _ => Err(error),
                    };
                }
            };
            if length == frame.room.len() {
                oversize += 1;
                pool.put(frame);
            } else {
                frame.len = length;
                received.push(ReceivedFrame { wall_ns: 0, frame });
            }
        }
        Ok(oversize)
    }

    /// As [`super::Port::send`].
    pub fn send(&self, frames: &[EthernetFrame]) -> usize {
        let refused =
            |frame: &&EthernetFrame| (&self.device).write(&frame.room[..frame.len]).is_err();
        frames.iter().filter(refused).count()
    }

    /// As [`super::Port::kernel_drops`].
    pub fn kernel_drops(&self) -> io::Result<u64> {
        Ok(self.drops()? - self.drops_before)
    }

    fn drops(&self) -> io::Result<u64> {
        let mut text = vec![0; 64 << 10];
        let length = self.counters.read_at(&mut text, 0)?;
        drops_of(&String::from_utf8_lossy(&text[..length]), &self.name)
            .ok_or_else(|| io::Error::other(format!("{COUNTERS} does not list {}", self.name)))
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

/// Frames that found no room in an interface, out of the kernel's list.
fn drops_of(list: &str, name: &str) -> Option<u64> {
    let counts = list.lines().find_map(|line| {
        let (interface, counts) = line.split_once(':')?;
        (interface.trim() == name).then_some(counts)
    })?;
    counts.split_ascii_whitespace().nth(TRANSMIT_DROPS)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_those_of_the_interface() {
        let list = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:       1       2    3    4    5     6          7         8        9      10   11   12   13    14      15         16
   wan:      21      22   23   24   25    26         27        28       29      30   31   32   33    34      35         36
";
        assert_eq!(drops_of(list, "wan"), Some(32));
        assert_eq!(drops_of(list, "wa"), None);
    }
}
