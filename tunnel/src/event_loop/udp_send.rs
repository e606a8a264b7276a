//! Datagrams on their way into the tunnel.

use crate::datagrams::SEND_QUEUE_FRAMES;
use crate::datagrams::repair::frame_id::stream_and_number;
use crate::datagrams::repair::sender::AfterOutcome;
use crate::datagrams::send::DatagramOutcome;
use crate::datagrams::send::MAX_TURN_DATAGRAMS;
use crate::event_loop::core::Core;
use crate::flow_end::FlowEnd;
use crate::metrics::{DatagramRepair, Drop};
use crate::stream_owner::Owner;

impl Core {
    /// Moves datagrams into a connection, its flows in turn. Whether there is more to do at once.
    pub(crate) fn pump_datagrams(&mut self, slot: usize) -> bool {
        self.take_datagram_outcomes(slot);
        let Some(conn) = self.conns.get_mut(slot) else { return false };
        if conn.pending.udp_flows.is_empty() || !conn.handshake.established {
            return false;
        }
        let flows = self.udp_flows.len();
        // Where a flow of QUIC waits, the others may not fill the transport beyond what that flow may have in it:
        // otherwise it finds room for single datagrams only.
        let waiting = conn.pending.udp_flows.iter().filter_map(|slot| self.udp_flows.get(*slot));
        // A slot may be that of another connection's flow by now.
        let waiting = waiting.filter(|flow| flow.conn == conn.id);
        let most = waiting.filter_map(|flow| flow.repair.as_ref()?.transport_datagrams).min();
        conn.pending.max_transport_datagrams = most.unwrap_or(SEND_QUEUE_FRAMES);
        let largest_packet_bytes = usize::from(self.tunnel.max_udp_payload_bytes);
        let (mut ends, mut answered, mut more) = (Vec::new(), Vec::new(), false);
        let (mut too_large, mut dropped, mut datagrams, mut bytes) = (0, 0, 0, 0);
        let (mut capsules, mut retransmitted, mut late, mut redundancy) = (0, 0, 0, 0);
        // Flows that the transport has no room for. They are the first in the next turn, and until then only media go
        // before them: a flow that may leave more in the transport would always do so.
        let mut unserved = Vec::new();
        for _ in 0..conn.pending.udp_flows.len() {
            let Some(flow_slot) = conn.pending.udp_flows.pop_front() else { break };
            let Some(flow) = self.udp_flows.get_mut(flow_slot).filter(|it| it.conn == conn.id)
            else {
                continue;
            };
            flow.ready = false;
            if flow.readable {
                let limit = flow.queue_limit(flows);
                match flow.read(
                    &mut self.buffers.udp_receive,
                    limit,
                    !conn.quic.is_server(),
                    self.now,
                ) {
                    Ok(old) => dropped += old,
                    Err(error) => {
                        let destination = &flow.label.destination;
                        tracing::info!(%destination, %error, "UDP flow failed");
                        ends.push((flow_slot, FlowEnd::LocalReset));
                        continue;
                    }
                }
            }
            if conn.quic.is_server() && !flow.queue.is_empty() {
                if flow.admission.is_unanswered() {
                    // It has its turn once it is admitted.
                    answered.push(flow_slot);
                    continue;
                }
                flow.admission.end_set_up(None, self.now);
            }
            let in_turn = flow.begin_turn(conn, self.now);
            (late, dropped) = (late + in_turn.late, dropped + in_turn.queue);
            let mut is_unserved = !unserved.is_empty() && flow.medium.is_none();
            let mut waits = is_unserved;
            let turn = if is_unserved { 0 } else { MAX_TURN_DATAGRAMS };
            for sent in 0..turn {
                match flow.send_front(conn, largest_packet_bytes, self.now) {
                    Some(
                        outcome @ (DatagramOutcome::Yes(payload)
                        | DatagramOutcome::InCapsule(payload)),
                    ) => {
                        capsules += u64::from(matches!(outcome, DatagramOutcome::InCapsule(_)));
                        datagrams += 1;
                        bytes += payload;
                        flow.traffic.sent_bytes += payload;
                    }
                    Some(DatagramOutcome::Again) => retransmitted += 1,
                    Some(DatagramOutcome::Redundancy) => redundancy += 1,
                    Some(DatagramOutcome::Rest) => {}
                    Some(DatagramOutcome::TooLarge) => too_large += 1,
                    Some(DatagramOutcome::Later) => {
                        waits = true;
                        is_unserved = sent == 0 && flow.transport_room(conn) == 0;
                        break;
                    }
                    Some(DatagramOutcome::Gone) => {
                        ends.push((flow_slot, FlowEnd::RemoteReset));
                        break;
                    }
                    None => break,
                }
            }
            if flow.has_something() {
                flow.ready = true;
                more |= !waits;
                match is_unserved {
                    true => unserved.push(flow_slot),
                    false => conn.pending.udp_flows.push_back(flow_slot),
                }
            }
        }
        for flow_slot in unserved.into_iter().rev() {
            conn.pending.udp_flows.push_front(flow_slot);
        }
        self.counters.bytes(conn.quic.is_server(), bytes);
        self.counters.datagrams(conn.quic.is_server(), datagrams);
        if capsules > 0 {
            self.shared.metrics.datagram_capsules.inc_by(capsules);
        }
        if too_large > 0 {
            self.shared.metrics.drops.of(Drop::DatagramTooLarge).inc_by(too_large);
        }
        self.count_queue_drops(dropped);
        let repairs = &self.shared.metrics.datagram_repairs;
        repairs.add(DatagramRepair::Retransmitted, retransmitted);
        repairs.add(DatagramRepair::Late, late);
        repairs.add(DatagramRepair::Redundancy, redundancy);
        for (flow, end) in ends {
            self.end_datagrams(flow, end);
        }
        for flow in answered {
            if self.datagrams_answered(flow) {
                self.datagrams_ready(flow);
                more = true;
            }
        }
        more
    }

    /// Tells the flows of a connection which of their datagrams have arrived and which are lost. Whether one is to be
    /// sent again.
    pub(crate) fn take_datagram_outcomes(&mut self, slot: usize) -> bool {
        let (mut repaired, mut unrepaired) = (None, 0);
        while let Some(conn) = self.conns.get_mut(slot) {
            let Some(outcome) = conn.quic.dgram_outcome() else { break };
            let (stream, number) = stream_and_number(outcome.id);
            let Some(&Owner::Datagrams(flow_slot)) = conn.http.streams.get(&stream) else {
                continue;
            };
            let flow = self.udp_flows.get_mut(flow_slot);
            let Some(repair) = flow.and_then(|flow| flow.repair.as_mut()) else { continue };
            match repair.sender.on_outcome(number, outcome.acked, self.now) {
                AfterOutcome::Nothing => {}
                AfterOutcome::TooLate => unrepaired += 1,
                AfterOutcome::Retransmit => {
                    if repaired.replace(flow_slot) != Some(flow_slot) {
                        self.datagrams_ready(flow_slot);
                    }
                }
            }
        }
        self.shared.metrics.datagram_repairs.add(DatagramRepair::Unrepaired, unrepaired);
        repaired.is_some()
    }
}
