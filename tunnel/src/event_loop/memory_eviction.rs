//! Memory of connections and flows: accounting, and resets above the cap.

use crate::conn::Conn;
use crate::event_loop::core::Core;
use crate::flow_end::FlowEnd;
use crate::memory::{
    CONNECTION_BYTES, Candidate, HeldBytes, IN_FLIGHT_DIVISOR, LOG_INTERVAL, MIN_RESET_AGE, choose,
    share_of_excess, window_limit,
};
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

impl Conn {
    /// Its memory, without the buffers of its flows.
    fn held_bytes(&self) -> HeldBytes {
        let quic = self.quic.held_bytes();
        let in_flight = self.quic.bytes_in_flight() as u64 / IN_FLIGHT_DIVISOR;
        // The number of those that are not authenticated is limited by itself.
        let fixed = if self.handshake.handshake_place.is_some() { 0 } else { CONNECTION_BYTES };
        HeldBytes {
            bytes: fixed + quic.received + quic.sent + in_flight + self.blocked_bytes(),
            promised_bytes: quic.excess_credit,
        }
    }
}

impl Core {
    /// Brings the counts of all connections up to date, and resets flows when they are too high.
    pub(crate) fn account_memory(&mut self) {
        for (_, conn) in &mut self.conns {
            conn.memory.relay_bytes = 0;
        }
        for (_, flow) in &self.flows {
            if let Some(conn) = self.conns.get_mut(flow.conn.slot) {
                conn.memory.relay_bytes += flow.held_bytes();
            }
        }
        for (_, flow) in &self.udp_flows {
            if let Some(conn) = self.conns.get_mut(flow.conn.slot) {
                conn.memory.relay_bytes += flow.held_bytes();
            }
        }
        for (_, conn) in &mut self.conns {
            if std::mem::take(&mut conn.memory.was_driven) {
                conn.memory.seen = conn.held_bytes();
            }
            let held = HeldBytes {
                bytes: conn.memory.seen.bytes + conn.memory.relay_bytes,
                ..conn.memory.seen
            };
            self.shared.memory.replace(conn.memory.held, held);
            if let Some(place) = &mut conn.handshake.peer_place {
                place.set_memory(held.bytes);
            }
            conn.memory.held = held;
        }
        self.shared.malloc_trim.observe(self.shared.metrics.flows_active.get());
        self.limit_windows();
        // Peers above their own limit first, so that they and not others pay for what they have too much.
        self.evict_for_peers();
        let own = self.conns.iter().map(|(_, conn)| conn.memory.held.bytes).sum();
        let excess = self.shared.memory.share_of_excess(own);
        if excess > 0 {
            self.free(excess, |_| true);
        }
    }

    /// Resets flows of the connections that `select` picks, until `excess` bytes are free: TCP flows, then UDP flows.
    fn free(&mut self, excess: u64, select: impl Fn(usize) -> bool) {
        let freed = self.evict(excess, &select);
        self.evict_udp(excess.saturating_sub(freed), select);
    }

    /// Limits the stream windows of all connections.
    fn limit_windows(&mut self) {
        let limit = window_limit(self.shared.memory.promised_bytes(), self.shared.memory.cap());
        if std::mem::replace(&mut self.memory.window_limit, limit) != limit {
            for (_, conn) in &mut self.conns {
                conn.quic.set_stream_window_limit(limit);
            }
        }
    }

    /// Resets flows of each peer that exceeds its memory limit.
    fn evict_for_peers(&mut self) {
        let mut full: HashMap<Arc<str>, (u64, u64, u64, HashSet<usize>)> = HashMap::new();
        for (slot, conn) in &self.conns {
            let Some(place) =
                conn.handshake.peer_place.as_ref().filter(|place| place.is_over_memory())
            else {
                continue;
            };
            let (own, total, cap, slots) = full.entry(place.name().clone()).or_default();
            *own += conn.memory.held.bytes;
            (*total, *cap) = place.memory();
            slots.insert(slot);
        }
        for (own, total, cap, slots) in full.into_values() {
            self.free(share_of_excess(own, total, cap), |slot| slots.contains(&slot));
        }
    }

    /// Ends UDP flows of the connections that `select` picks, those that hold most first, until `excess` bytes are free.
    fn evict_udp(&mut self, excess: u64, select: impl Fn(usize) -> bool) {
        if excess == 0 {
            return;
        }
        let held = self.udp_flows.iter().filter(|(_, flow)| select(flow.conn.slot));
        let mut held: Vec<_> =
            held.map(|(slot, flow)| (flow.held_bytes(), slot, flow.conn.slot)).collect();
        held.sort_unstable_by_key(|(bytes, ..)| Reverse(*bytes));
        let mut freed = 0;
        for (bytes, slot, conn) in held.into_iter().filter(|(bytes, ..)| *bytes > 0) {
            if freed >= excess {
                break;
            }
            self.end_datagrams(slot, FlowEnd::Memory);
            self.release(conn, bytes);
            self.memory.evicted_since_log += 1;
            freed += bytes;
        }
        if freed > 0 {
            self.log_evictions(self.now, freed);
        }
    }

    /// Resets TCP flows of the connections that `select` picks, until `excess` bytes are free. Returns how many are.
    fn evict(&mut self, excess: u64, select: impl Fn(usize) -> bool) -> u64 {
        let now = self.now;
        let candidates = self
            .flows
            .iter()
            .filter(|(_, flow)| select(flow.conn.slot))
            .filter(|(_, flow)| now.saturating_duration_since(flow.traffic.opened) >= MIN_RESET_AGE)
            .filter_map(|(slot, flow)| Some((slot, flow, self.conn(flow.conn)?)))
            .map(|(slot, flow, conn)| {
                let quic = conn.quic.stream_held_bytes(flow.stream);
                let age = now.saturating_duration_since(flow.traffic.opened);
                let queued = flow.rtsp.as_ref().map_or(0, |rtsp| rtsp.queued_bytes());
                let (down, up) = (quic.received + flow.held_bytes() - queued, quic.sent + queued);
                let drain_time =
                    flow.traffic.down.time_for(down, age).max(flow.traffic.up.time_for(up, age));
                let is_still = flow.traffic.down.is_still(down) || flow.traffic.up.is_still(up);
                Candidate { slot, conn: flow.conn.slot, held: down + up, drain_time, is_still }
            })
            .collect();
        let chosen = choose(candidates, excess);
        let freed = chosen.iter().map(|it| it.held).sum::<u64>();
        for it in &chosen {
            self.end_flow(it.slot, FlowEnd::Memory);
            self.release(it.conn, it.held);
        }
        if !chosen.is_empty() {
            self.memory.evicted_since_log += chosen.len();
            self.log_evictions(now, freed);
        }
        freed
    }

    /// Counts memory as released at once, so that other workers do not free the same amount again
    /// before the next tick.
    fn release(&mut self, slot: usize, bytes: u64) {
        let Some(conn) = self.conns.get_mut(slot) else { return };
        let left =
            HeldBytes { bytes: conn.memory.held.bytes.saturating_sub(bytes), ..conn.memory.held };
        self.shared.memory.replace(conn.memory.held, left);
        if let Some(place) = &mut conn.handshake.peer_place {
            place.set_memory(left.bytes);
        }
        conn.memory.held = left;
    }

    fn log_evictions(&mut self, now: Instant, freed: u64) {
        let is_due = self
            .memory
            .evictions_logged
            .is_none_or(|at| now.saturating_duration_since(at) >= LOG_INTERVAL);
        if is_due {
            self.memory.evictions_logged = Some(now);
            tracing::warn!(
                flows = std::mem::take(&mut self.memory.evicted_since_log),
                freed_bytes = freed,
                used_bytes = self.shared.memory.bytes(),
                cap_bytes = self.shared.memory.cap(),
                "memory cap reached: flows with the slowest readers reset"
            );
        }
    }
}
