//! Relays a bypassed flow between two TCP sockets.

use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use millrace_config::{ClientLimits, Protocol};
use millrace_tunnel::event_loop::Core;
use millrace_tunnel::flow::Meter;
use millrace_tunnel::flow_info::{FlowSeen, FlowState};
use millrace_tunnel::flow_label::FlowLabel;
use millrace_tunnel::metrics::{FlowFailure, SetupRefusal};
use millrace_tunnel::shared::Admission;
use millrace_tunnel::socket::Socket;
use millrace_tunnel::tcp_liveness::{CheckRound, TcpLiveness, TcpLivenessChecks};
use millrace_tunnel::tcp_timeout::is_tcp_timeout;
use millrace_wire::ConnectFailure;
use mio::Token;

use super::relay_agent::RelayAgent;
use crate::accepted::Accepted;

/// Largest read, and most bytes that wait for a slow reader.
const CHUNK_BYTES: usize = 64 << 10;
/// Bytes at which a player is given up that sends requests and does not read the answers.
const MAX_WAITING_BYTES: usize = 1 << 20;
/// Chunks per direction before other flows have their turn.
const MAX_CHUNKS_PER_TURN: usize = 16;

/// Result of [`Relay::pump`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pumped {
    /// Nothing to do until an event.
    Wait,
    /// There may be more to do at once.
    More,
    /// Both directions have ended cleanly.
    Complete,
    /// One of the sockets failed.
    Failed(FlowFailure),
}

/// One direction of a relay.
#[derive(Debug, Default)]
struct Half {
    waiting: Vec<u8>,
    done: usize,
    /// Bytes read in total.
    bytes: u64,
    read_end: bool,
    sent_end: bool,
}

/// A bypassed flow between the client's and the destination's socket.
#[derive(Debug)]
pub struct Relay {
    client_socket: Socket,
    destination_socket: Socket,
    up: Half,
    down: Half,
    active: Instant,
    label: FlowLabel,
    opened: Instant,
    meter: Meter,
    client_liveness: TcpLiveness,
    destination_liveness: TcpLiveness,
    /// What rewrites the flow.
    agent: Option<RelayAgent>,
    /// Held for as long as the flow lives.
    admission: Admission,
}

impl Relay {
    /// Begins with the bytes that were read before. Both sockets are registered already, under other tokens.
    ///
    /// # Errors
    /// A socket can't be registered.
    pub fn start(
        core: &Core,
        accepted: Accepted,
        mut destination_socket: Socket,
        (label, opened): (FlowLabel, Instant),
        [client_token, destination_token]: [Token; 2],
        checks: &TcpLivenessChecks,
    ) -> io::Result<Self> {
        let success_reply = accepted.handshake.success_reply();
        let Accepted { socket: mut client_socket, bytes, admission, handshake, .. } = accepted;
        client_socket.watch_again(core.registry(), client_token)?;
        destination_socket.watch_again(core.registry(), destination_token)?;
        for socket in [&client_socket, &destination_socket] {
            // As in the tunnel: a truncated flow is reset, never closed cleanly.
            socket.abort_on_close(true);
            checks.watch(socket);
        }
        let mut agent = RelayAgent::new(handshake.into_exchange());
        let waiting = agent.requests(&bytes);
        let up = Half { bytes: bytes.len() as u64, waiting, ..Half::default() };
        // The success reply does not count as bytes of the destination.
        let down = Half { waiting: success_reply, ..Half::default() };
        let (active, meter) = (core.now(), Meter::default());
        Ok(Self {
            client_socket,
            destination_socket,
            up,
            down,
            active,
            label,
            opened,
            meter,
            client_liveness: TcpLiveness::default(),
            destination_liveness: TcpLiveness::default(),
            agent: Some(agent),
            admission,
        })
    }

    /// Moves bytes in both directions.
    pub fn pump(&mut self, now: Instant) -> Pumped {
        let Self { client_socket, destination_socket, up, down, agent, .. } = self;
        // The second only if the first succeeds: a socket reports an error once, and a read after a failed
        // write would return a clean end.
        let mut requests = Rewriter::Requests(agent.as_mut());
        let pumped = up.pump(client_socket, destination_socket, &mut requests).and_then(|up| {
            if let Some(agent) = agent {
                down.waiting.extend(agent.replies());
            }
            let mut answers = Rewriter::Answers(agent.as_mut());
            Ok((up, down.pump(destination_socket, client_socket, &mut answers)?))
        });
        let mut is_replaced = false;
        if let Some(RelayAgent::Http(exchange)) = agent
            && exchange.has_answer()
            && !down.read_end
        {
            // It replaces what the destination would send. What the client still sends is dropped.
            down.waiting.extend(exchange.answer(ConnectFailure::Internal));
            down.read_end = true;
            is_replaced = true;
        }
        if agent.as_ref().is_some_and(RelayAgent::is_over) {
            *agent = None;
        }
        if down.waiting.len() > MAX_WAITING_BYTES {
            return Pumped::Failed(FlowFailure::TcpReset);
        }
        if matches!(agent, Some(RelayAgent::Http(exchange)) if exchange.is_broken()) {
            return Pumped::Failed(FlowFailure::Protocol);
        }
        let ((up_moved, up_more), (down_moved, down_more)) = match pumped {
            Ok(pumped) => pumped,
            Err(error) if is_tcp_timeout(&error) => return Pumped::Failed(FlowFailure::TcpTimeout),
            Err(_) => return Pumped::Failed(FlowFailure::TcpReset),
        };
        if up_moved || down_moved {
            self.active = now;
        }
        if self.down.bytes > 0 {
            self.admission.end_set_up(None, now);
        }
        let more = up_more || down_more || is_replaced;
        match (self.up.sent_end && self.down.sent_end, more) {
            (true, _) => {
                self.client_socket.abort_on_close(false);
                // A destination whose request is not whole is told so by a reset.
                let is_whole = self.agent.as_ref().is_none_or(RelayAgent::is_request_whole);
                self.destination_socket.abort_on_close(!is_whole);
                Pumped::Complete
            }
            (false, true) => Pumped::More,
            (false, false) => Pumped::Wait,
        }
    }

    /// Why media over UDP were refused since the last call.
    pub fn refused_setups(&mut self) -> Vec<SetupRefusal> {
        match &mut self.agent {
            Some(RelayAgent::Rtsp(rtsp)) => rtsp.refused(),
            _ => Vec::new(),
        }
    }

    /// Where it goes.
    pub fn destination(&self) -> &str {
        &self.label.destination
    }

    /// Whether it has been idle for longer than the limits allow.
    pub fn is_silent(&self, now: Instant, limits: &ClientLimits) -> bool {
        let timeout = match self.up.sent_end != self.down.sent_end {
            true => limits.half_close_timeout,
            false => limits.flow_idle_timeout,
        };
        now.saturating_duration_since(self.active) > timeout
    }

    /// Whether one of the two peers has vanished.
    pub fn has_vanished(&mut self, round: &CheckRound, now: Instant) -> bool {
        self.client_liveness.has_vanished(&self.client_socket, round, now)
            || self.destination_liveness.has_vanished(&self.destination_socket, round, now)
    }

    /// Updates the displayed rate after an interval.
    pub fn tick(&mut self, interval: Duration) {
        self.meter.tick(self.up.bytes + self.down.bytes, interval);
    }

    /// Bytes of its buffers.
    pub fn held_bytes(&self) -> u64 {
        let agent = match &self.agent {
            Some(RelayAgent::Http(exchange)) => exchange.held_bytes(),
            _ => 0,
        };
        (self.up.waiting.capacity() + self.down.waiting.capacity() + agent) as u64
    }

    /// When bytes moved last.
    pub fn active(&self) -> Instant {
        self.active
    }

    /// The flow as the admin listener shows it.
    pub fn seen(&self, number: u64) -> FlowSeen<'_> {
        FlowSeen {
            number,
            protocol: Protocol::Tcp,
            label: &self.label,
            opened: self.opened,
            sent_bytes: self.up.bytes,
            received_bytes: self.down.bytes,
            rate_mbps: self.meter.mbps(),
            state: match (self.up.sent_end, self.down.sent_end) {
                (false, false) => FlowState::Open,
                (true, false) => FlowState::ClientEnded,
                (false, true) => FlowState::DestinationEnded,
                (true, true) => FlowState::Closing,
            },
            player: None,
            rate_cap_mbps: None,
            queue: None,
        }
    }

    /// Ends both sides with a reset.
    pub fn reset(self) {
        self.client_socket.reset();
        self.destination_socket.reset();
    }
}

impl Half {
    /// Returns whether bytes moved, and whether there may be more to do at once.
    fn pump(
        &mut self,
        from: &mut Socket,
        to: &mut Socket,
        rewriter: &mut Rewriter<'_>,
    ) -> io::Result<(bool, bool)> {
        let mut chunk = [0; CHUNK_BYTES];
        let mut moved = false;
        for _ in 0..MAX_CHUNKS_PER_TURN {
            if self.done < self.waiting.len() {
                match to.write(&self.waiting[self.done..]) {
                    Ok(written) => self.done += written,
                    Err(error) => return settle(error, moved),
                }
                moved = true;
                if self.done == self.waiting.len() {
                    // An idle flow holds no buffer.
                    (self.waiting, self.done) = (Vec::new(), 0);
                }
            } else if self.read_end {
                if !self.sent_end {
                    to.shutdown_write()?;
                    self.sent_end = true;
                    moved = true;
                }
                return Ok((moved, false));
            } else {
                match from.read(&mut chunk) {
                    Ok(0) => {
                        self.read_end = true;
                        self.waiting.extend(rewriter.end()?);
                    }
                    Ok(read) => {
                        moved = true;
                        self.bytes += read as u64;
                        let bytes = rewriter.take(&chunk[..read]);
                        let written = match to.write(&bytes) {
                            Ok(written) => written,
                            Err(error) if is_transient(&error) => 0,
                            Err(error) => return Err(error),
                        };
                        self.waiting.extend_from_slice(&bytes[written..]);
                    }
                    Err(error) => return settle(error, moved),
                }
            }
        }
        Ok((moved, true))
    }
}

/// How an agent rewrites the bytes of one direction.
enum Rewriter<'a> {
    Requests(Option<&'a mut RelayAgent>),
    Answers(Option<&'a mut RelayAgent>),
}

impl Rewriter<'_> {
    fn take<'b>(&mut self, bytes: &'b [u8]) -> Cow<'b, [u8]> {
        match self {
            Self::Requests(Some(agent)) => agent.requests(bytes).into(),
            Self::Answers(Some(agent)) => agent.answers(bytes),
            _ => bytes.into(),
        }
    }

    fn end(&mut self) -> io::Result<Vec<u8>> {
        match self {
            Self::Requests(Some(agent)) => agent.end_requests(),
            Self::Answers(Some(agent)) => agent.end_answers(),
            _ => Ok(Vec::new()),
        }
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn settle(error: io::Error, moved: bool) -> io::Result<(bool, bool)> {
    match error.kind() {
        io::ErrorKind::WouldBlock => Ok((moved, false)),
        io::ErrorKind::Interrupted => Ok((moved, true)),
        _ => Err(error),
    }
}
