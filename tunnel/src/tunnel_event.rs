//! What the event loop tells its role.

use quiche::h3;

use crate::conn_id::ConnId;
use crate::flow::RetryableFlow;
use crate::flow_end::FlowEnd;
use crate::http_exchange::UnansweredExchange;
use crate::rtsp::NewMedium;

/// An event for the role.
#[derive(Debug)]
pub enum TunnelEvent {
    /// Streams can be opened: the handshake is over, or early data may be sent.
    Open(ConnId),
    /// The handshake is over.
    Established(ConnId),
    /// The server has issued a token for later connections (RFC 9000, Section 8.1.3).
    Token {
        /// On which connection.
        conn: ConnId,
        /// The token.
        token: Vec<u8>,
    },
    /// A connection is gone; its streams are gone with it.
    Disconnected {
        /// Which one.
        conn: ConnId,
        /// Whether its handshake had been completed.
        established: bool,
        /// The reason, for the log.
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
    Writable(ConnId),
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
    /// A flow failed before its destination was connected, and can be retried.
    FlowRetryable(Box<RetryableFlow>),
    /// A flow of an HTTP request failed before its client had a response. Its end is counted already.
    FlowUnanswered(Box<UnansweredExchange>),
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

impl TunnelEvent {
    /// The connection that it is about.
    pub(crate) fn conn(&self) -> Option<ConnId> {
        match self {
            Self::Open(conn)
            | Self::Established(conn)
            | Self::Writable(conn)
            | Self::GoingAway(conn)
            | Self::Token { conn, .. }
            | Self::Disconnected { conn, .. }
            | Self::Request { conn, .. }
            | Self::Response { conn, .. }
            | Self::StreamFinished { conn, .. }
            | Self::StreamLost { conn, .. }
            | Self::FlowEnded { conn, .. }
            | Self::DatagramsEnded { conn, .. }
            | Self::MediaOver { conn, .. } => Some(*conn),
            Self::FlowRetryable(_) | Self::FlowUnanswered(_) | Self::MediumSetUp(_) => None,
        }
    }
}
