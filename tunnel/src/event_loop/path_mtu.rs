//! Changes of path MTUs.

use crate::conn::Conn;
use crate::error_queue::{TooBig, udp_payload_bytes};
use crate::event_loop::core::Core;
use crate::metrics::{Metrics, PathMtuDecrease};
use crate::path_mtu::{MAX_REPORTS_PER_TICK, PathMtuBudget, route_mtu_bytes};

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
                peer = %self.address.peer,
                from,
                to = bytes,
                reason,
                "path MTU fell from {from} to {bytes}"
            );
        }
    }

    /// Logs the size that the search after a decrease has found.
    pub(crate) fn log_path_mtu(&mut self, budget: &mut PathMtuBudget) {
        let mtu = &mut self.path_mtu;
        let Some(from) = mtu.searching_from else { return };
        let Some(found) = self.quic.pmtu() else { return };
        mtu.searching_from = None;
        if found > from && budget.has_line() {
            tracing::info!(
                peer = %self.address.peer,
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
        let port = &mut self.sockets.ports[port];
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
        let seen = &mut self.admission.path_mtu_budget.seen_reports;
        for report in self.shared.path_reports.take_since(seen) {
            self.on_packet_too_big(&report);
        }
    }

    /// Called once a tick.
    pub(crate) fn tick_path_mtu(&mut self) {
        self.admission.path_mtu_budget.renew();
        for port in &mut self.sockets.ports {
            if std::mem::take(&mut port.reports_taken) >= MAX_REPORTS_PER_TICK {
                port.receive_reports(true);
            }
        }
    }

    /// A router reports what a link carries. It must quote a packet of ours: addresses alone can be
    /// guessed, connection IDs can't (RFC 9000, Section 14.2.1). Returns whether the report is
    /// dealt with: packets of a connection are smaller, or nothing is quoted.
    fn on_packet_too_big(&mut self, report: &TooBig) -> bool {
        let Some(quoted) = report.quoted_connection_id() else { return true };
        let mut concerned = None;
        for (slot, conn) in &mut self.conns {
            let is_its = |conn: &Conn| {
                (conn.address.peer.ip(), conn.address.peer.port())
                    == (report.destination.ip(), report.destination.port())
            };
            if !is_its(conn) {
                continue;
            }
            let peer = conn.address.peer;
            if conn.quic.on_path_mtu(peer, Some(quoted), report.payload_bytes) {
                conn.path_mtu.reason = Some(PathMtuDecrease::Icmp);
                concerned = Some(slot);
                break;
            }
        }
        if let Some(slot) = concerned {
            self.conns[slot].pending.had_input = true;
            self.mark_pending(slot);
        }
        concerned.is_some()
    }

    /// The local interface has refused a packet of a connection.
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
        self.sockets.ports[conn.address.port].renew_offload();
        if conn.quic.on_path_mtu(destination, None, payload_bytes) {
            conn.path_mtu.reason = Some(PathMtuDecrease::Local);
            conn.pending.had_input = true;
        }
        self.mark_pending(slot);
    }
}
