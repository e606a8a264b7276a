//! UDP flows of a worker: their beginnings, ends and ticks.

use crate::admitted::Admitted;
use crate::conn::Conn;
use crate::conn_id::ConnId;
use crate::datagrams::{
    DRAIN_IDLE_TIMEOUT, DatagramTraffic, DatagramsId, DatagramsStart, FlowRepair, Queue,
    UdpContent, UdpFlow,
};
use crate::event_loop::core::Core;
use crate::event_loop::tokens::{KIND_DATAGRAMS, KIND_SHIFT};
use crate::flow_end::FlowEnd;
use crate::h3_errors::H3_CONNECT_ERROR;
use crate::h3_errors::H3_NO_ERROR;
use crate::metrics::{FlowFailure, Label};
use crate::stream_owner::Owner;
use crate::tunnel_event::TunnelEvent;
use millrace_wire::capsule::Capsules;
use millrace_wire::repair::RepairMethods;
use mio::{Interest, Token};
use std::time::Duration;

impl Core {
    /// Starts a UDP flow between a local socket and a stream. `None` when the connection is gone or the
    /// socket can't be registered.
    pub fn start_datagrams(&mut self, mut start: DatagramsStart) -> Option<DatagramsId> {
        let slot = self.udp_flows.vacant_key();
        if !self.prepare_datagrams(slot, &mut start) {
            // The caller has no admission any more.
            start.admission.end_set_up(Some(FlowFailure::Internal.as_str()), self.now);
            return None;
        }
        let readable = start.socket.own_port().is_some();
        let DatagramsStart {
            conn: id,
            stream,
            socket,
            label,
            admission,
            key,
            finished,
            medium,
            repair,
        } = start;
        let deadline = self.tunnel.media_deadline;
        let flow_repair = match deadline {
            _ if repair.in_order => Some(FlowRepair::in_order(self.now)),
            Some(deadline) if repair.retransmission => {
                Some(FlowRepair::of_media(deadline, repair.fec, self.now))
            }
            _ => None,
        };
        if let Admitted::Unanswered { place, .. } = &admission {
            place.runs_at(slot);
        }
        self.udp_flows.insert(UdpFlow {
            conn: id,
            stream,
            socket,
            label,
            key,
            traffic: DatagramTraffic::new(self.now),
            ready: false,
            readable,
            queue: Queue::default(),
            capsules: Capsules::default(),
            deadline: medium.as_ref().and(deadline),
            repair: flow_repair.map(Box::new),
            medium,
            admission,
        });
        let conn = self.conn_mut(id)?;
        conn.http.streams.insert(stream, Owner::Datagrams(slot));
        let early = conn.pending.early.take(stream);
        self.datagrams_ready(slot);
        for datagram in early {
            self.deliver(slot, &datagram);
        }
        self.flush_run();
        // Capsules may have come with the request.
        self.read_capsules(slot);
        if finished {
            self.datagrams_finished(slot);
        }
        Some(DatagramsId { slot, key })
    }

    /// Registers the flow's socket. Whether the flow can start; the stream of one that cannot is reset.
    fn prepare_datagrams(&mut self, slot: usize, start: &mut DatagramsStart) -> bool {
        if self.conn(start.conn).is_none() {
            return false;
        }
        let has_control = start.medium.as_ref().is_none_or(|medium| self.has_rtsp_flow(medium.id));
        let prepared = has_control
            && start.socket.own_port().is_none_or(|port| {
                let token = Token(KIND_DATAGRAMS << KIND_SHIFT | slot);
                let registered =
                    self.sockets.registry.register(port.source(), token, Interest::READABLE);
                if let Err(error) = &registered {
                    tracing::error!(%error, "failed to register a UDP flow's socket");
                }
                registered.is_ok()
            });
        if !prepared {
            self.reset_stream(start.conn, start.stream, H3_CONNECT_ERROR);
        }
        prepared
    }

    /// The methods of repair that this end uses for a flow on a connection.
    pub fn repair_methods(&self, conn: ConnId, content: UdpContent) -> RepairMethods {
        let none = RepairMethods::default();
        if !self.conn(conn).is_some_and(|conn| conn.carries_datagrams()) {
            return none;
        }
        match content {
            UdpContent::Media if self.tunnel.media_deadline.is_some() => {
                RepairMethods { retransmission: true, fec: self.tunnel.media_fec, ..none }
            }
            UdpContent::Quic => RepairMethods { in_order: self.tunnel.quic_repair, ..none },
            UdpContent::Media | UdpContent::Other => none,
        }
    }

    /// Sends one datagram of a flow with a shared socket. Returns `false` when the flow is over.
    pub fn send_datagram(&mut self, id: DatagramsId, payload: &[u8]) -> bool {
        let flows = self.udp_flows.len();
        let Some(flow) = self.udp_flows.get_mut(id.slot).filter(|flow| flow.key == id.key) else {
            return false;
        };
        flow.traffic.on_local_datagram(self.now);
        let limit = flow.queue_limit(flows);
        let dropped = flow.enqueue(payload, limit, self.now);
        self.count_queue_drops(dropped);
        self.datagrams_ready(id.slot);
        true
    }

    /// Ends a flow in order, if it still runs.
    pub fn stop_datagrams(&mut self, id: DatagramsId) {
        if self.udp_flows.get(id.slot).is_some_and(|flow| flow.key == id.key) {
            self.end_datagrams(id.slot, FlowEnd::Complete);
        }
    }

    /// Ends the flows on a connection that is of no use any more.
    pub fn lose_datagrams(&mut self, id: ConnId) {
        // Media have no place elsewhere: they belong to a TCP flow, which stays.
        self.end_datagram_flows(|flow| {
            (flow.conn == id && flow.medium.is_none()).then_some(FlowEnd::TunnelLost)
        });
    }

    /// A flow's own socket reported something.
    pub(crate) fn on_datagram_socket(&mut self, slot: usize) {
        if let Some(flow) = self.udp_flows.get_mut(slot) {
            flow.readable = true;
            self.datagrams_ready(slot);
        }
    }

    /// A flow has a turn when its connection is driven.
    pub(crate) fn datagrams_ready(&mut self, slot: usize) {
        let Some(flow) = self.udp_flows.get_mut(slot) else { return };
        let id = flow.conn;
        if !std::mem::replace(&mut flow.ready, true)
            && let Some(conn) = self.conn_mut(id)
        {
            conn.pending.udp_flows.push_back(slot);
        }
        self.mark_pending(id.slot);
    }

    /// Takes a flow out, and lets the peer know.
    pub(crate) fn end_datagrams(&mut self, slot: usize, end: FlowEnd) {
        self.end_datagrams_of(slot, end, None);
    }

    /// As [`Core::end_datagrams`]; `removed` is the flow's connection where that has been taken out already.
    pub(crate) fn end_datagrams_of(&mut self, slot: usize, end: FlowEnd, removed: Option<&Conn>) {
        let Some(mut flow) = self.udp_flows.try_remove(slot) else { return };
        if end != FlowEnd::Complete {
            flow.admission.end_set_up(Some(end.outcome().as_str()), self.now);
        }
        self.pending.held_packets.set(slot, None);
        let UdpFlow { conn: id, stream, key, .. } = flow;
        if let Some(conn) = self.conn_mut(id) {
            match (end, &mut conn.http.h3) {
                (FlowEnd::Complete | FlowEnd::Idle, Some(h3)) => {
                    // An error only says that the direction has ended already.
                    let _ = h3.send_body(&mut conn.quic, stream, &[], true);
                    conn.abandon(stream, H3_NO_ERROR);
                }
                _ => conn.reset(stream, H3_CONNECT_ERROR),
            }
            self.mark_pending(id.slot);
        }
        tracing::debug!(
            destination = %flow.label.destination,
            sent_bytes = flow.traffic.sent_bytes,
            received_bytes = flow.traffic.received_bytes,
            end = end.as_str(),
            "UDP flow ended"
        );
        let conn = removed.or_else(|| self.conn(id));
        let info = conn.map(|conn| conn.describe(flow.seen(slot), self.now));
        // Silence is the only end that UDP itself has.
        self.record_end(if end == FlowEnd::Idle { FlowEnd::Complete } else { end }, info);
        self.pending.events.push_back(TunnelEvent::DatagramsEnded { conn: id, key, end });
    }

    /// Ends the flows for which `select` gives a reason.
    pub(crate) fn end_datagram_flows(&mut self, select: impl Fn(&UdpFlow) -> Option<FlowEnd>) {
        let ends: Vec<_> =
            self.udp_flows.iter().filter_map(|(slot, flow)| Some((slot, select(flow)?))).collect();
        for (slot, end) in ends {
            self.end_datagrams(slot, end);
        }
    }

    /// Ends flows that have been silent for `timeout`, or for [`DRAIN_IDLE_TIMEOUT`] where either end is
    /// about to go.
    pub(crate) fn end_silent_datagrams(&mut self, timeout: Duration, draining: bool) {
        let now = self.now;
        let silent = |(slot, flow): (usize, &UdpFlow)| {
            let leaves = draining || self.conn(flow.conn).is_some_and(|conn| conn.http.peer_goaway);
            let timeout = if leaves { timeout.min(DRAIN_IDLE_TIMEOUT) } else { timeout };
            let silence = flow.traffic.silence(now);
            let is_over = match &flow.medium {
                // A paused player has no means to request its media again.
                Some(medium) => medium.is_abandoned(silence, now),
                None => silence > timeout,
            };
            is_over.then_some(slot)
        };
        let silent: Vec<_> = self.udp_flows.iter().filter_map(silent).collect();
        for slot in silent {
            self.end_datagrams(slot, FlowEnd::Idle);
        }
    }

    /// Called once a tick.
    pub(crate) fn tick_datagrams(&mut self) {
        let (mut waiting, mut unfinished) = (Vec::new(), Vec::new());
        for (slot, flow) in &mut self.udp_flows {
            flow.traffic.tick(Self::TICK);
            if flow.repair.as_ref().is_some_and(|it| it.sender.has_open_block()) {
                unfinished.push(slot);
            }
            if flow.ready {
                // It may wait for a path MTU that is not going to be found.
                waiting.push(flow.conn.slot);
            }
        }
        for slot in waiting {
            self.mark_pending(slot);
        }
        for slot in unfinished {
            self.datagrams_ready(slot);
        }
        let now = self.now;
        for (_, conn) in &mut self.conns {
            conn.pending.early.forget(now);
        }
    }

    pub(crate) fn count_queue_drops(&self, dropped: u64) {
        if dropped > 0 {
            self.shared.metrics.drops.of(crate::metrics::Drop::DatagramQueue).inc_by(dropped);
        }
    }
}
