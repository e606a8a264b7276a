//! Memory of connections and flows: accounting, and resets above the cap.

use crate::conn::Conn;
use crate::event_loop::core::Core;
use crate::flow_end::FlowEnd;
use crate::memory::{
    CONNECTION_BYTES, Candidate, EvictedFlows, HeldBytes, IN_FLIGHT_DIVISOR, MIN_RESET_AGE, choose,
    share_of_excess, window_limit,
};
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

impl Conn {
    /// Its memory, without the buffers of its flows.
    fn held_bytes(&self) -> HeldBytes {
        let quic = self.quic.held_bytes();
        let in_flight = self.quic.bytes_in_flight() as u64 / IN_FLIGHT_DIVISOR;
        // The number of those that are not authenticated is limited by itself.
        let fixed = if self.handshake.handshake_place.is_some() { 0 } else { CONNECTION_BYTES };
        HeldBytes {
            bytes: fixed + quic.received + quic.sent + in_flight,
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
            self.free(MemoryLimit::Process, excess, |_| true);
        }
    }

    /// Resets flows of the connections that `select` picks, until `excess` bytes above `limit` are free: TCP flows, then
    /// UDP flows.
    fn free(&mut self, limit: MemoryLimit, excess: u64, select: impl Fn(usize) -> bool) {
        let tcp = self.evict(excess, &select);
        let udp = self.evict_udp(excess.saturating_sub(tcp.bytes), select);
        let evicted = EvictedFlows { flows: tcp.flows + udp.flows, bytes: tcp.bytes + udp.bytes };
        if evicted.flows > 0 {
            self.log_evictions(limit, evicted);
        }
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
            let excess = share_of_excess(own, total, cap);
            self.free(MemoryLimit::Client, excess, |slot| slots.contains(&slot));
        }
    }

    /// Ends UDP flows of the connections that `select` picks, those that hold most first, until `excess` bytes are free.
    fn evict_udp(&mut self, excess: u64, select: impl Fn(usize) -> bool) -> EvictedFlows {
        let mut evicted = EvictedFlows::default();
        if excess == 0 {
            return evicted;
        }
        let held = self.udp_flows.iter().filter(|(_, flow)| select(flow.conn.slot));
        let mut held: Vec<_> =
            held.map(|(slot, flow)| (flow.held_bytes(), slot, flow.conn.slot)).collect();
        held.sort_unstable_by_key(|(bytes, ..)| Reverse(*bytes));
        for (bytes, slot, conn) in held.into_iter().filter(|(bytes, ..)| *bytes > 0) {
            if evicted.bytes >= excess {
                break;
            }
            self.end_datagrams(slot, FlowEnd::Memory);
            self.release(conn, bytes);
            evicted.flows += 1;
            evicted.bytes += bytes;
        }
        evicted
    }

    /// Resets TCP flows of the connections that `select` picks, until `excess` bytes are free.
    fn evict(&mut self, excess: u64, select: impl Fn(usize) -> bool) -> EvictedFlows {
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
        for it in &chosen {
            self.end_flow(it.slot, FlowEnd::Memory);
            self.release(it.conn, it.held);
        }
        EvictedFlows { flows: chosen.len(), bytes: chosen.iter().map(|it| it.held).sum() }
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

    /// Logs evictions above one limit, at most once in an interval for each limit, with those since the last time.
    fn log_evictions(&mut self, limit: MemoryLimit, evicted: EvictedFlows) {
        let log = match limit {
            MemoryLimit::Process => &mut self.memory.process_evictions,
            MemoryLimit::Client => &mut self.memory.client_evictions,
        };
        let Some(EvictedFlows { flows, bytes }) = log.add(self.now, evicted) else { return };
        match limit {
            MemoryLimit::Process => tracing::warn!(
                flows,
                freed_bytes = bytes,
                used_bytes = self.shared.memory.bytes(),
                cap_bytes = self.shared.memory.cap(),
                "tunnel.memory_cap_mb reached: flows reset, those first whose readers are slowest"
            ),
            MemoryLimit::Client => tracing::warn!(
                flows,
                freed_bytes = bytes,
                "limits.memory_per_client_mb reached: flows of the client reset, those first whose readers are slowest"
            ),
        }
    }
}

/// What flows hold more of than they may.
#[derive(Clone, Copy, Debug)]
enum MemoryLimit {
    /// `tunnel.memory_cap_mb`.
    Process,
    /// `limits.memory_per_client_mb`.
    Client,
}
