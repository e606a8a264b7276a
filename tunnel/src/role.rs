//! What is different at the two ends of the tunnel.

use std::io;
use std::time::Instant;

use mio::event::Event;
use quiche::h3;

use crate::admin::FlowInfo;
use crate::conn::ConnId;
use crate::core::Core;
use crate::flow::{FlowEnd, Returned};
use crate::rtsp::NewMedium;

/// Something that a role has to know of.
#[derive(Debug)]
pub enum Notice {
    /// Streams can be opened: the handshake is over, or early data may be sent.
    Open(ConnId),
    /// The handshake is over.
    Established(ConnId),
    /// A connection is gone; its streams are gone with it.
    Disconnected {
        /// Which one.
        conn: ConnId,
        /// Whether its handshake had been completed.
        established: bool,
        /// Why, for people.
        reason: String,
    },
    /// A peer opened a stream with these fields.
    Request {
        /// On which connection.
        conn: ConnId,
        /// On which stream.
        stream: u64,
        /// As they came.
        fields: Vec<h3::Header>,
    },
    /// The answer on a stream that the role owns.
    Response {
        /// On which connection.
        conn: ConnId,
        /// On which stream.
        stream: u64,
        /// The role's key.
        key: u64,
        /// As they came.
        fields: Vec<h3::Header>,
    },
    /// The peer ended its direction of a stream that the role owns, with nothing unread before.
    StreamFinished {
        /// On which connection.
        conn: ConnId,
        /// On which stream.
        stream: u64,
        /// The role's key.
        key: u64,
    },
    /// The peer reset a stream that the role owns.
    StreamLost {
        /// On which connection.
        conn: ConnId,
        /// On which stream.
        stream: u64,
        /// The role's key.
        key: u64,
    },
    /// A connection that had no room for a request or an answer may have some now.
    Room(ConnId),
    /// A relayed flow is over.
    FlowEnded {
        /// On which connection it was.
        conn: ConnId,
        /// How.
        end: FlowEnd,
    },
    /// A UDP flow is over.
    DatagramsEnded {
        /// On which connection it was.
        conn: ConnId,
        /// The role's key.
        key: u64,
        /// How.
        end: FlowEnd,
    },
    /// A flow came to nothing before its destination was connected, and can begin again.
    FlowReturned(Box<Returned>),
    /// An RTSP connection has set up a medium over UDP, for which a client asks its server.
    MediumSetUp(Box<NewMedium>),
    /// What an RTSP connection has set up is over, and so are the flows of it that run.
    MediaOver {
        /// The connection of the RTSP flow.
        conn: ConnId,
        /// Its stream.
        stream: u64,
        /// Which medium of it; `None` is all.
        number: Option<u32>,
    },
    /// The peer takes no more streams on this connection.
    GoingAway(ConnId),
}

impl Notice {
    /// The connection that it is about.
    pub(crate) fn conn(&self) -> Option<ConnId> {
        match self {
            Self::Open(conn)
            | Self::Established(conn)
            | Self::Room(conn)
            | Self::GoingAway(conn)
            | Self::Disconnected { conn, .. }
            | Self::Request { conn, .. }
            | Self::Response { conn, .. }
            | Self::StreamFinished { conn, .. }
            | Self::StreamLost { conn, .. }
            | Self::FlowEnded { conn, .. }
            | Self::DatagramsEnded { conn, .. }
            | Self::MediaOver { conn, .. } => Some(*conn),
            Self::FlowReturned(_) | Self::MediumSetUp(_) => None,
        }
    }
}

/// One end of the tunnel, within one worker: how flows come in, and where they go.
pub trait Role {
    /// Called once, before the loop starts.
    ///
    /// # Errors
    /// Whatever keeps the worker from doing its work.
    fn start(&mut self, core: &mut Core) -> io::Result<()>;

    /// An event of a source that the role registered under [`Core::role_token`].
    fn on_event(&mut self, core: &mut Core, key: usize, event: &Event);

    /// Another thread woke the worker.
    fn on_wake(&mut self, core: &mut Core);

    /// Something happened in the tunnel.
    fn on_notice(&mut self, core: &mut Core, notice: Notice);

    /// Time passes; called at least every [`Core::TICK`], and at [`Role::next_deadline`].
    fn on_tick(&mut self, core: &mut Core, now: Instant);

    /// When the role wants [`Role::on_tick`] earlier.
    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    /// A panic has interrupted [`Role::on_event`] for `key`: what it is for ends.
    fn on_panic(&mut self, core: &mut Core, key: usize);

    /// Take nothing new from now on.
    fn drain(&mut self, core: &mut Core);

    /// Flows that do not go through the tunnel, for the admin listener.
    fn flows_past_tunnel(&self) -> Vec<FlowInfo> {
        Vec::new()
    }

    /// Flows that have not reached the relay yet.
    fn pending(&self) -> usize;
}
