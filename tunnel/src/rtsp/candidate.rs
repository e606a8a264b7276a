//! Flows that may be RTSP: the player's first bytes tell, whenever they come and whatever the flow's class is.
//!
//! Bytes are passed on while they are undecided, because a peer of another protocol may wait for an answer to them. So
//! the first head of a flow that is recognised here stays as it is. Both ends see the same first head, and decide alike.

use std::net::SocketAddr;
use std::sync::Arc;

use millrace_wire::Parsed;
use millrace_wire::first_bytes::{MAX_REQUEST_LINE_BYTES, parse_rtsp_start};

use super::follow::{Follower, Side};
use super::ports::{Peer, UdpPairs};
use super::{Rtsp, RtspFlow};
use crate::flow_owner::Viewer;
use crate::metrics::FlowRecognition;
use crate::shared::Shared;
use crate::socket::Socket;
use crate::source_address::source_address;
use crate::udp::UdpPort;

/// A flow that may turn out to be RTSP.
#[derive(Debug)]
pub(crate) struct RtspCandidate {
    rtsp: Rtsp,
    shared: Arc<Shared>,
    viewer: Viewer,
    /// The player's first bytes so far, which have been passed on; at most [`MAX_REQUEST_LINE_BYTES`].
    first: Vec<u8>,
}

/// What the player's first bytes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// More are needed.
    Undecided,
    /// Another protocol.
    NotRtsp,
    /// An RTSP request, whose beginning ends after so many of the last bytes.
    Rtsp(usize),
}

impl RtspCandidate {
    pub(crate) fn new(rtsp: Rtsp, shared: Arc<Shared>, viewer: Viewer) -> Self {
        Self { rtsp, shared, viewer, first: Vec::new() }
    }

    /// Whether the player is at the socket, and not beyond the stream.
    pub(crate) fn has_player_at_socket(&self) -> bool {
        matches!(self.rtsp, Rtsp::Client { .. })
    }

    /// The server follows RTSP too.
    pub(crate) fn agree(&mut self) {
        if let Rtsp::Client { agreed, .. } = &mut self.rtsp {
            *agreed = true;
        }
    }

    /// Takes the next of the player's first bytes.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Verdict {
        let before = self.first.len();
        let room = MAX_REQUEST_LINE_BYTES.saturating_sub(before).min(bytes.len());
        self.first.extend_from_slice(&bytes[..room]);
        match parse_rtsp_start(&self.first) {
            Ok(Parsed::Incomplete) => Verdict::Undecided,
            Ok(Parsed::Complete { consumed, .. }) => {
                self.first.truncate(consumed);
                Verdict::Rtsp(consumed - before)
            }
            Err(_) => Verdict::NotRtsp,
        }
    }

    /// Follows the flow from here on; the first bytes have been passed on. `None` where that is not possible.
    pub(crate) fn follow(self, socket: &Socket) -> Option<Box<RtspFlow>> {
        if self.has_player_at_socket() && !self.first.is_empty() {
            self.shared.metrics.flows_recognised.of(FlowRecognition::LateRtsp).inc();
        }
        let Self { rtsp, shared, viewer, first } = self;
        let (side, ports) = match rtsp {
            Rtsp::Client { player, origin, agreed, .. } => {
                let ip = player.ip().to_canonical();
                let own = source_address(SocketAddr::new(ip, player.port())).ok()?;
                // A player on this machine would send its packets to the origin directly.
                let origin = origin
                    .map(|it| it.to_canonical())
                    .filter(|it| own != ip && UdpPort::reserve((*it, 0).into(), true).is_ok());
                let source = origin.unwrap_or(own);
                let peer = Peer::Player(ip);
                let side = Side::Client { player: ip, source, agreed };
                (side, UdpPairs::new(shared, viewer, source, origin.is_some(), peer))
            }
            Rtsp::Server => {
                // The origin sends its media to the peer address of its TCP connection.
                let (local, origin) = socket.tcp_addresses()?;
                let peer = Peer::Origin(origin.ip());
                (Side::Server, UdpPairs::new(shared, viewer, local.ip(), false, peer))
            }
        };
        let follower = Follower::new(side, ports).after_passed(first);
        Some(Box::new(RtspFlow { follower, rtsp }))
    }
}
