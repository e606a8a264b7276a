//! Changes of the path MTU: reports of routers, packets that the local interface refuses, and the
//! log. quiche itself detects paths that drop packets without a report.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use crate::metrics::PathMtuDecrease;

/// Reports of routers that one port takes between two ticks. Any host that knows the server's
/// address can forge them; beyond this number the port takes none until the next tick.
pub(crate) const MAX_REPORTS_PER_TICK: usize = 64;
/// Log lines of all connections of a worker between two ticks.
const MAX_LINES_PER_TICK: u32 = 4;
/// How often a connection asks the kernel for the MTU of its own interface at most.
const LOCAL_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// What a connection knows of its path's MTU, as UDP payload.
#[derive(Debug, Default)]
pub(crate) struct PathMtu {
    /// Size in use when it was last looked at.
    pub(crate) bytes: usize,
    /// Why the next decrease comes, unless it is a black hole.
    pub(crate) reason: Option<PathMtuDecrease>,
    /// It has fallen, and the search for the size that the path carries runs.
    pub(crate) searching_from: Option<usize>,
    /// It has fallen, so that increases are logged.
    pub(crate) has_fallen: bool,
    /// A packet that the local interface has refused: destination, source and size.
    refused: Option<(SocketAddr, IpAddr, usize)>,
    local_checked: Option<Instant>,
}

impl PathMtu {
    /// Notes that the local interface has refused a packet.
    pub(crate) fn refuse(&mut self, destination: SocketAddr, source: IpAddr, bytes: usize) {
        self.refused = Some((destination, source, bytes));
    }

    pub(crate) fn has_refused(&self) -> bool {
        self.refused.is_some()
    }

    pub(crate) fn take_refused(&mut self, now: Instant) -> Option<(SocketAddr, IpAddr, usize)> {
        let refused = self.refused.take()?;
        let recent = |at: Instant| now.saturating_duration_since(at) < LOCAL_CHECK_INTERVAL;
        if self.local_checked.is_some_and(recent) {
            return None;
        }
        self.local_checked = Some(now);
        Some(refused)
    }
}

/// What a worker may still do for paths until the next tick.
#[derive(Debug, Default)]
pub(crate) struct PathMtuBudget {
    lines: u32,
    /// Reports of other workers that were looked at.
    pub(crate) seen_reports: u64,
}

impl PathMtuBudget {
    pub(crate) fn renew(&mut self) {
        self.lines = 0;
    }

    pub(crate) fn has_line(&mut self) -> bool {
        self.lines += 1;
        self.lines <= MAX_LINES_PER_TICK
    }
}

/// The MTU that the kernel knows of a route: its interface's, or less after reports.
pub(crate) fn route_mtu_bytes(destination: SocketAddr, source: IpAddr) -> io::Result<usize> {
    let socket = Socket::new(Domain::for_address(destination), Type::DGRAM, Some(Protocol::UDP))?;
    if !source.is_unspecified() {
        socket.bind(&SocketAddr::new(source, 0).into())?;
    }
    socket.connect(&destination.into())?;
    let (level, option) = match destination {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    let mut mtu: libc::c_int = 0;
    let mut len = size_of_val(&mtu) as libc::socklen_t;
    // SAFETY: the option is an int, and the length says so.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut mtu).cast(), &raw mut len)
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    usize::try_from(mtu).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn route_mtu_is_the_interfaces() {
        let any = IpAddr::from([0, 0, 0, 0]);
        let mtu = route_mtu_bytes(SocketAddr::from(([127, 0, 0, 1], 1)), any).unwrap();
        assert!(mtu >= 1280, "{mtu}");
    }

    #[test]
    fn refused_packets_are_looked_into_once_in_a_while() {
        let mut mtu = PathMtu::default();
        let now = Instant::now();
        let to = SocketAddr::from(([192, 0, 2, 1], 1));
        let from = IpAddr::from([192, 0, 2, 2]);
        mtu.refuse(to, from, 1452);
        assert!(mtu.has_refused());
        assert_eq!(mtu.take_refused(now), Some((to, from, 1452)));
        mtu.refuse(to, from, 1452);
        assert_eq!(mtu.take_refused(now), None);
        assert!(!mtu.has_refused());
        mtu.refuse(to, from, 1452);
        assert!(mtu.take_refused(now + LOCAL_CHECK_INTERVAL).is_some());
    }
}
