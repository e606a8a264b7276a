//! How flows end.

use std::io;

use crate::metrics::{FlowFailure, FlowOutcome};
use crate::tcp_timeout::is_tcp_timeout;

/// How a flow came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowEnd {
    /// Both directions were closed in order.
    Complete,
    /// The local TCP connection was reset or failed.
    LocalReset,
    /// The local TCP peer has disappeared: it acknowledged nothing for too long.
    TcpTimeout,
    /// The peer reset the stream.
    RemoteReset,
    /// The connection that carried it is gone.
    TunnelLost,
    /// The server refused the destination.
    Refused(FlowFailure),
    /// Nothing moved for longer than allowed.
    Idle,
    /// The memory cap was reached, and the reader of this flow is the slowest.
    Memory,
    /// The process is about to end.
    Drained,
    /// The HTTP request or its response is malformed, or there was no response.
    BadExchange,
}

impl FlowEnd {
    /// What an error of the local socket means.
    pub(crate) fn of_socket_error(error: &io::Error) -> Self {
        match is_tcp_timeout(error) {
            true => Self::TcpTimeout,
            false => Self::LocalReset,
        }
    }

    /// How the flow is counted.
    pub(crate) fn outcome(self) -> FlowOutcome {
        FlowOutcome::Failed(match self {
            Self::Complete => return FlowOutcome::Complete,
            Self::LocalReset => FlowFailure::TcpReset,
            Self::TcpTimeout => FlowFailure::TcpTimeout,
            Self::RemoteReset => FlowFailure::PeerReset,
            Self::TunnelLost | Self::Drained => FlowFailure::TunnelLost,
            Self::Idle => FlowFailure::IdleTimeout,
            Self::Memory => FlowFailure::Memory,
            Self::BadExchange => FlowFailure::Protocol,
            Self::Refused(failure) => failure,
        })
    }

    /// The name in logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::LocalReset => "local_reset",
            Self::TcpTimeout => "tcp_timeout",
            Self::RemoteReset => "remote_reset",
            Self::TunnelLost => "tunnel_lost",
            Self::Refused(_) => "refused",
            Self::Idle => "idle",
            Self::Memory => "memory",
            Self::Drained => "drained",
            Self::BadExchange => "bad_exchange",
        }
    }
}
