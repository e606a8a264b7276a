//! RTP over UDP of RTSP players (RFC 2326): what a SETUP in a TCP flow agrees on becomes UDP flows
//! (CONNECT-UDP, RFC 9298) beside it.
//!
//! `reader` finds messages, `exchanges` matches answers with requests, `follow` is the agent of both ends, `ports` are the
//! sockets. This module ties media to the flow that set them up: they begin with it, on its connection, and end with a
//! TEARDOWN or some time after it ([`Medium::is_abandoned`]).
//!
//! `send_queue` holds what goes to a player at the server, RTP in the RTSP connection with it.

mod drop_log;
mod exchanges;
pub(crate) mod follow;
mod media_sources;
mod medium;
pub(crate) mod ports;
mod reader;
mod refusal;
mod refuser;
pub(crate) mod send_queue;

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use millrace_wire::Destination;

use crate::conn_id::ConnId;
use crate::datagrams::LocalSocket;

use drop_log::DropLog;
use follow::Follower;
#[cfg(feature = "fuzzing")]
pub use follow::fuzzing;
pub use media_sources::MediaSources;
pub use medium::{Medium, MediumId};
use ports::UdpPairs;
pub use refuser::UdpRefuser;
use send_queue::SendQueue;
#[cfg(feature = "fuzzing")]
pub use send_queue::fuzzing as queue_fuzzing;

/// At which end the SETUP requests of a flow are followed.
#[derive(Clone, Debug)]
pub enum Rtsp {
    /// At the player's end.
    Client {
        /// The address of the player.
        player: SocketAddr,
        /// The origin's address, if the interception is transparent to the player.
        origin: Option<IpAddr>,
        /// Whether the server follows RTSP too; `None` before it has said so.
        server_follows: Option<bool>,
        /// The number of the client's connection group of the flow, for [`NewMedium`].
        group: usize,
    },
    /// At the origin's.
    Server {
        /// From which addresses media may come that are not the origin's.
        media_sources: MediaSources,
        /// How long media in the connection may wait for the tunnel before frames are dropped; `None` keeps
        /// back-pressure.
        queue: Option<Duration>,
    },
}

/// One of a medium's two flows, at the client.
#[derive(Debug)]
pub struct MediumFlow {
    /// The socket towards the player.
    pub socket: LocalSocket,
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
    pub(crate) socket: LocalSocket,
    pub(crate) medium: Medium,
}

/// By connection, stream of the RTSP flow, and the origin's port. As many as there are places.
pub(crate) type AllReserved = std::collections::HashMap<(ConnId, u64, u16), Reserved>;

/// What a flow has that is followed.
#[derive(Debug)]
pub(crate) struct RtspFlow {
    pub(crate) follower: Follower<UdpPairs>,
    pub(crate) rtsp: Rtsp,
    /// Holds what goes to the stream, at a server.
    pub(crate) queue: Option<SendQueue>,
    /// When frames that the queue dropped were logged.
    pub(crate) drop_log: DropLog,
}

impl RtspFlow {
    pub(crate) fn new(follower: Follower<UdpPairs>, rtsp: Rtsp, queue: Option<SendQueue>) -> Self {
        Self { follower, rtsp, queue, drop_log: DropLog::default() }
    }

    /// Takes what the flow's socket brought; what goes to the stream instead and is not in the queue.
    pub(crate) fn on_socket_bytes(&mut self, bytes: &[u8], now: Instant) -> Vec<u8> {
        match self.rtsp {
            Rtsp::Client { .. } => self.follower.take_requests(bytes),
            Rtsp::Server { .. } => self.follower.take_answers(bytes),
        }
        self.for_stream(now)
    }

    /// Takes what the stream brought; what goes to the socket instead.
    pub(crate) fn on_stream_bytes(&mut self, bytes: &[u8]) -> Vec<u8> {
        match self.rtsp {
            Rtsp::Client { .. } => self.follower.take_answers(bytes),
            Rtsp::Server { .. } => self.follower.take_requests(bytes),
        }
        self.for_socket()
    }

    /// The socket has ended: what was held of it.
    pub(crate) fn end_of_socket(&mut self, now: Instant) -> Vec<u8> {
        match self.rtsp {
            Rtsp::Client { .. } => self.follower.end_requests(),
            Rtsp::Server { .. } => self.follower.end_answers(),
        }
        let bytes = self.for_stream(now);
        if let Some(queue) = &mut self.queue {
            queue.end();
        }
        bytes
    }

    /// The stream has ended: what was held of it.
    pub(crate) fn end_of_stream(&mut self) -> Vec<u8> {
        match self.rtsp {
            Rtsp::Client { .. } => self.follower.end_answers(),
            Rtsp::Server { .. } => self.follower.end_requests(),
        }
        self.for_socket()
    }

    /// What goes to the stream now and is not in the queue.
    pub(crate) fn for_stream(&mut self, now: Instant) -> Vec<u8> {
        let out = &mut self.follower.out;
        let bytes = std::mem::take(match self.rtsp {
            Rtsp::Client { .. } => &mut out.to_origin,
            Rtsp::Server { .. } => &mut out.to_player,
        });
        if !self.uses_queue() {
            return bytes;
        }
        if let Some(queue) = &mut self.queue {
            queue.push(&bytes, now);
        }
        Vec::new()
    }

    /// Whether what goes to the stream is in the queue: not before the player has sent a request, as most flows are of
    /// other protocols.
    pub(crate) fn uses_queue(&self) -> bool {
        let queue = self.queue.as_ref();
        queue.is_some_and(|queue| self.follower.requests.is_rtsp() || !queue.is_empty())
    }

    /// What the queue takes.
    pub(crate) fn queued_bytes(&self) -> u64 {
        self.queue.as_ref().map_or(0, SendQueue::held_bytes)
    }

    /// What goes to the socket now.
    pub(crate) fn for_socket(&mut self) -> Vec<u8> {
        let out = &mut self.follower.out;
        std::mem::take(match self.rtsp {
            Rtsp::Client { .. } => &mut out.to_player,
            Rtsp::Server { .. } => &mut out.to_origin,
        })
    }
}
