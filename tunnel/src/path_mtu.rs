//! Paths whose MTU changes: reports of routers, packets that the own interface refuses, and what
//! is told of it. That packets vanish without a report quiche finds out itself.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use crate::conn::Conn;
use crate::core::Core;
use crate::error_queue::{TooBig, udp_payload_bytes};
use crate::metrics::{Metrics, PathMtuDecrease};

/// Reports of routers that one port takes between two ticks. They can be forged by anyone who
/// knows the server's address; with more the port takes none until the next tick.
const MAX_REPORTS_PER_TICK: usize = 64;
/// Log lines of all connections of a worker between two ticks.
const MAX_LINES_PER_TICK: u32 = 4;
/// How often a connection asks the kernel for the MTU of its own interface at most.
const LOCAL_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// What a connection knows of its path's MTU, as UDP payload.
#[derive(Debug, Default)]
pub(crate) struct PathMtu {
    /// Size in use when it was last looked at.
    bytes: usize,
    /// Why the next decrease comes, unless it is a black hole.
    reason: Option<PathMtuDecrease>,
    /// It has fallen, and the search for the size that the path carries runs.
    searching_from: Option<usize>,
    /// It has fallen, so that increases are told of.
    has_fallen: bool,
    /// A packet that the own interface has refused: where to, where from, and its size.
    refused: Option<(SocketAddr, IpAddr, usize)>,
    local_checked: Option<Instant>,
}

impl PathMtu {
    /// The own interface has refused a packet.
    pub(crate) fn refuse(&mut self, destination: SocketAddr, source: IpAddr, bytes: usize) {
        self.refused = Some((destination, source, bytes));
    }

    pub(crate) fn has_refused(&self) -> bool {
        self.refused.is_some()
    }

    fn take_refused(&mut self, now: Instant) -> Option<(SocketAddr, IpAddr, usize)> {
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
    seen_reports: u64,
}

impl PathMtuBudget {
    pub(crate) fn renew(&mut self) {
        self.lines = 0;
    }

    fn has_line(&mut self) -> bool {
        self.lines += 1;
        self.lines <= MAX_LINES_PER_TICK
    }
}

impl Conn {
    /// The size of packets has changed.
    pub(crate) fn on_path_mtu(
        &mut self,
        bytes: usize,
        metrics: &Metrics,
        budget: &mut PathMtuBudget,
    ) {
        let mtu = &mut self.path_mtu;
        let from = std::mem::replace(&mut mtu.bytes, bytes);
        if bytes >= from {
            if mtu.has_fallen {
                mtu.searching_from.get_or_insert(from);
            }
            return;
        }
        let reason = mtu.reason.take().unwrap_or(PathMtuDecrease::BlackHole);
        metrics.path_mtu_decreases.of(reason).inc();
        mtu.has_fallen = true;
        mtu.searching_from = Some(bytes);
        if budget.has_line() {
            let reason = crate::metrics::Label::as_str(reason);
            tracing::warn!(
                peer = %self.peer,
                from,
                to = bytes,
                reason,
                "path MTU fell from {from} to {bytes}"
            );
        }
    }

    /// Tells of the size that a search after a decrease has found.
    pub(crate) fn tell_path_mtu(&mut self, budget: &mut PathMtuBudget) {
        let mtu = &mut self.path_mtu;
        let Some(from) = mtu.searching_from else { return };
        let Some(found) = self.quic.pmtu() else { return };
        mtu.searching_from = None;
        if found > from && budget.has_line() {
            tracing::info!(
                peer = %self.peer,
                from,
                to = found,
                "path MTU rose from {from} to {found}"
            );
        }
    }
}

impl Core {
    /// A port has errors to report.
    pub(crate) fn on_port_error(&mut self, port: usize) {
        let mut reports = Vec::new();
        let port = &mut self.ports[port];
        let mut seen = 0;
        port.take_reports(MAX_REPORTS_PER_TICK, |report| reports.push(report), &mut seen);
        port.reports_taken += seen;
        if port.reports_taken >= MAX_REPORTS_PER_TICK {
            port.receive_reports(false);
        }
        reports.retain(|report| !self.on_packet_too_big(report));
        if !reports.is_empty() {
            self.shared.path_reports.share(&reports);
        }
    }

    /// Other workers may have reports on connections of this one.
    pub(crate) fn take_shared_reports(&mut self) {
        let seen = &mut self.path_mtu_budget.seen_reports;
        for report in self.shared.path_reports.take_since(seen) {
            self.on_packet_too_big(&report);
        }
    }

    /// Called once a tick.
    pub(crate) fn tick_path_mtu(&mut self) {
        self.path_mtu_budget.renew();
        for port in &mut self.ports {
            if std::mem::take(&mut port.reports_taken) >= MAX_REPORTS_PER_TICK {
                port.receive_reports(true);
            }
        }
    }

    /// A router reports what a link carries. It must quote a packet of ours: addresses alone can be
    /// guessed, connection IDs can't (RFC 9000, Section 14.2.1).
    /// Whether that is settled: packets of a connection are smaller, or nothing is quoted.
    fn on_packet_too_big(&mut self, report: &TooBig) -> bool {
        let Some(quoted) = report.quoted_connection_id() else { return true };
        let mut concerned = None;
        for (slot, conn) in &mut self.conns {
            let is_its = |conn: &Conn| {
                (conn.peer.ip(), conn.peer.port())
                    == (report.destination.ip(), report.destination.port())
            };
            if !is_its(conn) {
                continue;
            }
            let peer = conn.peer;
            if conn.quic.on_path_mtu(peer, Some(quoted), report.payload_bytes) {
                conn.path_mtu.reason = Some(PathMtuDecrease::Icmp);
                concerned = Some(slot);
                break;
            }
        }
        if let Some(slot) = concerned {
            self.conns[slot].news = true;
            self.mark_dirty(slot);
        }
        concerned.is_some()
    }

    /// The own interface has refused a packet of a connection.
    pub(crate) fn on_refused_packet(&mut self, slot: usize) {
        let Some(conn) = self.conns.get_mut(slot) else { return };
        let Some((destination, source, bytes)) = conn.path_mtu.take_refused(self.now) else {
            return;
        };
        let Ok(mtu_bytes) = route_mtu_bytes(destination, source) else { return };
        let payload_bytes = udp_payload_bytes(destination, mtu_bytes);
        if payload_bytes >= bytes {
            return;
        }
        // The refusal was not for want of segmentation offload, which is off after it.
        self.ports[conn.port].renew_offload();
        if conn.quic.on_path_mtu(destination, None, payload_bytes) {
            conn.path_mtu.reason = Some(PathMtuDecrease::Local);
            conn.news = true;
        }
        self.mark_dirty(slot);
    }
}

/// The MTU that the kernel knows of a route: its interface's, or less after reports.
fn route_mtu_bytes(destination: SocketAddr, source: IpAddr) -> io::Result<usize> {
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
