//! UDP flows: datagrams on this side, CONNECT-UDP (RFC 9298) on the other.
//!
//! Payloads travel in QUIC DATAGRAM frames (RFC 9297, Section 2.1), towards a peer without them in
//! DATAGRAM capsules on the stream. Nothing is sent again, and nothing waits for something else:
//! what the congestion control does not let go waits in a [`Queue`], of which each flow has its own,
//! and the flows of a connection have turns. `send` is the way into the tunnel, `receive` the way
//! out of it.

mod near;
mod queue;
mod receive;
mod send;
mod unanswered;

use std::io;
use std::time::{Duration, Instant};

use millrace_config::Protocol;
use millrace_wire::capsule::Capsules;
use mio::{Interest, Token};
use quiche::h3;

pub use near::Near;
pub use queue::Queue;
pub(crate) use receive::{Early, Run};
pub(crate) use unanswered::Unanswered;
pub use unanswered::UnansweredPlace;

use crate::admin::{FlowSeen, FlowState};
use crate::conn::{ConnId, Owner};
use crate::core::{Core, H3_NO_ERROR, KIND_DATAGRAMS, KIND_SHIFT};
use crate::flow::{FlowEnd, FlowLabel, H3_CONNECT_ERROR, Meter};
use crate::flow_admission::Admitted;
use crate::role::Notice;
use crate::rtsp::Medium;

/// Received DATAGRAM frames that quiche may hold. They are taken when there are
/// [`TAKE_AT`] of them, so that none is thrown away unseen: a packet has at most some hundreds.
pub(crate) const RECEIVE_QUEUE: usize = 1024;
/// See [`RECEIVE_QUEUE`].
pub(crate) const TAKE_AT: usize = 256;
/// DATAGRAM frames that quiche may hold for the controller: one message's worth. More would be
/// beyond the reach of the rule that the oldest go first.
pub(crate) const SEND_QUEUE: usize = 64;

/// What [`Core::start_datagrams`] needs.
#[derive(Debug)]
pub struct DatagramsStart {
    /// The connection.
    pub conn: ConnId,
    /// The stream of the request, which has been answered with 2xx.
    pub stream: u64,
    /// The near end.
    pub near: Near,
    /// For people.
    pub label: FlowLabel,
    /// The flow's place among those allowed.
    pub admission: Admitted,
    /// The role's key, for [`Notice::DatagramsEnded`].
    pub key: u64,
    /// Whether the peer has ended the stream already.
    pub finished: bool,
    /// The medium that it carries, if an RTSP connection has set it up; it ends with that, and not
    /// before.
    pub medium: Option<Medium>,
}

/// A UDP flow that runs, for its owner. Numbers are used again, keys are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramsId {
    slot: usize,
    key: u64,
}

/// A UDP flow.
#[derive(Debug)]
pub(crate) struct UdpFlow {
    pub(crate) conn: ConnId,
    pub(crate) stream: u64,
    pub(crate) near: Near,
    pub(crate) label: FlowLabel,
    pub(crate) key: u64,
    pub(crate) opened: Instant,
    pub(crate) active: Instant,
    /// From the near end to the tunnel.
    pub(crate) sent_bytes: u64,
    /// From the tunnel to the near end.
    pub(crate) received_bytes: u64,
    pub(crate) meter: Meter,
    /// In the connection's list of flows with something to send.
    pub(crate) ready: bool,
    /// Its own socket may have something.
    pub(crate) readable: bool,
    pub(crate) queue: Queue,
    pub(crate) capsules: Capsules,
    pub(crate) medium: Option<Medium>,
    pub(crate) admission: Admitted,
}

/// Tells the numbers of UDP flows from those of others.
const UDP_NUMBER: u64 = 1 << 31;

impl UdpFlow {
    /// Whether `error` of its socket is its end. Media go on: their ports are taken as long as the
    /// RTSP connection lives, and many players have nothing at the one for RTCP.
    pub(crate) fn ends_with(&self, error: &io::Error) -> bool {
        self.medium.is_none() && self.near.is_fatal(error)
    }

    /// What is shown of it.
    pub(crate) fn seen(&self, slot: usize) -> FlowSeen<'_> {
        FlowSeen {
            number: UDP_NUMBER | slot as u64,
            protocol: Protocol::Udp,
            label: &self.label,
            opened: self.opened,
            sent_bytes: self.sent_bytes,
            received_bytes: self.received_bytes,
            rate_mbps: self.meter.mbps(),
            state: FlowState::Open,
            player: None,
        }
    }
}

impl Core {
    /// Lets datagrams pass between `near` and a stream from now on. `None` when the connection is
    /// gone or the socket can't be watched.
    pub fn start_datagrams(&mut self, start: DatagramsStart) -> Option<DatagramsId> {
        let DatagramsStart { conn: id, stream, mut near, label, admission, key, finished, medium } =
            start;
        let slot = self.udp_flows.vacant_key();
        self.conn(id)?;
        if medium.as_ref().is_some_and(|medium| !self.has_rtsp_flow(medium.id)) {
            self.reset_stream(id, stream, H3_CONNECT_ERROR);
            return None;
        }
        if let Near::Own { port, .. } = &mut near {
            let token = Token(KIND_DATAGRAMS << KIND_SHIFT | slot);
            if let Err(error) = self.registry.register(port.source(), token, Interest::READABLE) {
                tracing::error!(%error, "a UDP flow's socket can't be watched");
                self.reset_stream(id, stream, H3_CONNECT_ERROR);
                return None;
            }
        }
        let readable = matches!(near, Near::Own { .. });
        if let Admitted::Unanswered(place) = &admission {
            place.runs_at(slot);
        }
        self.udp_flows.insert(UdpFlow {
            conn: id,
            stream,
            near,
            label,
            key,
            opened: self.now,
            active: self.now,
            sent_bytes: 0,
            received_bytes: 0,
            meter: Meter::default(),
            ready: false,
            readable,
            queue: Queue::default(),
            capsules: Capsules::default(),
            medium,
            admission,
        });
        let conn = self.conn_mut(id)?;
        conn.streams.insert(stream, Owner::Datagrams(slot));
        let early = conn.early.take(stream);
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

    /// Sends one datagram of a flow with a shared near end. `false` when the flow is over.
    pub fn send_datagram(&mut self, id: DatagramsId, payload: &[u8]) -> bool {
        let most_bytes = queue::share(self.udp_flows.len());
        let Some(flow) = self.udp_flows.get_mut(id.slot).filter(|flow| flow.key == id.key) else {
            return false;
        };
        flow.active = self.now;
        let dropped = flow.enqueue(payload, most_bytes);
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
            conn.ready_datagrams.push_back(slot);
        }
        self.mark_dirty(id.slot);
    }

    /// Takes a flow out, and lets the peer know.
    pub(crate) fn end_datagrams(&mut self, slot: usize, end: FlowEnd) {
        let Some(flow) = self.udp_flows.try_remove(slot) else { return };
        let UdpFlow { conn: id, stream, key, .. } = flow;
        if let Some(conn) = self.conn_mut(id) {
            match (end, &mut conn.h3) {
                (FlowEnd::Complete | FlowEnd::Idle, Some(h3)) => {
                    // An error only says that the direction has ended already.
                    let _ = h3.send_body(&mut conn.quic, stream, &[], true);
                    conn.abandon(stream, H3_NO_ERROR);
                }
                _ => conn.reset(stream, H3_CONNECT_ERROR),
            }
            self.mark_dirty(id.slot);
        }
        tracing::debug!(
            destination = %flow.label.destination,
            sent_bytes = flow.sent_bytes,
            received_bytes = flow.received_bytes,
            end = end.as_str(),
            "UDP flow ended"
        );
        // Silence is the only end that UDP itself has.
        self.count_end(if end == FlowEnd::Idle { FlowEnd::Complete } else { end });
        self.notices.push_back(Notice::DatagramsEnded { conn: id, key, end });
    }

    /// Ends the flows for which `select` gives a reason.
    pub(crate) fn end_datagram_flows(&mut self, select: impl Fn(&UdpFlow) -> Option<FlowEnd>) {
        let ends: Vec<_> =
            self.udp_flows.iter().filter_map(|(slot, flow)| Some((slot, select(flow)?))).collect();
        for (slot, end) in ends {
            self.end_datagrams(slot, end);
        }
    }

    /// Ends flows that have been silent for `patience`, or for [`DRAIN_IDLE`] where either end is
    /// about to go.
    pub(crate) fn end_silent_datagrams(&mut self, patience: Duration, draining: bool) {
        let now = self.now;
        let silent = |(slot, flow): (usize, &UdpFlow)| {
            let leaves = draining || self.conn(flow.conn).is_some_and(|conn| conn.peer_goaway);
            let patience = if leaves { patience.min(DRAIN_IDLE) } else { patience };
            // A player that pauses has nothing to ask for its media anew with.
            (flow.medium.is_none() && now.saturating_duration_since(flow.active) > patience)
                .then_some(slot)
        };
        let silent: Vec<_> = self.udp_flows.iter().filter_map(silent).collect();
        for slot in silent {
            self.end_datagrams(slot, FlowEnd::Idle);
        }
    }

    /// Called once a tick.
    pub(crate) fn tick_datagrams(&mut self) {
        let mut waiting = Vec::new();
        for (_, flow) in &mut self.udp_flows {
            flow.meter.tick(flow.sent_bytes + flow.received_bytes, Self::TICK);
            if flow.ready {
                // It may wait for a path MTU that is not going to be found.
                waiting.push(flow.conn.slot);
            }
        }
        for slot in waiting {
            self.mark_dirty(slot);
        }
        let now = self.now;
        for (_, conn) in &mut self.conns {
            conn.early.forget(now);
        }
    }

    pub(crate) fn count_queue_drops(&self, dropped: u64) {
        if dropped > 0 {
            self.shared.metrics.drops.of(crate::metrics::Drop::DatagramQueue).inc_by(dropped);
        }
    }
}

/// Silence after which a UDP flow ends while this process or the peer's is about to: it can't tell
/// whether it is over, and must not hold either up for nothing.
const DRAIN_IDLE: Duration = Duration::from_secs(2);

/// Whether UDP flows can be asked for on a connection: its peer has said that it takes extended
/// CONNECT (RFC 9220) and datagrams (RFC 9297). `None` while that is not known.
pub(crate) fn offered(h3: &h3::Connection, quic: &quiche::Connection) -> Option<bool> {
    h3.peer_settings_raw()?;
    Some(h3.extended_connect_enabled_by_peer() && h3.dgram_enabled_by_peer(quic))
}
