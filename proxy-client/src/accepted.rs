//! An accepted connection before it becomes a flow.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::Instant;

use millrace_admission::peer_limits::HandshakePlace;
use millrace_tunnel::conn_id::ConnId;
use millrace_tunnel::shared::Admission;
use millrace_tunnel::socket::Socket;
use millrace_wire::first_bytes::MAX_FIRST_BYTES;
use millrace_wire::{ConnectFailure, Destination};

use crate::intercept::{Handshake, MAX_HANDSHAKE_BYTES, Reject, Step};
use crate::server_set::ServerSet;

/// First bytes of a flow that are looked at with each byte that comes.
const FIRST_LETTERS_BYTES: usize = 64;

/// Progress of an accepted connection.
#[derive(Debug)]
pub enum AcceptedState {
    /// Its destination is not known yet.
    Handshake,
    /// Its first bytes have not told its class yet.
    Recognising(Destination),
    /// Waits for a connection that can take the request.
    Waiting(Destination),
    /// The request has been sent and the client waits for the reply.
    Requested {
        /// Tunnel connection of the request.
        conn: ConnId,
        /// Stream of the request.
        stream: u64,
        /// Destination of the flow.
        destination: Destination,
    },
    /// The failure reply has been sent; the client has until the deadline to close.
    Closing,
}

/// A connection that a listener has accepted and that is not a flow yet.
#[derive(Debug)]
pub struct Accepted {
    /// Connection to the client.
    pub socket: Socket,
    /// Protocol before the flow.
    pub handshake: Handshake,
    /// Bytes of the client that have not been consumed yet.
    pub bytes: Vec<u8>,
    /// Address of the client.
    pub client: Option<SocketAddr>,
    /// Number of its listener.
    pub listener: usize,
    /// Number of its connection group.
    pub group: usize,
    /// When its RTSP messages are followed.
    pub follows_rtsp: bool,
    /// Its place among the handshakes of its source address, until the destination is known.
    pub handshake_place: Option<HandshakePlace>,
    /// Its place among the flows of the process.
    pub admission: Admission,
    /// When the current state times out.
    pub deadline: Instant,
    /// Current state.
    pub state: AcceptedState,
    /// How often it has been offered to a server.
    pub offers: u32,
    /// Servers that have refused it because of a limit.
    pub refused_by: ServerSet,
}

/// Result of [`Accepted::advance`].
#[derive(Debug)]
pub enum Outcome {
    /// More bytes are needed.
    Wait,
    /// The destination is known.
    Ready(Destination),
    /// The client violated the protocol.
    Rejected(Reject),
    /// The client has closed the connection.
    Gone,
    /// The client has closed without sending a byte, as health checks do.
    GoneInSilence,
}

/// Result of [`Accepted::read_first_bytes`].
#[derive(Debug)]
pub enum FirstBytes<T> {
    /// More bytes are needed.
    Wait,
    /// They are enough.
    Enough(T),
    /// The client has ended its direction; there will be no more.
    Ended,
    /// The connection has failed.
    Gone,
}

impl Accepted {
    /// Reads the first bytes of the flow until `recognise` answers. They stay in `bytes`, at most
    /// [`MAX_FIRST_BYTES`] and one read.
    pub(crate) fn read_first_bytes<T>(
        &mut self,
        recognise: impl Fn(&[u8]) -> Option<T>,
    ) -> FirstBytes<T> {
        if let Some(found) = recognise(&self.bytes) {
            return FirstBytes::Enough(found);
        }
        loop {
            let mut chunk = [0; 2048];
            let read = match self.socket.read(&mut chunk) {
                Ok(0) => return FirstBytes::Ended,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return FirstBytes::Wait,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return FirstBytes::Gone,
            };
            let before = self.bytes.len();
            self.bytes.extend_from_slice(&chunk[..read]);
            // What comes byte by byte is not parsed with each: requests are decided by a line's end.
            let may_decide = before < FIRST_LETTERS_BYTES
                || chunk[..read].contains(&b'\n')
                || self.bytes.len() >= MAX_FIRST_BYTES;
            if may_decide && let Some(found) = recognise(&self.bytes) {
                return FirstBytes::Enough(found);
            }
        }
    }

    /// Whether it waits for its first bytes.
    pub(crate) fn is_recognising(&self) -> bool {
        matches!(self.state, AcceptedState::Recognising(_))
    }

    /// Reads the available bytes and advances the handshake.
    pub fn advance(&mut self) -> Outcome {
        match self.take_step() {
            Ok(None) => {}
            Ok(Some(outcome)) => return outcome,
            Err(reject) => return Outcome::Rejected(reject),
        }
        loop {
            let mut chunk = [0; 2048];
            let room = MAX_HANDSHAKE_BYTES.saturating_sub(self.bytes.len()).min(chunk.len());
            match self.socket.read(&mut chunk[..room]) {
                Ok(0) => return self.gone(),
                Ok(read) => self.bytes.extend_from_slice(&chunk[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Outcome::Wait,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return self.gone(),
            }
            match self.take_step() {
                Ok(None) => {}
                Ok(Some(outcome)) => return outcome,
                Err(reject) => return Outcome::Rejected(reject),
            }
        }
    }

    fn gone(&self) -> Outcome {
        match self.bytes.is_empty() && !self.handshake.has_begun() {
            true => Outcome::GoneInSilence,
            false => Outcome::Gone,
        }
    }

    /// Advances the handshake by the buffered bytes; `None` when more are needed.
    fn take_step(&mut self) -> Result<Option<Outcome>, Reject> {
        loop {
            match self.handshake.on_bytes(&self.bytes)? {
                Step::NeedMore => return Ok(None),
                Step::Reply { bytes, consumed } => {
                    self.bytes.drain(..consumed);
                    // A few bytes fit into an empty socket buffer; a partial write means that the client has closed.
                    if self.socket.write(&bytes).ok() != Some(bytes.len()) {
                        return Ok(Some(Outcome::Gone));
                    }
                }
                Step::Replace { bytes, consumed } => {
                    self.bytes.splice(..consumed, bytes);
                }
                Step::Ready { destination, client, consumed } => {
                    self.bytes.drain(..consumed);
                    self.client = client.or(self.client);
                    return Ok(Some(Outcome::Ready(destination)));
                }
            }
        }
    }

    /// Whether it waits for a tunnel connection.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.state, AcceptedState::Waiting(_))
    }

    /// The tunnel connection of its request.
    pub(crate) fn requested_on(&self) -> Option<ConnId> {
        match self.state {
            AcceptedState::Requested { conn, .. } => Some(conn),
            _ => None,
        }
    }

    /// Whether its request is on this stream.
    pub fn is_requested_on(&self, conn: ConnId, stream: u64) -> bool {
        matches!(&self.state, AcceptedState::Requested { conn: its, stream: own, .. }
            if (*its, *own) == (conn, stream))
    }

    /// Whether the client waits for a reply once the flow is connected.
    pub fn expects_reply(&self) -> bool {
        !self.handshake.success_reply().is_empty()
    }

    /// The reply to a client whose flow has failed; `None` for a reset.
    pub fn failure_reply(&self, failure: ConnectFailure) -> Option<Vec<u8>> {
        self.handshake.failure_reply(failure)
    }

    /// Discards what a client in [`AcceptedState::Closing`] still sends. Returns `true` when it has closed.
    pub fn discard(&mut self) -> bool {
        let mut chunk = [0; 2048];
        loop {
            match self.socket.read(&mut chunk) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
            }
        }
    }
}
