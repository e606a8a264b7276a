//! UDP flows: datagrams on this side, CONNECT-UDP (RFC 9298) on the other.
//!
//! Payloads travel in QUIC DATAGRAM frames (RFC 9297, Section 2.1), towards a peer without them in DATAGRAM capsules on
//! the stream. No datagram waits for another one: what the congestion controller holds back waits in a [`Queue`], of
//! which each flow has its own, and the flows of a connection take turns. `send` is the way into the tunnel, `receive`
//! the way out of it. `repair` retransmits lost packets of media and of QUIC; those of QUIC leave the tunnel in order.

pub(crate) mod local_socket;
pub(crate) mod media_peer;
pub(crate) mod queue;
pub(crate) mod receive;
pub(crate) mod repair;
pub(crate) mod send;
pub(crate) mod traffic;
pub(crate) mod unanswered;

use std::io;
use std::time::Duration;

use millrace_config::Protocol;
use millrace_wire::capsule::Capsules;
use millrace_wire::repair::RepairMethods;
use quiche::h3;

pub use local_socket::LocalSocket;
pub use media_peer::MediaPeer;
pub use queue::{Queue, QueueLimit};
pub(crate) use receive::{DatagramRun, Early};
pub(crate) use repair::FlowRepair;
#[cfg(feature = "fuzzing")]
pub use repair::{fuzzing, in_order_fuzzing};
pub(crate) use traffic::DatagramTraffic;
pub(crate) use unanswered::Unanswered;
pub use unanswered::UnansweredPlace;

use crate::admitted::Admitted;
use crate::conn_id::ConnId;
use crate::flow_info::{FlowSeen, FlowState};
use crate::flow_label::FlowLabel;
use crate::rtsp::Medium;

/// Received DATAGRAM frames that quiche may hold. They are taken when there are
/// [`RECEIVE_THRESHOLD_FRAMES`] of them, so that none is thrown away unseen: a packet has at most some hundreds.
pub(crate) const RECEIVE_QUEUE_FRAMES: usize = 1024;
/// Received DATAGRAM frames at which the receive queue is emptied.
pub(crate) const RECEIVE_THRESHOLD_FRAMES: usize = 256;
/// DATAGRAM frames that quiche may hold for the controller: one message's worth. More would be
/// beyond the reach of the rule that the oldest go first.
pub(crate) const SEND_QUEUE_FRAMES: usize = 64;

/// What [`Core::start_datagrams`](crate::event_loop::Core::start_datagrams) needs.
#[derive(Debug)]
pub struct DatagramsStart {
    /// The connection.
    pub conn: ConnId,
    /// The stream of the request, which has been answered with 2xx.
    pub stream: u64,
    /// The local socket.
    pub socket: LocalSocket,
    /// For logs and `/flows`.
    pub label: FlowLabel,
    /// The flow's place among those allowed.
    pub admission: Admitted,
    /// The role's key, for [`TunnelEvent::DatagramsEnded`](crate::tunnel_event::TunnelEvent::DatagramsEnded).
    pub key: u64,
    /// Whether the peer has ended the stream already.
    pub finished: bool,
    /// The medium that it carries, if an RTSP connection has set it up; it ends with that, and not
    /// before.
    pub medium: Option<Medium>,
    /// The methods of repair that both ends use.
    pub repair: RepairMethods,
}

/// A UDP flow that runs, for its owner. Numbers are reused, keys are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramsId {
    pub(crate) slot: usize,
    pub(crate) key: u64,
}

/// A UDP flow.
#[derive(Debug)]
pub(crate) struct UdpFlow {
    pub(crate) conn: ConnId,
    pub(crate) stream: u64,
    pub(crate) socket: LocalSocket,
    pub(crate) label: FlowLabel,
    pub(crate) key: u64,
    pub(crate) traffic: DatagramTraffic,
    /// In the connection's list of flows with something to send.
    pub(crate) ready: bool,
    /// Its own socket may have something.
    pub(crate) readable: bool,
    pub(crate) queue: Queue,
    pub(crate) capsules: Capsules,
    pub(crate) medium: Option<Medium>,
    /// How long its datagrams may wait, if they are of a medium.
    pub(crate) deadline: Option<Duration>,
    /// If both ends repair what gets lost.
    pub(crate) repair: Option<Box<FlowRepair>>,
    pub(crate) admission: Admitted,
}

/// What a UDP flow carries, as far as it matters for repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpContent {
    /// RTP or RTCP of an RTSP player.
    Media,
    /// QUIC.
    Quic,
    /// Anything else.
    Other,
}

/// Tells the numbers of UDP flows from those of others.
const UDP_NUMBER: u64 = 1 << 31;

impl UdpFlow {
    /// Whether `error` of its socket is its end. Media go on as long as the RTSP
    /// connection lives: many players have nothing at the port for RTCP.
    pub(crate) fn ends_with(&self, error: &io::Error) -> bool {
        let ends = self.medium.as_ref().is_none_or(Medium::is_orphaned);
        ends && self.socket.is_fatal(error)
    }

    /// Whether packets of QUIC are repaired in it.
    pub(crate) fn is_in_order(&self) -> bool {
        self.repair.as_ref().is_some_and(|repair| repair.is_in_order())
    }

    /// What may wait in it, where there are so many flows.
    pub(crate) fn queue_limit(&self, flows: usize) -> QueueLimit {
        QueueLimit::of_flow(flows, self.medium.is_some() || self.is_in_order())
    }

    /// Whether it may have something to send.
    pub(crate) fn has_something(&self) -> bool {
        self.readable
            || !self.queue.is_empty()
            || self.repair.as_ref().is_some_and(|it| it.sender.has_pending())
    }

    /// Bytes that it holds.
    pub(crate) fn held_bytes(&self) -> u64 {
        let repair = self.repair.as_ref().map_or(0, |it| it.held_bytes());
        (self.queue.bytes() + repair) as u64
    }

    /// What is shown of it.
    pub(crate) fn seen(&self, slot: usize) -> FlowSeen<'_> {
        FlowSeen {
            number: UDP_NUMBER | slot as u64,
            protocol: Protocol::Udp,
            label: &self.label,
            opened: self.traffic.opened,
            sent_bytes: self.traffic.sent_bytes,
            received_bytes: self.traffic.received_bytes,
            rate_mbps: self.traffic.rate_mbps(),
            state: FlowState::Open,
            player: None,
            rate_cap_mbps: None,
            queue: None,
        }
    }
}

/// Silence after which a UDP flow ends while this process or the peer's is about to: it can't tell
/// whether it is over, and must not hold either up for nothing.
pub(crate) const DRAIN_IDLE_TIMEOUT: Duration = Duration::from_secs(2);

/// Whether UDP flows can be asked for on a connection: its peer has said that it takes extended
/// CONNECT (RFC 9220) and datagrams (RFC 9297). `None` while that is not known.
pub fn offered(h3: &h3::Connection, quic: &quiche::Connection) -> Option<bool> {
    h3.peer_settings_raw()?;
    Some(h3.extended_connect_enabled_by_peer() && h3.dgram_enabled_by_peer(quic))
}
