//! One flow: a TCP connection on this side, an HTTP/3 stream on the other.
//!
//! Each direction is bounded. Upwards (TCP to stream) nothing is read from TCP that the
//! stream can't take at once; downwards (stream to TCP) at most one read's worth waits
//! here for TCP, and the stream's flow-control window holds the peer back.

use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_cc::Bandwidth;
use millrace_config::Protocol;
use millrace_wire::cmcd::PlayerReport;

use crate::conn_id::ConnId;
use crate::flow_end::FlowEnd;
use crate::flow_info::{FlowSeen, FlowState};
use crate::flow_label::FlowLabel;
use crate::http_exchange::{HttpExchange, UnansweredExchange};
use crate::memory::DrainMeter;
use crate::metrics::Metrics;
use crate::player_watch::PlayerWatch;
use crate::progress::FlowWait;
use crate::rate_cap::FlowRateCap;
use crate::relay_size::RelaySize;
use crate::rtsp::RtspFlow;
use crate::rtsp::send_queue::SendQueue;
use crate::shared::Admission;
use crate::socket::Socket;
use crate::tcp_liveness::TcpLiveness;

/// A frame header of the body: type and length, each at most eight bytes (RFC 9114, Section 7.1).
pub(crate) const FRAME_OVERHEAD_BYTES: usize = 10;
/// Room in the stream below which it is not worth while to read from TCP.
pub(crate) const MIN_READ_BYTES: usize = 1024;

/// Most bytes that a flow may have sent before it is confirmed and still be retried: more than any
/// request has.
const MAX_RETAINED_BYTES: usize = 64 << 10;

/// Bytes of both directions per tick, for the rate that people see.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meter {
    counted_bytes: u64,
    bytes_per_s: f64,
}

impl Meter {
    /// Weight of the newest interval: with four a second, a memory of about one second.
    const NEWEST_INTERVAL_WEIGHT: f64 = 0.25;

    /// An interval has passed; `bytes` is the count since the beginning.
    pub fn tick(&mut self, bytes: u64, interval: Duration) {
        let rate = (bytes - self.counted_bytes) as f64 / interval.as_secs_f64();
        self.counted_bytes = bytes;
        self.bytes_per_s += Self::NEWEST_INTERVAL_WEIGHT * (rate - self.bytes_per_s);
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
struct PartialWrite {
    bytes: Vec<u8>,
    done: usize,
}

impl PartialWrite {
    fn of(bytes: Vec<u8>) -> Self {
        Self { bytes, done: 0 }
    }

    fn rest(&self) -> &[u8] {
        &self.bytes[self.done..]
    }

    fn append(&mut self, bytes: Vec<u8>) {
        if self.bytes.is_empty() {
            *self = Self::of(bytes);
        } else {
            self.bytes.extend(bytes);
        }
    }

    /// Gives the memory back once all is done: an idle flow holds no buffer.
    fn advance(&mut self, done: usize) {
        self.done += done;
        if self.done == self.bytes.len() {
            *self = Self::default();
        }
    }
}

/// What a flow needs for a retry over another connection.
#[derive(Debug)]
struct ReplayBuffer {
    /// The role's key for it.
    key: u64,
    /// All that the socket brought.
    bytes: Vec<u8>,
}

/// A flow that was never connected to its destination and can be retried.
#[derive(Debug)]
pub struct RetryableFlow {
    /// What the role gave with [`crate::event_loop::core::RelayStart::again`].
    pub key: u64,
    /// The local socket.
    pub socket: Socket,
    /// For logs and `/flows`.
    pub label: FlowLabel,
    /// Its place among those allowed.
    pub admission: Admission,
    /// What the local peer has sent so far.
    pub bytes: Vec<u8>,
    /// Why it failed.
    pub end: FlowEnd,
    /// Its exchange before any byte of it, if it has one.
    pub exchange: Option<Box<HttpExchange>>,
}

/// Bytes at which a player is given up that sends RTSP requests and does not read the answers of this end: more than one
/// read from the stream, with thousands of answers.
const MAX_UNREAD_BYTES: usize = 1 << 20;

/// What moved in a flow, and when.
#[derive(Debug)]
pub(crate) struct FlowTraffic {
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
    pub(crate) wait: FlowWait,
}

impl FlowTraffic {
    fn new(now: Instant) -> Self {
        Self {
            opened: now,
            active: now,
            sent_bytes: 0,
            received_bytes: 0,
            meter: Meter::default(),
            up: DrainMeter::default(),
            down: DrainMeter::default(),
            wait: FlowWait::default(),
        }
    }
}

/// What the ends of a flow allow now.
#[derive(Debug)]
pub(crate) struct FlowProgress {
    /// Whether the server said that the destination is connected.
    pub(crate) confirmed: bool,
    /// In the connection's queue of flows that may have something to send.
    pub(crate) queued: bool,
    pub(crate) socket_readable: bool,
    pub(crate) socket_writable: bool,
    pub(crate) stream_readable: bool,
    /// The peer has sent the end of the stream, and all before it was read.
    pub(crate) stream_finished: bool,
    /// The socket has ended; what it brought may still wait in a queue.
    pub(crate) socket_ended: bool,
    pub(crate) sent_end: bool,
    received_end: bool,
}

impl FlowProgress {
    fn new() -> Self {
        Self {
            confirmed: false,
            queued: false,
            socket_readable: true,
            socket_writable: true,
            stream_readable: true,
            stream_finished: false,
            socket_ended: false,
            sent_end: false,
            received_end: false,
        }
    }
}

/// Bytes that a flow holds.
#[derive(Debug, Default)]
struct FlowBuffers {
    /// What has gone to the stream, for as long as the flow may have to be retried.
    replay: Option<ReplayBuffer>,
    to_stream: PartialWrite,
    to_socket: PartialWrite,
    relay_size: RelaySize,
}

/// What the player behind a server's flow says of itself.
#[derive(Debug, Default)]
struct FlowPlayer {
    watch: Option<Box<PlayerWatch>>,
    /// Time of the newest report that has been taken.
    told: Option<Instant>,
}

impl FlowPlayer {
    fn rate_cap(&self) -> Option<&FlowRateCap> {
        self.watch.as_ref()?.rate_cap.as_ref()
    }
}

/// A flow in relay.
#[derive(Debug)]
pub struct Flow {
    pub(crate) conn: ConnId,
    pub(crate) stream: u64,
    pub(crate) socket: Socket,
    pub(crate) label: FlowLabel,
    pub(crate) traffic: FlowTraffic,
    pub(crate) state: FlowProgress,
    buffers: FlowBuffers,
    /// Held for as long as the flow lives.
    pub(crate) admission: Admission,
    player: FlowPlayer,
    pub(crate) tcp_liveness: TcpLiveness,
    /// Set while the flow is, or may be, RTSP.
    pub(crate) rtsp: Option<Box<RtspFlow>>,
    /// Set if the flow carries one HTTP request of an explicit proxy's client.
    exchange: Option<Box<HttpExchange>>,
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
            traffic: FlowTraffic::new(now),
            state: FlowProgress::new(),
            buffers: FlowBuffers::default(),
            admission,
            player: FlowPlayer::default(),
            tcp_liveness: TcpLiveness::default(),
            rtsp: None,
            exchange: None,
        }
    }

    /// Bytes that go ahead of what the socket and the stream bring.
    pub(crate) fn with_first_bytes(mut self, to_stream: Vec<u8>, to_socket: Vec<u8>) -> Self {
        self.buffers.to_stream = PartialWrite::of(to_stream);
        self.buffers.to_socket = PartialWrite::of(to_socket);
        self
    }

    /// Reads what the player says of itself in its requests, from the first on, and caps the flow's rate accordingly if
    /// `may_cap`.
    pub(crate) fn observe_cmcd(&mut self, metrics: &Arc<Metrics>, may_cap: bool) {
        let rate_cap = may_cap.then(|| FlowRateCap::new(self.traffic.opened));
        let mut watch = Box::new(PlayerWatch::new(metrics.clone(), rate_cap));
        watch.take(self.buffers.to_socket.rest(), self.traffic.opened);
        self.player.watch = Some(watch);
    }

    /// What the player has reported since the last call.
    pub(crate) fn take_player_report(&mut self) -> Option<PlayerReport> {
        let (heard, report) = self.player.watch.as_ref()?.last()?;
        let is_new = self.player.told.replace(heard) != Some(heard);
        is_new.then_some(report)
    }

    /// Lets `rtsp` rewrite the flow from here on, including what the socket has already delivered.
    pub(crate) fn follow_rtsp(&mut self, mut rtsp: Box<RtspFlow>) {
        self.buffers.to_stream = PartialWrite::of(
            rtsp.on_socket_bytes(self.buffers.to_stream.rest(), self.traffic.opened),
        );
        self.rtsp = Some(rtsp);
        self.take_rtsp_output(self.traffic.opened);
    }

    /// Takes what the RTSP agent itself sends, behind what it has passed on. Whether anything waits for the stream.
    pub(crate) fn take_rtsp_output(&mut self, now: Instant) -> bool {
        let Some(rtsp) = &mut self.rtsp else { return false };
        self.buffers.to_stream.append(rtsp.for_stream(now));
        self.buffers.to_socket.append(rtsp.for_socket());
        let mut waits = rtsp.queue.as_ref().is_some_and(SendQueue::has_output);
        if rtsp.follower.is_over() {
            let rest = rtsp.queue.as_mut().map_or_else(Vec::new, SendQueue::drain);
            self.buffers.to_stream.append(rest);
            self.rtsp = None;
            waits = false;
        }
        waits || !self.buffers.to_stream.rest().is_empty()
    }

    /// Whether what its socket brings goes to the stream through a queue.
    pub(crate) fn uses_queue(&self) -> bool {
        // Ahead of the queue is what came before the first request.
        let rtsp = self.rtsp.as_ref().filter(|_| self.buffers.to_stream.rest().is_empty());
        rtsp.is_some_and(|rtsp| rtsp.uses_queue())
    }

    /// Whether a player has sent so many requests without reading the answers that it is given up.
    pub(crate) fn has_unread_answers(&self) -> bool {
        self.rtsp.is_some() && self.buffers.to_socket.rest().len() > MAX_UNREAD_BYTES
    }

    /// Ends the direction towards the socket before the stream does.
    pub(crate) fn end_socket_writes(&mut self) {
        // An error says that the connection has ended already.
        let _ = self.socket.shutdown_write();
        self.state.received_end = true;
    }

    /// Keeps what goes to the stream until the flow is confirmed, for a retry.
    pub(crate) fn retain(&mut self, key: u64) {
        self.buffers.replay =
            Some(ReplayBuffer { key, bytes: self.buffers.to_stream.rest().to_vec() });
    }

    /// Whether the flow may be retried: the destination can't have received a byte of it.
    /// `unreached` says that the peer certainly forwarded nothing.
    pub(crate) fn can_retry(&self, unreached: bool) -> bool {
        let retained = self.buffers.replay.as_ref().filter(|_| !self.state.confirmed);
        let has_answer = self.exchange.as_ref().is_some_and(|exchange| exchange.has_answer());
        self.traffic.received_bytes == 0
            && !has_answer
            && retained.is_some_and(|it| unreached || it.bytes.is_empty())
    }

    /// Takes the flow apart for a retry; `None` when it can't be retried.
    pub(crate) fn into_retry(self, end: FlowEnd) -> Option<RetryableFlow> {
        let ReplayBuffer { key, bytes } = self.buffers.replay?;
        let Self { socket, label, admission, exchange, .. } = self;
        let exchange = exchange.map(HttpExchange::restarted);
        Some(RetryableFlow { key, socket, label, admission, bytes, end, exchange })
    }

    /// A tick has passed.
    pub(crate) fn tick(&mut self, interval: Duration) {
        self.traffic.meter.tick(self.traffic.sent_bytes + self.traffic.received_bytes, interval);
        self.traffic.up.tick(self.traffic.sent_bytes);
        self.traffic.down.tick(self.traffic.received_bytes);
    }

    /// What its own buffers take.
    pub(crate) fn held_bytes(&self) -> u64 {
        let retained = self.buffers.replay.as_ref().map_or(0, |retained| retained.bytes.capacity());
        (self.buffers.to_stream.bytes.capacity()
            + self.buffers.to_socket.bytes.capacity()
            + retained) as u64
            + self.rtsp.as_ref().map_or(0, |rtsp| rtsp.queued_bytes())
            + self.exchange.as_ref().map_or(0, |exchange| exchange.held_bytes()) as u64
    }

    /// Whether both directions have ended.
    pub(crate) fn complete(&self) -> bool {
        self.state.sent_end && self.state.received_end
    }

    /// What is shown of it.
    pub(crate) fn seen(&self, slot: usize, at_server: bool, now: Instant) -> FlowSeen<'_> {
        FlowSeen {
            number: slot as u64,
            protocol: Protocol::Tcp,
            label: &self.label,
            opened: self.traffic.opened,
            sent_bytes: self.traffic.sent_bytes,
            received_bytes: self.traffic.received_bytes,
            rate_mbps: self.traffic.meter.mbps(),
            state: self.state(at_server),
            player: self.player.watch.as_ref().and_then(|player| player.last()),
            rate_cap_mbps: self.player.rate_cap().and_then(|it| it.rate(now)).map(Bandwidth::mbps),
            queue: self.rtsp.as_ref().and_then(|rtsp| rtsp.queue.as_ref()?.seen()),
        }
    }

    /// Its state, seen from a server or a client.
    fn state(&self, at_server: bool) -> FlowState {
        let (client_ended, destination_ended) = match at_server {
            true => (self.state.received_end, self.state.sent_end),
            false => (self.state.sent_end, self.state.received_end),
        };
        match (self.state.confirmed, client_ended, destination_ended) {
            (false, ..) => FlowState::Connecting,
            (_, false, false) => FlowState::Open,
            (_, true, false) => FlowState::ClientEnded,
            (_, false, true) => FlowState::DestinationEnded,
            (_, true, true) => FlowState::Closing,
        }
    }

    /// Whether one direction has ended and the other has not.
    pub(crate) fn half_closed(&self) -> bool {
        self.state.sent_end != self.state.received_end
    }

    /// Moves one read from the socket to the stream.
    pub(crate) fn pump_to_stream(
        &mut self,
        quic: &mut quiche::Connection,
        h3: &mut quiche::h3::Connection,
        scratch: &mut [u8],
        now: Instant,
    ) -> Pump {
        if let Some(end) = end_of_exchange(self) {
            return Pump::Failed(end);
        }
        if self.state.sent_end
            || !self.state.socket_readable && self.buffers.to_stream.rest().is_empty()
        {
            return Pump::Wait;
        }
        let room = match quic.stream_capacity(self.stream) {
            Ok(room) => room,
            // The peer has no use for the rest: its TCP connection is gone.
            Err(_) => return Pump::Failed(FlowEnd::RemoteReset),
        };
        if room < FRAME_OVERHEAD_BYTES + MIN_READ_BYTES {
            return match quic.stream_writable(self.stream, FRAME_OVERHEAD_BYTES + MIN_READ_BYTES) {
                Ok(_) => Pump::Wait,
                Err(_) => Pump::Failed(FlowEnd::RemoteReset),
            };
        }
        let allowed = self.player.rate_cap().map_or(usize::MAX, |it| it.allowed_bytes(now));
        if allowed == 0 {
            return Pump::Wait;
        }
        let rest = self.buffers.to_stream.rest();
        if !rest.is_empty() {
            let rest = &rest[..rest.len().min(allowed)];
            return match h3.send_body(quic, self.stream, rest, false) {
                Ok(sent) => {
                    self.buffers.to_stream.advance(sent);
                    count_sent(self, sent, now);
                    Pump::More
                }
                Err(quiche::h3::Error::Done) => Pump::Wait,
                Err(_) => Pump::Failed(FlowEnd::RemoteReset),
            };
        }
        if self.has_unread_answers() {
            return Pump::Failed(FlowEnd::LocalReset);
        }
        let most = scratch.len().min(room - FRAME_OVERHEAD_BYTES).min(allowed);
        match self.socket.read(&mut scratch[..most]) {
            // The origin must not take what has come for all of the request.
            Ok(0) if self.exchange.as_ref().is_some_and(|it| !it.is_request_complete()) => {
                Pump::Failed(FlowEnd::LocalReset)
            }
            Ok(0)
                if self
                    .held(|rtsp| rtsp.end_of_socket(now), |flow| &mut flow.buffers.to_stream) =>
            {
                Pump::More
            }
            Ok(0) => match h3.send_body(quic, self.stream, &[], true) {
                Ok(_) => {
                    self.state.sent_end = true;
                    self.traffic.active = now;
                    Pump::Wait
                }
                Err(quiche::h3::Error::Done) => Pump::Wait,
                Err(_) => Pump::Failed(FlowEnd::RemoteReset),
            },
            Ok(read) => {
                self.traffic.active = now;
                self.keep(&scratch[..read]);
                let written = rewrite_to_stream(self, &scratch[..read], now);
                let bytes = written.as_deref().unwrap_or(&scratch[..read]);
                if bytes.is_empty() {
                    return Pump::More;
                }
                match h3.send_body(quic, self.stream, bytes, false) {
                    Ok(sent) => {
                        count_sent(self, sent, now);
                        if sent < bytes.len() {
                            self.buffers.to_stream = PartialWrite::of(bytes[sent..].to_vec());
                        }
                        Pump::More
                    }
                    Err(_) => Pump::Failed(FlowEnd::RemoteReset),
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.state.socket_readable = false;
                Pump::Wait
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Pump::More,
            Err(error) => Pump::Failed(FlowEnd::of_socket_error(&error)),
        }
    }

    /// Keeps what was read for a retry, within bounds.
    fn keep(&mut self, read: &[u8]) {
        let confirmed = self.state.confirmed;
        match &mut self.buffers.replay {
            Some(kept) if !confirmed && kept.bytes.len() + read.len() <= MAX_RETAINED_BYTES => {
                kept.bytes.extend_from_slice(read);
            }
            kept => *kept = None,
        }
    }

    /// At the end of a direction: whether anything was held, which waits to be passed on then.
    fn held(
        &mut self,
        end: impl FnOnce(&mut RtspFlow) -> Vec<u8>,
        direction: fn(&mut Self) -> &mut PartialWrite,
    ) -> bool {
        let held = self.rtsp.as_mut().map_or_else(Vec::new, |rtsp| end(rtsp));
        let any = !held.is_empty();
        if any {
            *direction(self) = PartialWrite::of(held);
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
        if let Some(end) = end_of_exchange(self) {
            return Pump::Failed(end);
        }
        if self.state.received_end || !self.state.socket_writable {
            return Pump::Wait;
        }
        if !self.buffers.to_socket.rest().is_empty() {
            return match self.socket.write(self.buffers.to_socket.rest()) {
                Ok(written) => {
                    self.buffers.to_socket.advance(written);
                    self.traffic.active = now;
                    Pump::More
                }
                Err(error) => self.write_failed(&error),
            };
        }
        if self.state.stream_readable {
            let most = self.buffers.relay_size.bytes(scratch.len());
            match h3.recv_body(quic, self.stream, &mut scratch[..most]) {
                Ok(read) => {
                    self.traffic.received_bytes += read as u64;
                    self.traffic.active = now;
                    if let Some(player) = &mut self.player.watch {
                        player.take(&scratch[..read], now);
                    }
                    let bytes = &*rewrite_to_socket(self, &scratch[..read]);
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
                        self.buffers.to_socket = PartialWrite::of(bytes[written..].to_vec());
                    }
                    self.buffers.relay_size =
                        self.buffers.relay_size.next(read, scratch.len(), took_all);
                    return Pump::More;
                }
                Err(quiche::h3::Error::Done) => self.state.stream_readable = false,
                Err(_) => return Pump::Failed(FlowEnd::RemoteReset),
            }
        }
        if self.state.stream_finished {
            if let Some(exchange) = &mut self.exchange {
                if exchange.is_response_truncated() {
                    return Pump::Failed(FlowEnd::RemoteReset);
                }
                exchange.end_response();
            }
            if let Some(end) = end_of_exchange(self) {
                return Pump::Failed(end);
            }
            if self.held(RtspFlow::end_of_stream, |flow| &mut flow.buffers.to_socket) {
                return Pump::More;
            }
            self.state.received_end = true;
            self.traffic.active = now;
            if self.socket.shutdown_write().is_err() {
                return Pump::Failed(FlowEnd::LocalReset);
            }
        }
        Pump::Wait
    }

    /// Whether the socket takes bytes that wait in the tunnel; `has_input` says that the stream has some.
    pub(crate) fn can_write_socket(&self, has_input: bool) -> bool {
        let waiting = !self.buffers.to_socket.rest().is_empty() || has_input;
        waiting && self.state.socket_writable && !self.state.received_end
    }

    /// Whether a stream with `room` takes bytes that wait at the socket.
    pub(crate) fn can_read_socket(&self, room: usize) -> bool {
        let is_queued = self
            .rtsp
            .as_ref()
            .is_some_and(|it| it.queue.as_ref().is_some_and(SendQueue::has_output));
        let waiting =
            is_queued || !self.buffers.to_stream.rest().is_empty() || self.state.socket_readable;
        waiting && room >= FRAME_OVERHEAD_BYTES + MIN_READ_BYTES && !self.state.sent_end
    }

    fn write_failed(&mut self, error: &io::Error) -> Pump {
        match error.kind() {
            io::ErrorKind::WouldBlock => {
                self.state.socket_writable = false;
                Pump::Wait
            }
            io::ErrorKind::Interrupted => Pump::More,
            _ => Pump::Failed(FlowEnd::of_socket_error(error)),
        }
    }
}

/// When a flow's rate cap lets data through that waits for it now.
pub(crate) fn rate_cap_deadline(flow: &Flow, now: Instant) -> Option<Instant> {
    let waits = flow.state.socket_readable || !flow.buffers.to_stream.rest().is_empty();
    flow.player.rate_cap().filter(|_| waits)?.ready(now)
}

/// Counts what has gone to the stream.
fn count_sent(flow: &mut Flow, bytes: usize, now: Instant) {
    flow.traffic.sent_bytes += bytes as u64;
    if let Some(rate_cap) = flow.player.watch.as_mut().and_then(|it| it.rate_cap.as_mut()) {
        rate_cap.take(bytes, now);
    }
}

/// Lets `exchange` rewrite a flow from here on, including what its socket has already delivered.
pub(crate) fn carry_exchange(flow: &mut Flow, mut exchange: Box<HttpExchange>) {
    let request = exchange.on_request_bytes(flow.buffers.to_stream.rest());
    flow.buffers.to_stream = PartialWrite::of(request);
    flow.exchange = Some(exchange);
}

/// Whether the client of a flow waits for a response, which another answer can replace.
pub(crate) fn is_unanswered(flow: &Flow) -> bool {
    flow.exchange.as_ref().is_some_and(|it| !it.is_answered())
        && flow.buffers.to_socket.rest().is_empty()
}

/// Takes a flow with an exchange apart, for an answer to its client.
pub(crate) fn into_unanswered(flow: Flow, end: FlowEnd) -> Option<UnansweredExchange> {
    let Flow { socket, label, admission, exchange, .. } = flow;
    let mut exchange = exchange?;
    if end == FlowEnd::RemoteReset {
        exchange.end_response();
    }
    Some(UnansweredExchange { socket, label, admission, exchange, end })
}

/// What the socket brought, as it goes to the stream; `None` for no change.
fn rewrite_to_stream(flow: &mut Flow, read: &[u8], now: Instant) -> Option<Vec<u8>> {
    match (&mut flow.exchange, &mut flow.rtsp) {
        (Some(exchange), _) => Some(exchange.on_request_bytes(read)),
        (None, Some(rtsp)) => Some(rtsp.on_socket_bytes(read, now)),
        (None, None) => None,
    }
}

/// What the stream brought, as it goes to the socket.
fn rewrite_to_socket<'a>(flow: &mut Flow, read: &'a [u8]) -> Cow<'a, [u8]> {
    match (&mut flow.exchange, &mut flow.rtsp) {
        (Some(exchange), _) => exchange.on_response_bytes(read),
        (None, Some(rtsp)) => rtsp.on_stream_bytes(read).into(),
        (None, None) => read.into(),
    }
}

/// The end of a flow whose exchange can't go on, once nothing waits for its client.
fn end_of_exchange(flow: &Flow) -> Option<FlowEnd> {
    let exchange = flow.exchange.as_ref()?;
    let is_over =
        exchange.is_broken() || exchange.has_answer() && flow.buffers.to_socket.rest().is_empty();
    is_over.then_some(FlowEnd::BadExchange)
}
