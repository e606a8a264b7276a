//! One flow: a TCP connection on this side, an HTTP/3 stream on the other.
//!
//! Each direction is bounded. Upwards (TCP to stream) nothing is read from TCP that the
//! stream can't take at once; downwards (stream to TCP) at most one read's worth waits
//! here for TCP, and the stream's flow-control window holds the peer back.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use millrace_config::{Class, Protocol};
use millrace_wire::cmcd::PlayerReport;

use crate::admin::{FlowSeen, FlowState};
use crate::conn::ConnId;
use crate::memory::DrainMeter;
use crate::metrics::FlowFailure;
use crate::player_watch::PlayerWatch;
use crate::relay_size::RelaySize;
use crate::rtsp::RtspFlow;
use crate::shared::Admission;
use crate::socket::Socket;
use crate::tcp_liveness::{TcpLiveness, is_tcp_timeout};

/// RFC 9114, Section 8.1: the TCP connection of a CONNECT request was reset or closed abnormally.
pub const H3_CONNECT_ERROR: u64 = 0x10f;

/// A frame header of the body: type and length, each at most eight bytes (RFC 9114, Section 7.1).
const FRAME_OVERHEAD: usize = 10;
/// Room in the stream below which it is not worth while to read from TCP.
const MIN_READ_BYTES: usize = 1024;

/// What a flow may have sent before it is known to be connected and still begin again elsewhere:
/// more than any request has.
const RETAIN_BYTES: usize = 64 << 10;

/// What people want to know of a flow.
#[derive(Clone, Debug)]
pub struct FlowLabel {
    /// Who opened it, where that is known.
    pub client: Option<SocketAddr>,
    /// Where it goes.
    pub destination: String,
    /// Its class.
    pub class: Class,
}

/// How a flow came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowEnd {
    /// Both directions were closed in order.
    Complete,
    /// The near TCP connection was reset or failed.
    NearReset,
    /// The near TCP peer has disappeared: it acknowledged nothing for too long.
    TcpTimeout,
    /// The peer reset the stream.
    FarReset,
    /// The connection that carried it is gone.
    TunnelLost,
    /// The server refused the destination.
    Refused(FlowFailure),
    /// Nothing moved for longer than allowed.
    Idle,
    /// The process holds too much, and its reader takes longest.
    Memory,
    /// The process is about to end.
    Drained,
}

impl FlowEnd {
    /// What an error of the near socket means.
    pub(crate) fn of_socket_error(error: &io::Error) -> Self {
        match is_tcp_timeout(error) {
            true => Self::TcpTimeout,
            false => Self::NearReset,
        }
    }

    /// The name in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::NearReset => "near_reset",
            Self::TcpTimeout => "tcp_timeout",
            Self::FarReset => "far_reset",
            Self::TunnelLost => "tunnel_lost",
            Self::Refused(_) => "refused",
            Self::Idle => "idle",
            Self::Memory => "memory",
            Self::Drained => "drained",
        }
    }
}

/// Bytes of both directions per tick, for the rate that people see.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meter {
    counted_bytes: u64,
    bytes_per_s: f64,
}

impl Meter {
    /// Weight of the newest interval: with four a second, a memory of about one second.
    const WEIGHT: f64 = 0.25;

    /// An interval has passed; `bytes` is the count since the beginning.
    pub fn tick(&mut self, bytes: u64, interval: Duration) {
        let rate = (bytes - self.counted_bytes) as f64 / interval.as_secs_f64();
        self.counted_bytes = bytes;
        self.bytes_per_s += Self::WEIGHT * (rate - self.bytes_per_s);
    }

    /// The rate now.
    pub fn mbps(&self) -> f64 {
        self.bytes_per_s * 8.0 / 1e6
    }
}

/// What pumping achieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pump {
    /// There may be more at once.
    More,
    /// Nothing until an event.
    Wait,
    /// The flow has failed.
    Failed(FlowEnd),
}

/// Bytes that wait for the socket, or for the stream.
#[derive(Debug, Default)]
struct Waiting {
    bytes: Vec<u8>,
    done: usize,
}

impl Waiting {
    fn of(bytes: Vec<u8>) -> Self {
        Self { bytes, done: 0 }
    }

    fn rest(&self) -> &[u8] {
        &self.bytes[self.done..]
    }

    /// Gives the memory back once all is done: an idle flow holds no buffer.
    fn advance(&mut self, done: usize) {
        self.done += done;
        if self.done == self.bytes.len() {
            *self = Self::default();
        }
    }
}

/// What a flow needs to begin again over another connection.
#[derive(Debug)]
struct Retained {
    /// The role's key for it.
    key: u64,
    /// All that the socket brought.
    bytes: Vec<u8>,
}

/// A flow that was never connected to its destination, and can begin again.
#[derive(Debug)]
pub struct Returned {
    /// What the role gave with [`crate::core::RelayStart::again`].
    pub key: u64,
    /// The near end.
    pub socket: Socket,
    /// For people.
    pub label: FlowLabel,
    /// Its place among those allowed.
    pub admission: Admission,
    /// What the near end has sent until now.
    pub bytes: Vec<u8>,
    /// Why it came to nothing.
    pub end: FlowEnd,
}

/// A flow in relay.
#[derive(Debug)]
pub struct Flow {
    pub(crate) conn: ConnId,
    pub(crate) stream: u64,
    pub(crate) socket: Socket,
    pub(crate) label: FlowLabel,
    /// Whether the server said that the destination is connected.
    pub(crate) confirmed: bool,
    /// In the connection's queue of flows that may have something to send.
    pub(crate) queued: bool,
    pub(crate) opened: Instant,
    pub(crate) active: Instant,
    /// From the socket to the stream.
    pub(crate) sent_bytes: u64,
    /// From the stream to the socket.
    pub(crate) received_bytes: u64,
    pub(crate) meter: Meter,
    /// What the readers at both ends took lately: of `sent_bytes`, and of what the socket took.
    pub(crate) up: DrainMeter,
    pub(crate) down: DrainMeter,
    pub(crate) socket_readable: bool,
    pub(crate) socket_writable: bool,
    pub(crate) stream_readable: bool,
    relay_size: RelaySize,
    /// The peer has sent the end of the stream, and all before it was read.
    pub(crate) stream_finished: bool,
    /// Held for as long as the flow lives.
    admission: Admission,
    /// What has gone to the stream, for as long as the flow might have to begin again.
    retained: Option<Retained>,
    to_stream: Waiting,
    to_socket: Waiting,
    sent_end: bool,
    received_end: bool,
    /// Of a server's flow with a player behind it.
    player: Option<Box<PlayerWatch>>,
    /// When it said what has been passed on already.
    player_told: Option<Instant>,
    pub(crate) tcp_liveness: TcpLiveness,
    /// Of one whose media over UDP are taken along.
    pub(crate) rtsp: Option<Box<RtspFlow>>,
}

impl Flow {
    pub(crate) fn new(
        conn: ConnId,
        stream: u64,
        socket: Socket,
        label: FlowLabel,
        admission: Admission,
        now: Instant,
    ) -> Self {
        Self {
            conn,
            stream,
            socket,
            label,
            confirmed: false,
            queued: false,
            opened: now,
            active: now,
            sent_bytes: 0,
            received_bytes: 0,
            meter: Meter::default(),
            up: DrainMeter::default(),
            down: DrainMeter::default(),
            socket_readable: true,
            socket_writable: true,
            stream_readable: true,
            relay_size: RelaySize::new(),
            stream_finished: false,
            admission,
            retained: None,
            to_stream: Waiting::default(),
            to_socket: Waiting::default(),
            sent_end: false,
            received_end: false,
            player: None,
            player_told: None,
            tcp_liveness: TcpLiveness::default(),
            rtsp: None,
        }
    }

    /// Bytes that go ahead of what the socket and the stream bring.
    pub(crate) fn with_first_bytes(mut self, to_stream: Vec<u8>, to_socket: Vec<u8>) -> Self {
        self.to_stream = Waiting::of(to_stream);
        self.to_socket = Waiting::of(to_socket);
        self
    }

    /// Reads what the player says of itself in its requests, from the first on.
    pub(crate) fn watch_player(&mut self) {
        let mut watch = Box::<PlayerWatch>::default();
        watch.take(self.to_socket.rest(), self.opened);
        self.player = Some(watch);
    }

    /// What the player has said since it was asked for last.
    pub(crate) fn player_news(&mut self) -> Option<PlayerReport> {
        let (heard, report) = self.player.as_ref()?.last()?;
        let is_new = self.player_told.replace(heard) != Some(heard);
        is_new.then_some(report)
    }

    /// Lets `rtsp` write anew what passes from here on, with what the socket has brought already.
    pub(crate) fn follow_rtsp(&mut self, mut rtsp: Box<RtspFlow>) {
        self.to_stream = Waiting::of(rtsp.socket_brought(self.to_stream.rest()));
        self.rtsp = Some(rtsp);
    }

    /// Keeps what goes to the stream until the flow is confirmed, so that it can begin again.
    pub(crate) fn retain(&mut self, key: u64) {
        self.retained = Some(Retained { key, bytes: self.to_stream.rest().to_vec() });
    }

    /// Whether it may begin again elsewhere: the destination can't have got a byte of it.
    /// `unreached` says that the peer certainly passed nothing on.
    pub(crate) fn can_begin_again(&self, unreached: bool) -> bool {
        let retained = self.retained.as_ref().filter(|_| !self.confirmed);
        self.received_bytes == 0 && retained.is_some_and(|it| unreached || it.bytes.is_empty())
    }

    /// Takes it apart for another beginning; `None` when it can't have one.
    pub(crate) fn begin_again(self, end: FlowEnd) -> Option<Returned> {
        let Retained { key, bytes } = self.retained?;
        let Self { socket, label, admission, .. } = self;
        Some(Returned { key, socket, label, admission, bytes, end })
    }

    /// A tick has passed.
    pub(crate) fn tick(&mut self, interval: Duration) {
        self.meter.tick(self.sent_bytes + self.received_bytes, interval);
        self.up.tick(self.sent_bytes);
        self.down.tick(self.received_bytes);
    }

    /// What its own buffers take.
    pub(crate) fn held_bytes(&self) -> u64 {
        let retained = self.retained.as_ref().map_or(0, |retained| retained.bytes.capacity());
        (self.to_stream.bytes.capacity() + self.to_socket.bytes.capacity() + retained) as u64
    }

    /// Whether both directions have ended.
    pub(crate) fn complete(&self) -> bool {
        self.sent_end && self.received_end
    }

    /// What is shown of it.
    pub(crate) fn seen(&self, slot: usize, at_server: bool) -> FlowSeen<'_> {
        FlowSeen {
            number: slot as u64,
            protocol: Protocol::Tcp,
            label: &self.label,
            opened: self.opened,
            sent_bytes: self.sent_bytes,
            received_bytes: self.received_bytes,
            rate_mbps: self.meter.mbps(),
            state: self.state(at_server),
            player: self.player.as_ref().and_then(|player| player.last()),
        }
    }

    /// How far it is, seen from a server or a client.
    fn state(&self, at_server: bool) -> FlowState {
        let (client_ended, destination_ended) = match at_server {
            true => (self.received_end, self.sent_end),
            false => (self.sent_end, self.received_end),
        };
        match (self.confirmed, client_ended, destination_ended) {
            (false, ..) => FlowState::Connecting,
            (_, false, false) => FlowState::Open,
            (_, true, false) => FlowState::ClientEnded,
            (_, false, true) => FlowState::DestinationEnded,
            (_, true, true) => FlowState::Closing,
        }
    }

    /// Whether one direction has ended and the other has not.
    pub(crate) fn half_closed(&self) -> bool {
        self.sent_end != self.received_end
    }

    /// Moves one read from the socket to the stream.
    pub(crate) fn pump_to_stream(
        &mut self,
        quic: &mut quiche::Connection,
        h3: &mut quiche::h3::Connection,
        scratch: &mut [u8],
        now: Instant,
    ) -> Pump {
        if self.sent_end || !self.socket_readable && self.to_stream.rest().is_empty() {
            return Pump::Wait;
        }
        let room = match quic.stream_capacity(self.stream) {
            Ok(room) => room,
            // The peer has no use for the rest: its TCP connection is gone.
            Err(_) => return Pump::Failed(FlowEnd::FarReset),
        };
        if room < FRAME_OVERHEAD + MIN_READ_BYTES {
            return match quic.stream_writable(self.stream, FRAME_OVERHEAD + MIN_READ_BYTES) {
                Ok(_) => Pump::Wait,
                Err(_) => Pump::Failed(FlowEnd::FarReset),
            };
        }
        if !self.to_stream.rest().is_empty() {
            return match h3.send_body(quic, self.stream, self.to_stream.rest(), false) {
                Ok(sent) => {
                    self.to_stream.advance(sent);
                    self.sent_bytes += sent as u64;
                    Pump::More
                }
                Err(quiche::h3::Error::Done) => Pump::Wait,
                Err(_) => Pump::Failed(FlowEnd::FarReset),
            };
        }
        let most = scratch.len().min(room - FRAME_OVERHEAD);
        match self.socket.read(&mut scratch[..most]) {
            Ok(0) if self.held(RtspFlow::end_of_socket, |flow| &mut flow.to_stream) => Pump::More,
            Ok(0) => match h3.send_body(quic, self.stream, &[], true) {
                Ok(_) => {
                    self.sent_end = true;
                    self.active = now;
                    Pump::Wait
                }
                Err(quiche::h3::Error::Done) => Pump::Wait,
                Err(_) => Pump::Failed(FlowEnd::FarReset),
            },
            Ok(read) => {
                self.active = now;
                self.keep(&scratch[..read]);
                let written = self.rtsp.as_mut().map(|it| it.socket_brought(&scratch[..read]));
                let bytes = written.as_deref().unwrap_or(&scratch[..read]);
                if bytes.is_empty() {
                    return Pump::More;
                }
                match h3.send_body(quic, self.stream, bytes, false) {
                    Ok(sent) => {
                        self.sent_bytes += sent as u64;
                        if sent < bytes.len() {
                            self.to_stream = Waiting::of(bytes[sent..].to_vec());
                        }
                        Pump::More
                    }
                    Err(_) => Pump::Failed(FlowEnd::FarReset),
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.socket_readable = false;
                Pump::Wait
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Pump::More,
            Err(error) => Pump::Failed(FlowEnd::of_socket_error(&error)),
        }
    }

    /// Keeps what was read for another beginning, within bounds.
    fn keep(&mut self, read: &[u8]) {
        let confirmed = self.confirmed;
        match &mut self.retained {
            Some(kept) if !confirmed && kept.bytes.len() + read.len() <= RETAIN_BYTES => {
                kept.bytes.extend_from_slice(read);
            }
            kept => *kept = None,
        }
    }

    /// At the end of a direction: whether anything was held, which waits to be passed on then.
    fn held(
        &mut self,
        end: fn(&mut RtspFlow) -> Vec<u8>,
        direction: fn(&mut Self) -> &mut Waiting,
    ) -> bool {
        let held = self.rtsp.as_mut().map_or_else(Vec::new, |rtsp| end(rtsp));
        let any = !held.is_empty();
        if any {
            *direction(self) = Waiting::of(held);
        }
        any
    }

    /// Moves one read from the stream to the socket.
    pub(crate) fn pump_to_socket(
        &mut self,
        quic: &mut quiche::Connection,
        h3: &mut quiche::h3::Connection,
        scratch: &mut [u8],
        now: Instant,
    ) -> Pump {
        if self.received_end || !self.socket_writable {
            return Pump::Wait;
        }
        if !self.to_socket.rest().is_empty() {
            return match self.socket.write(self.to_socket.rest()) {
                Ok(written) => {
                    self.to_socket.advance(written);
                    self.active = now;
                    Pump::More
                }
                Err(error) => self.write_failed(&error),
            };
        }
        if self.stream_readable {
            let most = self.relay_size.bytes(scratch.len());
            match h3.recv_body(quic, self.stream, &mut scratch[..most]) {
                Ok(read) => {
                    self.received_bytes += read as u64;
                    self.active = now;
                    if let Some(player) = &mut self.player {
                        player.take(&scratch[..read], now);
                    }
                    let passed = self.rtsp.as_mut().map(|it| it.stream_brought(&scratch[..read]));
                    let bytes = passed.as_deref().unwrap_or(&scratch[..read]);
                    if bytes.is_empty() {
                        return Pump::More;
                    }
                    let written = match self.socket.write(bytes) {
                        Ok(written) => written,
                        Err(error) => match self.write_failed(&error) {
                            Pump::Failed(end) => return Pump::Failed(end),
                            _ => 0,
                        },
                    };
                    let took_all = written == bytes.len();
                    if !took_all {
                        self.to_socket = Waiting::of(bytes[written..].to_vec());
                    }
                    self.relay_size = self.relay_size.next(read, scratch.len(), took_all);
                    return Pump::More;
                }
                Err(quiche::h3::Error::Done) => self.stream_readable = false,
                Err(_) => return Pump::Failed(FlowEnd::FarReset),
            }
        }
        if self.stream_finished {
            if self.held(RtspFlow::end_of_stream, |flow| &mut flow.to_socket) {
                return Pump::More;
            }
            self.received_end = true;
            self.active = now;
            if self.socket.shutdown_write().is_err() {
                return Pump::Failed(FlowEnd::NearReset);
            }
        }
        Pump::Wait
    }

    /// Whether the socket takes bytes that wait in the tunnel; `has_input` says that the stream has some.
    pub(crate) fn could_write(&self, has_input: bool) -> bool {
        let waiting = !self.to_socket.rest().is_empty() || has_input;
        waiting && self.socket_writable && !self.received_end
    }

    /// Whether a stream with `room` takes bytes that wait at the socket.
    pub(crate) fn could_read(&self, room: usize) -> bool {
        let waiting = !self.to_stream.rest().is_empty() || self.socket_readable;
        waiting && room >= FRAME_OVERHEAD + MIN_READ_BYTES && !self.sent_end
    }

    fn write_failed(&mut self, error: &io::Error) -> Pump {
        match error.kind() {
            io::ErrorKind::WouldBlock => {
                self.socket_writable = false;
                Pump::Wait
            }
            io::ErrorKind::Interrupted => Pump::More,
            _ => Pump::Failed(FlowEnd::of_socket_error(error)),
        }
    }
}
