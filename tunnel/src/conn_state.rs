//! The parts of a connection's state, by what they are for.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Instant;

use millrace_admission::peer_limits::{HandshakePlace, PeerPlace};
use quiche::h3;

use crate::datagrams::Early;
use crate::memory::HeldBytes;
use crate::probe::{PendingProbe, ProbeExchange};
use crate::stream_owner::Owner;

/// How datagrams reach a connection and its peer.
pub(crate) struct ConnAddress {
    /// Our connection IDs, for the worker's table.
    pub(crate) cids: Vec<Vec<u8>>,
    /// Which of the worker's UDP ports it uses.
    pub(crate) port: usize,
    /// The local address of its path, for a client; a server learns it with each packet.
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: SocketAddr,
}

/// HTTP/3 on a connection.
#[derive(Default)]
pub(crate) struct ConnHttp {
    pub(crate) h3: Option<h3::Connection>,
    pub(crate) streams: HashMap<u64, Owner>,
    pub(crate) peer_goaway: bool,
    /// The number after that of the peer's newest request.
    pub(crate) next_peer_stream: u64,
}

/// What a connection has to do.
#[derive(Default)]
pub(crate) struct ConnPending {
    /// In the worker's list of connections to drive.
    pub(crate) drive: bool,
    /// Flows that may have something to send, in turn.
    pub(crate) flows: VecDeque<usize>,
    /// Flows whose sockets have room again.
    pub(crate) writable_flows: Vec<usize>,
    /// UDP flows that may have something to send, in turn.
    pub(crate) udp_flows: VecDeque<usize>,
    /// Datagrams that flows other than media may have in the transport now.
    pub(crate) max_transport_datagrams: usize,
    /// Datagrams that are ahead of their flow.
    pub(crate) early: Early,
    /// A request or an answer found no room, and goes before flows when there is some.
    pub(crate) wants_writable: bool,
    /// In the list of connections that wait for the port.
    pub(crate) waits_for_port: bool,
    /// A packet or a timer has come since the last drive: only these make room.
    pub(crate) had_input: bool,
}

/// The handshake of a connection, and what its peer may take.
#[derive(Default)]
pub(crate) struct ConnHandshake {
    /// Whether the handshake's end has been handled.
    pub(crate) established: bool,
    /// The group of the handshake's key exchange, since its end.
    pub(crate) key_exchange: Option<&'static str>,
    /// Why it is to be refused, at a server that is full.
    pub(crate) refusal: Option<&'static [u8]>,
    /// While its handshake is under way, at a server.
    pub(crate) handshake_place: Option<HandshakePlace>,
    /// Once the peer is authenticated, at a server.
    pub(crate) peer_place: Option<PeerPlace>,
    /// When the peer got its newest token for later connections.
    pub(crate) token_issued: Option<Instant>,
}

/// The memory of a connection.
pub(crate) struct ConnMemory {
    /// What counts of it against the process's memory cap.
    pub(crate) held: HeldBytes,
    /// `held` without `relay_bytes`, at the last check.
    pub(crate) seen: HeldBytes,
    /// What the buffers of its flows take.
    pub(crate) relay_bytes: u64,
    /// It was driven since the last check.
    pub(crate) was_driven: bool,
}

/// When a connection sent and received.
pub(crate) struct ConnActivity {
    pub(crate) opened: Instant,
    pub(crate) last_sent: Instant,
    /// Datagrams have come since the packets received were last looked at.
    pub(crate) has_new_datagrams: bool,
    /// Packets received when they were last looked at, and when there were new ones.
    pub(crate) received_packets: usize,
    pub(crate) heard: Instant,
}

impl ConnActivity {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            opened: now,
            last_sent: now,
            has_new_datagrams: false,
            received_packets: 0,
            heard: now,
        }
    }
}

/// Health probes on a connection.
#[derive(Default)]
pub(crate) struct ConnProbes {
    /// The probe that this end has under way.
    pub(crate) asked: Option<PendingProbe>,
    /// The peer's probes that are being answered.
    pub(crate) answering: Vec<ProbeExchange>,
}
