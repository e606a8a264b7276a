//! A connection that was accepted and is not a flow yet.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::Instant;

use millrace_tunnel::conn::ConnId;
use millrace_tunnel::peer_limits::HandshakePlace;
use millrace_tunnel::shared::Admission;
use millrace_tunnel::socket::Socket;
use millrace_wire::{ConnectFailure, Destination};

use crate::intercept::{Handshake, MAX_HANDSHAKE_BYTES, Reject, Step};
use crate::pool::ServerSet;

/// How far it is.
#[derive(Debug)]
pub enum Stage {
    /// It has still to say where it wants to go.
    Handshake,
    /// Waits for a connection that can take the request.
    Waiting(Destination),
    /// The request is on its way; only where the client waits for the answer.
    Requested {
        /// On which connection.
        conn: ConnId,
        /// On which stream.
        stream: u64,
        /// Where to.
        destination: Destination,
    },
    /// It was told why there is no flow, and has until the deadline to close.
    Closing,
}

/// See the module.
#[derive(Debug)]
pub struct Accepted {
    /// The client.
    pub socket: Socket,
    /// What is said before the flow.
    pub handshake: Handshake,
    /// What the client has sent and nobody has taken yet.
    pub bytes: Vec<u8>,
    /// Who opened it.
    pub client: Option<SocketAddr>,
    /// The number of its listener.
    pub door: usize,
    /// The number of its listener's lane.
    pub lane: usize,
    /// Its place among the handshakes of its address, until it has said where it wants to go.
    pub handshake_place: Option<HandshakePlace>,
    /// Its place among the flows that the process may have.
    pub admission: Admission,
    /// When patience ends.
    pub deadline: Instant,
    /// How far it is.
    pub stage: Stage,
    /// How often it has been offered to a server.
    pub offers: u32,
    /// Servers that refused this flow because of a limit.
    pub refused_by: ServerSet,
}

/// What reading led to.
#[derive(Debug)]
pub enum Outcome {
    /// More has to come.
    Wait,
    /// It is known now where the flow goes.
    Ready(Destination),
    /// The client broke its protocol.
    Rejected(Reject),
    /// The client is gone.
    Gone,
    /// The client is gone, and has said nothing: a health check.
    GoneInSilence,
}

impl Accepted {
    /// Reads what there is, and takes the handshake as far as that allows.
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

    /// `None` when more bytes are needed.
    fn take_step(&mut self) -> Result<Option<Outcome>, Reject> {
        loop {
            match self.handshake.on_bytes(&self.bytes)? {
                Step::NeedMore => return Ok(None),
                Step::Reply { bytes, consumed } => {
                    self.bytes.drain(..consumed);
                    // A few bytes into an empty socket buffer: whole, or the client is gone.
                    if self.socket.write(&bytes).ok() != Some(bytes.len()) {
                        return Ok(Some(Outcome::Gone));
                    }
                }
                Step::Ready { destination, client, consumed } => {
                    self.bytes.drain(..consumed);
                    self.client = client.or(self.client);
                    return Ok(Some(Outcome::Ready(destination)));
                }
            }
        }
    }

    /// Whether its request is on this stream.
    pub fn is_requested_on(&self, conn: ConnId, stream: u64) -> bool {
        matches!(&self.stage, Stage::Requested { conn: its, stream: own, .. }
            if (*its, *own) == (conn, stream))
    }

    /// Whether the client waits to hear that the flow is connected.
    pub fn expects_reply(&self) -> bool {
        !self.handshake.success_reply().is_empty()
    }

    /// What tells the client that there is no flow; `None` for a reset.
    pub fn failure_reply(&self, failure: ConnectFailure) -> Option<Vec<u8>> {
        self.handshake.failure_reply(failure)
    }

    /// Throws away what a client in [`Stage::Closing`] still sends; `true` when it has closed.
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
