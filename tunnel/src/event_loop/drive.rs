//! How bytes move: one connection's turn in the loop.

use std::time::Instant;

use crate::conn::Flushed;
use crate::event_loop::core::Core;
use crate::event_loop::state::SCRATCH_BYTES;
use crate::flow::{self, Pump};
use crate::flow_end::FlowEnd;
use crate::queued_relay;
use crate::tunnel_event::TunnelEvent;

/// Stream data that may wait unsent in a connection. Enough for several messages, little
/// enough that what controls the rate is the congestion controller and not a queue here.
pub(crate) const SEND_AHEAD_BYTES: usize = 256 << 10;
/// What one connection may send before the others have their turn.
const MAX_BYTES_PER_TURN: usize = 1 << 20;

impl Core {
    /// Lets a connection do all that it can do now.
    pub(crate) fn drive(&mut self, slot: usize) {
        let Some(conn) = self.conns.get_mut(slot) else { return };
        conn.pending.drive = false;
        conn.memory.was_driven = true;
        let mut turn_bytes = 0;
        let paced = loop {
            self.handle_streams(slot);
            self.pump_writable(slot);
            let Some(conn) = self.conns.get_mut(slot) else { return };
            let news = std::mem::take(&mut conn.pending.had_input);
            if let Some(agent) = self.tunnel.agent.as_mut().filter(|_| news) {
                conn.report_to_selector(agent, self.now);
            }
            let more = if news && std::mem::take(&mut conn.pending.wants_writable) {
                // Flows would take the room before the role can.
                self.pending.events.push_back(TunnelEvent::Writable(conn.id));
                // They have their turn after it.
                self.mark_pending(slot);
                false
            } else {
                self.pump_ready(slot)
            };
            let more_datagrams = self.pump_datagrams(slot);
            let more = more || more_datagrams;
            if std::mem::take(&mut self.pending.needs_h3_poll) {
                // What was read may have been the last before the end of its stream.
                self.handle_streams(slot);
            }
            let flushed = self.flush(slot, MAX_BYTES_PER_TURN);
            let Some(conn) = self.conns.get(slot) else { return };
            // Datagrams may have waited only for room in the transport.
            let more = more || conn.has_room_for_waiting_datagrams();
            // Losses show when the transport is about to send.
            if self.take_datagram_outcomes(slot) {
                self.mark_pending(slot);
            }
            turn_bytes += SEND_AHEAD_BYTES;
            match flushed {
                Flushed::Paced(at, false) => break Some(at),
                // All that was left of them had to be dropped: others may have come.
                Flushed::All(false) if more_datagrams => {
                    self.mark_pending(slot);
                    break None;
                }
                Flushed::All(false) | Flushed::Full | Flushed::Blocked => break None,
                Flushed::Paced(_, true) | Flushed::All(true) if !more => break None,
                _ if turn_bytes >= MAX_BYTES_PER_TURN => {
                    self.mark_pending(slot);
                    break None;
                }
                _ => {}
            }
        };
        self.settle(slot, paced);
    }

    /// After a drive: a closed connection goes, any other is waited for.
    fn settle(&mut self, slot: usize, paced: Option<Instant>) {
        let Some(conn) = self.conns.get_mut(slot) else { return };
        if conn.quic.is_closed() {
            self.remove(slot);
            return;
        }
        let paced = paced.or_else(|| {
            let release = conn.quic.get_next_release_time()?;
            release.time(self.now + conn.pacing_lead(self.is_busy))
        });
        let next = [paced, conn.timeout()].into_iter().flatten().min();
        self.pending.deadlines.set(slot, next);
    }

    /// Moves data to sockets that have room again. It does not wait for what other flows send.
    fn pump_writable(&mut self, slot: usize) {
        while let Some(conn) = self.conns.get_mut(slot)
            && let Some(flow_slot) = conn.pending.writable_flows.pop()
        {
            let id = conn.id;
            // The flow of the event may have ended, and another one have its slot.
            if self.flows.get(flow_slot).is_some_and(|flow| flow.conn == id) {
                self.pending.needs_h3_poll |= self.pump_to_socket(flow_slot);
            }
        }
    }

    /// Pumps flows in turn while the connection can take more. Whether some are left over.
    fn pump_ready(&mut self, slot: usize) -> bool {
        let mut turns = match self.conns.get(slot) {
            Some(conn) => conn.pending.flows.len().max(SEND_AHEAD_BYTES / SCRATCH_BYTES * 4),
            None => return false,
        };
        while turns > 0 {
            turns -= 1;
            let conn = &mut self.conns[slot];
            if conn.quic.stream_bytes_waiting() >= SEND_AHEAD_BYTES {
                break;
            }
            let Some(h3) = conn.http.h3.as_mut() else { break };
            let Some(flow_slot) = conn.pending.flows.pop_front() else { break };
            let Some(flow) = self.flows.get_mut(flow_slot).filter(|flow| flow.conn == conn.id)
            else {
                continue;
            };
            flow.state.queued = false;
            let before = flow.traffic.sent_bytes;
            let scratch = &mut self.buffers.scratch;
            let up = queued_relay::pump_to_stream(flow, &mut conn.quic, h3, scratch, self.now);
            self.counters.bytes(conn.quic.is_server(), flow.traffic.sent_bytes - before);
            if conn.quic.is_server() && flow.traffic.sent_bytes > before {
                flow.admission.end_set_up(None, self.now);
            }
            let news = flow.rtsp.is_some();
            match up {
                Pump::More => {
                    flow.state.queued = true;
                    conn.pending.flows.push_back(flow_slot);
                }
                Pump::Wait => {
                    let at = flow::rate_cap_deadline(flow, self.now);
                    self.pending.capped_flows.set(flow_slot, at);
                }
                Pump::Failed(end) => {
                    self.end_flow(flow_slot, end);
                    continue;
                }
            }
            if news {
                self.handle_rtsp_events(flow_slot);
            }
            self.pending.needs_h3_poll |= self.pump_to_socket(flow_slot);
        }
        self.conns.get(slot).is_some_and(|conn| !conn.pending.flows.is_empty())
    }

    /// Moves all that a flow's socket takes; whether anything moved.
    pub(crate) fn pump_to_socket(&mut self, flow_slot: usize) -> bool {
        let Some(flow) = self.flows.get_mut(flow_slot) else { return false };
        let Some(conn) = self.conns.get_mut(flow.conn.slot) else { return false };
        let Some(h3) = conn.http.h3.as_mut() else { return false };
        // Early data can be replayed by an attacker: nothing of it goes out before the
        // handshake has proved that the peer sent it now (RFC 8446, Section 8).
        if !conn.quic.is_established() {
            return false;
        }
        let (mut moved, before) = (false, flow.traffic.received_bytes);
        let pumped = loop {
            match flow.pump_to_socket(&mut conn.quic, h3, &mut self.buffers.scratch, self.now) {
                Pump::More => moved = true,
                other => break other,
            }
        };
        self.counters.bytes(!conn.quic.is_server(), flow.traffic.received_bytes - before);
        if !conn.quic.is_server() && flow.traffic.received_bytes > before {
            flow.admission.end_set_up(None, self.now);
        }
        if flow.rtsp.is_some() {
            self.handle_rtsp_events(flow_slot);
        }
        self.report_player(flow_slot);
        let Some(flow) = self.flows.get(flow_slot) else { return moved };
        match pumped {
            Pump::Failed(end) => self.end_flow(flow_slot, end),
            _ if flow.complete() => self.end_flow(flow_slot, FlowEnd::Complete),
            _ => {}
        }
        moved
    }
}
