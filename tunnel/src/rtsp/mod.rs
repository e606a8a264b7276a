//! RTP over UDP of RTSP players (RFC 2326): what a SETUP in a TCP flow agrees on becomes UDP flows
//! (CONNECT-UDP, RFC 9298) beside it.
//!
//! `reader` finds messages, `follow` is the state machine of both ends, `ports` are the sockets. This module ties media
//! to the flow that set them up: they begin and end with it, on its connection.

pub(crate) mod candidate;
pub(crate) mod flow_rtsp;
pub(crate) mod follow;
pub(crate) mod ports;
mod reader;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use millrace_wire::Destination;

use crate::conn_id::ConnId;
use crate::datagrams::Near;
use crate::shared::PairPlace;

use follow::Follower;
#[cfg(fuzzing)]
pub use follow::fuzzing;
use ports::UdpPairs;

/// At which end the SETUP requests of a flow are followed.
#[derive(Clone, Copy, Debug)]
pub enum Rtsp {
    /// At the player's end.
    Client {
        /// The address of the player.
        player: SocketAddr,
        /// The origin's address, if the interception is transparent to the player.
        origin: Option<IpAddr>,
        /// Whether the server has said already that it follows RTSP too.
        agreed: bool,
        /// The number of the client's connection group of the flow, for [`NewMedium`].
        group: usize,
    },
    /// At the origin's.
    Server,
}

/// Whether the RTSP messages of a flow are followed.
#[derive(Clone, Copy, Debug, Default)]
pub enum RtspFollowing {
    /// It is known to be no RTSP, or not to be followed.
    #[default]
    Never,
    /// From its first byte on; for flows of class `rtsp`.
    FromStart(Rtsp),
    /// From the player's first request on, if the player's first bytes are one; for flows of any class.
    OnceRecognised(Rtsp),
}

/// Which medium of which RTSP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediumId {
    /// The connection of the RTSP flow, and so of the medium's flows.
    pub conn: ConnId,
    /// The RTSP flow's stream.
    pub stream: u64,
    pub(crate) number: u32,
}

/// What a UDP flow belongs to that an RTSP connection has set up.
#[derive(Clone, Debug)]
pub struct Medium {
    /// Which.
    pub id: MediumId,
    /// Held for as long as a port of it is.
    pub(crate) _place: Arc<PairPlace>,
}

/// One of a medium's two flows, at the client.
#[derive(Debug)]
pub struct MediumFlow {
    /// The socket towards the player.
    pub near: Near,
    /// What the server is asked for.
    pub destination: Destination,
    /// What it belongs to.
    pub medium: Medium,
}

/// A medium that a client has to ask for; see [`TunnelEvent::MediumSetUp`](crate::tunnel_event::TunnelEvent::MediumSetUp).
#[derive(Debug)]
pub struct NewMedium {
    /// Of [`Rtsp::Client`].
    pub group: usize,
    /// Of [`Rtsp::Client`].
    pub player: SocketAddr,
    /// RTP and RTCP.
    pub flows: [MediumFlow; 2],
}

/// A port at the server that waits for its CONNECT-UDP request.
#[derive(Debug)]
pub(crate) struct Reserved {
    pub(crate) destination: String,
    pub(crate) near: Near,
    pub(crate) medium: Medium,
}

/// By connection, stream of the RTSP flow, and the origin's port. As many as there are places.
pub(crate) type AllReserved = std::collections::HashMap<(ConnId, u64, u16), Reserved>;

/// What a flow has that is followed.
#[derive(Debug)]
pub(crate) struct RtspFlow {
    pub(crate) follower: Follower<UdpPairs>,
    pub(crate) rtsp: Rtsp,
}

impl RtspFlow {
    /// Takes what the flow's socket brought; what goes to the stream instead.
    pub(crate) fn socket_brought(&mut self, bytes: &[u8]) -> Vec<u8> {
        match self.rtsp {
            Rtsp::Client { .. } => self.follower.requests(bytes),
            Rtsp::Server => self.follower.answers(bytes),
        }
    }

    /// Takes what the stream brought; what goes to the socket instead.
    pub(crate) fn stream_brought(&mut self, bytes: &[u8]) -> Vec<u8> {
        match self.rtsp {
            Rtsp::Client { .. } => self.follower.answers(bytes),
            Rtsp::Server => self.follower.requests(bytes),
        }
    }

    /// The socket has ended: what was held of it.
    pub(crate) fn end_of_socket(&mut self) -> Vec<u8> {
        match self.rtsp {
            Rtsp::Client { .. } => self.follower.end_requests(),
            Rtsp::Server => self.follower.end_answers(),
        }
    }

    /// The stream has ended: what was held of it.
    pub(crate) fn end_of_stream(&mut self) -> Vec<u8> {
        match self.rtsp {
            Rtsp::Client { .. } => self.follower.end_answers(),
            Rtsp::Server => self.follower.end_requests(),
        }
    }

    /// The server follows RTSP too.
    pub(crate) fn agree(&mut self) {
        self.follower.agree();
    }
}

impl Medium {
    /// Whether it belongs to this RTSP flow, and is the one of this number if one is given.
    pub fn is_of(&self, conn: ConnId, stream: u64, number: Option<u32>) -> bool {
        let MediumId { conn: its, stream: own, number: this } = self.id;
        (its, own) == (conn, stream) && number.is_none_or(|number| number == this)
    }
}
