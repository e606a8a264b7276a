//! Datagrams on their way out of the tunnel.

use std::time::Duration;

use crate::conn::Conn;
use crate::datagrams::receive::DatagramRun;
use crate::datagrams::repair::in_order::{self, HoldLimit};
use crate::datagrams::repair::receiver::Received;
use crate::event_loop::core::Core;
use crate::flow_end::FlowEnd;
use crate::metrics::{DatagramRepair, Drop, Parser};
use crate::stream_owner::Owner;
use millrace_wire::capsule::CapsuleError;
use millrace_wire::h3_connect::H3_MESSAGE_ERROR;
use millrace_wire::http_datagram::{
    self, H3_DATAGRAM_ERROR, MAX_UDP_PAYLOAD_BYTES, UDP_CONTEXT, parse_context,
};
use millrace_wire::repair::{self, RepairHeader};

impl Core {
    /// Forwards all datagrams that a connection has received.
    pub(crate) fn receive_datagrams(&mut self, slot: usize) {
        while let Some(conn) = self.conns.get_mut(slot) {
            // What came as early data waits, as for streams: it could have been replayed.
            if !conn.handshake.established {
                return;
            }
            let Ok(frame) = conn.quic.dgram_recv_buf() else { break };
            let Ok((stream, datagram)) = http_datagram::parse(&frame) else {
                tracing::warn!(peer = %conn.address.peer, "datagram without a stream ID");
                // An error only says that it is closed already.
                let _ = conn.quic.close(true, H3_DATAGRAM_ERROR, b"no quarter stream ID");
                self.shared.metrics.protocol_errors.of(Parser::Http3).inc();
                break;
            };
            let unopened = conn.quic.is_server() && stream >= conn.http.next_peer_stream;
            match conn.http.streams.get(&stream).copied() {
                Some(Owner::Datagrams(flow)) => self.deliver(flow, datagram),
                Some(Owner::Flow(flow)) => {
                    // RFC 9297, Section 2: nothing on such a request has datagrams.
                    conn.reset(stream, H3_DATAGRAM_ERROR);
                    self.end_flow(flow, FlowEnd::RemoteReset);
                }
                Some(Owner::Probe) => self.shared.metrics.drops.of(Drop::DatagramFlow).inc(),
                None if !unopened => {
                    self.shared.metrics.drops.of(Drop::DatagramFlow).inc();
                }
                Some(Owner::Role(_) | Owner::PendingRequest { .. }) | None => {
                    if conn.pending.early.push(stream, self.now, datagram) {
                        self.shared.metrics.drops.of(Drop::DatagramFlow).inc();
                    }
                }
            }
        }
        self.flush_run();
    }

    /// Hands an HTTP datagram to its flow; [`Core::flush_run`] has to follow.
    pub(super) fn deliver(&mut self, slot: usize, datagram: &[u8]) {
        let Some(flow) = self.udp_flows.get(slot) else { return };
        match parse_context(datagram) {
            Some((UDP_CONTEXT, payload)) => self.deliver_packet(slot, payload),
            Some((repair::CONTEXT, datagram)) if flow.repair.is_some() => {
                self.deliver_numbered(slot, datagram);
            }
            // RFC 9298, Section 4: a datagram with an unknown context ID is dropped silently.
            Some(_) => self.shared.metrics.drops.of(Drop::DatagramContext).inc(),
            None => self.shared.metrics.protocol_errors.of(Parser::Http3).inc(),
        }
    }

    /// Hands a datagram with a [`RepairHeader`] to its flow.
    fn deliver_numbered(&mut self, slot: usize, datagram: &[u8]) {
        let Some((header, payload)) = RepairHeader::parse(datagram) else {
            self.shared.metrics.drops.of(Drop::DatagramContext).inc();
            return;
        };
        let flows = self.udp_flows.len();
        let Some(flow) = self.udp_flows.get_mut(slot) else { return };
        let (conn, bytes) = (flow.conn.slot, flow.queue_limit(flows).bytes());
        let Some(repair) = &mut flow.repair else { return };
        let rtt = || self.conns.get(conn).and_then(Conn::rtt).unwrap_or_default();
        let time = if repair.is_in_order() { in_order::deadline(rtt()) } else { Duration::ZERO };
        let received = repair.take(header, payload, HoldLimit { time, bytes }, self.now);
        self.pending.held_packets.set(slot, repair.hold_deadline());
        let repairs = &self.shared.metrics.datagram_repairs;
        match received {
            Received::Packet(packet) => self.deliver_packet(slot, packet),
            Received::Packets { packets, corrected } => {
                repairs.add(DatagramRepair::Corrected, corrected);
                packets.iter().for_each(|packet| self.deliver_packet(slot, packet));
            }
            Received::Duplicate => repairs.of(DatagramRepair::Duplicate).inc(),
            Received::Held => repairs.of(DatagramRepair::Held).inc(),
            Received::InOrder { packets, skipped } => {
                repairs.add(DatagramRepair::Skipped, skipped);
                packets.iter().for_each(|packet| self.deliver_packet(slot, packet));
            }
        }
    }

    /// Passes on the packets of a flow that have waited for a missing one until its deadline.
    pub(crate) fn release_held_packets(&mut self, slot: usize) {
        let Some(repair) = self.udp_flows.get_mut(slot).and_then(|it| it.repair.as_mut()) else {
            return;
        };
        let (packets, skipped) = repair.expire(self.now);
        self.pending.held_packets.set(slot, repair.hold_deadline());
        self.shared.metrics.datagram_repairs.add(DatagramRepair::Skipped, skipped);
        packets.iter().for_each(|packet| self.deliver_packet(slot, packet));
        self.flush_run();
    }

    /// Hands a packet to its flow; [`Core::flush_run`] has to follow.
    fn deliver_packet(&mut self, slot: usize, payload: &[u8]) {
        let Some(flow) = self.udp_flows.get_mut(slot) else { return };
        if payload.len() > MAX_UDP_PAYLOAD_BYTES {
            self.abort_datagrams(slot, H3_DATAGRAM_ERROR);
            return;
        }
        let to_client = self.conns.get(flow.conn.slot).is_some_and(|it| !it.quic.is_server());
        if to_client && flow.admission.is_unanswered() && !self.datagrams_answered(slot) {
            return;
        }
        let Some(flow) = self.udp_flows.get_mut(slot) else { return };
        if to_client {
            flow.admission.end_set_up(None, self.now);
        }
        flow.traffic.on_tunnel_datagram(payload.len(), self.now);
        if let Some(medium) = flow.medium.as_ref().filter(|_| !to_client) {
            medium.on_player_datagram(self.now);
        }
        let most = flow.socket.max_segments();
        self.counters.bytes(to_client, payload.len() as u64);
        self.counters.datagrams(to_client, 1);
        if !self.buffers.run.takes(slot, payload.len(), most) {
            self.flush_run();
            self.buffers.run.flow = slot;
            self.buffers.run.segment = payload.len();
        }
        self.buffers.run.bytes.extend_from_slice(payload);
        self.buffers.run.count += 1;
    }

    /// Sends what [`Core::deliver`] has gathered.
    pub(super) fn flush_run(&mut self) {
        let DatagramRun { flow: slot, mut bytes, segment, count } =
            std::mem::take(&mut self.buffers.run);
        if count == 0 {
            return;
        }
        if let Some(flow) = self.udp_flows.get(slot)
            && let Err(error) = flow.socket.send(&bytes, segment)
        {
            let drop = match error.raw_os_error() {
                Some(libc::EMSGSIZE) => Drop::DatagramTooLarge,
                _ => Drop::DatagramSocket,
            };
            self.shared.metrics.drops.of(drop).inc_by(count as u64);
            if flow.ends_with(&error) {
                tracing::info!(destination = %flow.label.destination, %error, "UDP flow failed");
                self.end_datagrams(slot, FlowEnd::LocalReset);
            }
        }
        // The memory serves the next one.
        bytes.clear();
        self.buffers.run = DatagramRun { bytes, ..DatagramRun::default() };
    }

    /// Reads what a flow's stream has.
    pub(crate) fn read_capsules(&mut self, slot: usize) {
        loop {
            let Some(flow) = self.udp_flows.get_mut(slot) else { return };
            let Some(conn) = self.conns.get_mut(flow.conn.slot) else { return };
            let Some(h3) = conn.http.h3.as_mut().filter(|_| conn.handshake.established) else {
                return;
            };
            let Ok(read) = h3.recv_body(&mut conn.quic, flow.stream, &mut self.buffers.scratch)
            else {
                break;
            };
            self.pending.needs_h3_poll = true;
            let mut datagrams = Vec::new();
            let taken =
                flow.capsules.read(&self.buffers.scratch[..read], |it| datagrams.push(it.to_vec()));
            for datagram in datagrams {
                self.deliver(slot, &datagram);
            }
            if let Err(error) = taken {
                return self.bad_capsules(slot, error);
            }
        }
        self.flush_run();
    }

    /// The peer has ended a flow's stream, and with it the flow.
    pub(crate) fn datagrams_finished(&mut self, slot: usize) {
        self.read_capsules(slot);
        let Some(flow) = self.udp_flows.get(slot) else { return };
        match flow.capsules.end() {
            Ok(()) => self.end_datagrams(slot, FlowEnd::Complete),
            Err(error) => self.bad_capsules(slot, error),
        }
    }

    fn bad_capsules(&mut self, slot: usize, error: CapsuleError) {
        self.flush_run();
        tracing::warn!(%error, "malformed capsule");
        let code = match error {
            CapsuleError::TooLong(_) => H3_DATAGRAM_ERROR,
            CapsuleError::Truncated => H3_MESSAGE_ERROR,
        };
        self.abort_datagrams(slot, code);
    }

    /// Ends a flow whose peer broke the rules.
    fn abort_datagrams(&mut self, slot: usize, code: u64) {
        self.shared.metrics.protocol_errors.of(Parser::Http3).inc();
        let Some(flow) = self.udp_flows.get(slot) else { return };
        let (id, stream) = (flow.conn, flow.stream);
        self.reset_stream(id, stream, code);
        self.end_datagrams(slot, FlowEnd::RemoteReset);
    }
}
