//! Datagrams on their way into the tunnel.

use crate::datagrams::queue::share;
use crate::datagrams::send::Sent;
use crate::datagrams::send::TURN;
use crate::event_loop::core::Core;
use crate::flow_end::FlowEnd;
use crate::metrics::Drop;

impl Core {
    /// Moves datagrams into a connection, its flows in turn. Whether there is more to do at once.
    pub(crate) fn pump_datagrams(&mut self, slot: usize) -> bool {
        let Some(conn) = self.conns.get_mut(slot) else { return false };
        if conn.pending.udp_flows.is_empty() || !conn.handshake.established {
            return false;
        }
        let most_bytes = share(self.udp_flows.len());
        let largest_packet_bytes = usize::from(self.tunnel.max_udp_payload_bytes);
        let (mut ends, mut answered, mut more) = (Vec::new(), Vec::new(), false);
        let (mut too_large, mut dropped, mut datagrams, mut bytes) = (0, 0, 0, 0);
        let mut capsules = 0;
        for _ in 0..conn.pending.udp_flows.len() {
            let Some(flow_slot) = conn.pending.udp_flows.pop_front() else { break };
            let Some(flow) = self.udp_flows.get_mut(flow_slot).filter(|it| it.conn == conn.id)
            else {
                continue;
            };
            flow.ready = false;
            if flow.readable {
                match flow.read(
                    &mut self.buffers.udp_receive,
                    most_bytes,
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
            if conn.quic.is_server() && flow.admission.is_unanswered() && !flow.queue.is_empty() {
                // It has its turn once it is admitted.
                answered.push(flow_slot);
                continue;
            }
            let mut waits = false;
            for _ in 0..TURN {
                match flow.send_front(conn, largest_packet_bytes, self.now) {
                    Some(sent @ (Sent::Yes(payload) | Sent::InCapsule(payload))) => {
                        capsules += u64::from(matches!(sent, Sent::InCapsule(_)));
                        datagrams += 1;
                        bytes += payload;
                        flow.traffic.sent_bytes += payload;
                    }
                    Some(Sent::TooLarge) => too_large += 1,
                    Some(Sent::Later) => {
                        waits = true;
                        break;
                    }
                    Some(Sent::Gone) => {
                        ends.push((flow_slot, FlowEnd::RemoteReset));
                        break;
                    }
                    None => break,
                }
            }
            if flow.readable || !flow.queue.is_empty() {
                flow.ready = true;
                conn.pending.udp_flows.push_back(flow_slot);
                more |= !waits;
            }
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
}
