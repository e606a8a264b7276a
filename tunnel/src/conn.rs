//! One QUIC connection with its HTTP/3 streams.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use boring::ssl::SslRef;
use millrace_cc::quiche_adapter;
use millrace_cc::registry::Algorithm;
use quiche::h3;

use crate::cc_state::CcState;
use crate::conn_id::ConnId;
use crate::conn_state::{
    ConnActivity, ConnAddress, ConnHandshake, ConnHttp, ConnMemory, ConnPending, ConnProbes,
};
use crate::datagrams;
use crate::fault::Fault;
use crate::flow_info::{ConnectionCounts, ControllerInfo, FlowInfo, FlowSeen};
use crate::memory::HeldBytes;
use crate::metrics::WorkerCounters;
use crate::outbox::{Outbox, OutboxSender, PacketPath};
use crate::path_mtu::PathMtu;
use crate::progress::SendProgress;
use crate::qlog::{QlogError, QlogSink, Trace};
use crate::stream_owner::Owner;

/// How long before its time a packet may leave. Packets that leave together make one
/// system call; with the controller's credit a burst stays below one millisecond of the rate.
const PACING_LEAD: Duration = Duration::from_micros(250);
/// Pacing lead where the pacing rate is below two packets in 50 us (465 Mbit/s). Bursts wait in the bottleneck's queue,
/// which disturbs algorithms that use the gradient of the round trip. At several Gbit/s a lead this short would cost a
/// seventh of the throughput.
const PACING_LEAD_LOW_RATE: Duration = Duration::from_micros(60);

/// Pacing lead of a busy worker's connections. With the controller's credit a burst is a millisecond of the rate.
const PACING_LEAD_BUSY: Duration = Duration::from_micros(500);
/// The time of a packet up to which packets leave in pairs while the worker is busy, so that bursts are below 10 ms: from
/// 2.3 Mbit/s on.
const MAX_PAIRED_PACKET_TIME: Duration = Duration::from_millis(5);

/// Priority of every relayed stream: all alike and taking turns. Without it a stream's
/// place among the others would be its number, and one bulk flow would starve the later ones.
const STREAM_URGENCY: u8 = 127;

/// What stopped [`Conn::flush`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// Nothing more to send now; the flag tells whether anything left.
    All(bool),
    /// The next packet's time has not come.
    Paced(Instant, bool),
    /// The packets in the outbox must leave first.
    Full,
    /// The socket's buffer is full.
    Blocked,
}

/// What a connection has handed over in one or more calls of [`Conn::flush`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flushing {
    bytes: usize,
    packets: u64,
}

impl Flushing {
    /// Counts what was handed over.
    pub(crate) fn count(self, counters: &WorkerCounters) {
        if self.packets > 0 {
            counters.packets_sent.add(self.packets);
            counters.tunnel_bytes_sent.add(self.bytes as u64);
        }
    }
}

/// A QUIC connection with its HTTP/3 streams, and what the event loop knows of it.
pub struct Conn {
    pub(crate) id: ConnId,
    pub(crate) quic: quiche::Connection,
    pub(crate) http: ConnHttp,
    pub(crate) address: ConnAddress,
    pub(crate) pending: ConnPending,
    pub(crate) handshake: ConnHandshake,
    pub(crate) memory: ConnMemory,
    pub(crate) activity: ConnActivity,
    pub(crate) probes: ConnProbes,
    /// Whether what it sends gets through.
    pub(crate) progress: SendProgress,
    pub(crate) path_mtu: PathMtu,
    pub(crate) cc: CcState,
    /// Its trace, if one is wanted.
    pub(crate) trace: Option<Trace>,
    /// The fault that a test provokes.
    pub(crate) fault: Option<Fault>,
}

impl Conn {
    pub(crate) fn new(
        id: ConnId,
        quic: quiche::Connection,
        port: usize,
        peer: SocketAddr,
        held: HeldBytes,
        algorithm: Algorithm,
        now: Instant,
    ) -> Self {
        Self {
            id,
            quic,
            http: ConnHttp::default(),
            address: ConnAddress { cids: Vec::new(), port, local: None, peer },
            pending: ConnPending::default(),
            handshake: ConnHandshake::default(),
            memory: ConnMemory { held, seen: held, relay_bytes: 0, was_driven: true },
            activity: ConnActivity::new(now),
            probes: ConnProbes::default(),
            progress: SendProgress::new(now),
            path_mtu: PathMtu::default(),
            cc: CcState::new(algorithm, now),
            trace: None,
            fault: None,
        }
    }

    /// The group of the handshake's key exchange, since its end.
    pub fn key_exchange(&self) -> Option<&'static str> {
        self.handshake.key_exchange
    }

    /// Whether streams can be opened: the handshake is over, or early data may go.
    pub fn is_open(&self) -> bool {
        self.http.h3.is_some()
            && !self.http.peer_goaway
            && !self.quic.is_closed()
            && !self.quic.is_draining()
    }

    /// Whether the handshake is over, and not only early data possible.
    pub fn is_established(&self) -> bool {
        self.handshake.established
    }

    /// Whether the peer carries UDP (RFC 9298); `None` while it has not said yet.
    pub fn carries_udp(&self) -> Option<bool> {
        self.http.h3.as_ref().and_then(|h3| datagrams::offered(h3, &self.quic))
    }

    /// Whether the peer takes HTTP datagrams in QUIC DATAGRAM frames (RFC 9297).
    pub(crate) fn carries_datagrams(&self) -> bool {
        let h3 = self.http.h3.as_ref();
        h3.is_some_and(|h3| h3.dgram_enabled_by_peer(&self.quic))
    }

    /// The smoothed round-trip time, once one has been measured.
    pub(crate) fn rtt(&self) -> Option<Duration> {
        let path = self.quic.path_stats().find(|path| path.active)?;
        path.min_rtt.map(|_| path.rtt)
    }

    /// Whether UDP flows wait for the transport, which has no datagram any more.
    pub(crate) fn has_room_for_waiting_datagrams(&self) -> bool {
        !self.pending.udp_flows.is_empty() && self.quic.dgram_send_queue_len() == 0
    }

    /// Packets of full size that the congestion window allows.
    pub(crate) fn window_packets(&self) -> usize {
        let cwnd = self.quic.path_stats().find(|path| path.active).map_or(0, |path| path.cwnd);
        cwnd / self.quic.max_send_udp_payload_size().max(1)
    }

    /// What resumes the session later (RFC 8446, Section 2.2), once the server has sent it.
    pub fn session(&self) -> Option<&[u8]> {
        self.quic.session()
    }

    /// Starts HTTP/3 as soon as the transport allows it.
    pub(crate) fn start_h3(&mut self, config: &h3::Config) -> Result<(), h3::Error> {
        if self.http.h3.is_none() && (self.quic.is_established() || self.quic.is_in_early_data()) {
            self.http.h3 = Some(h3::Connection::with_transport(&mut self.quic, config)?);
        }
        Ok(())
    }

    /// Opens a stream with a request.
    pub(crate) fn request(
        &mut self,
        fields: &[h3::Header],
        owner: Owner,
    ) -> Result<u64, h3::Error> {
        let h3 = self.http.h3.as_mut().ok_or(h3::Error::InternalError)?;
        let stream = h3.send_request(&mut self.quic, fields, false)?;
        self.quic.stream_priority(stream, STREAM_URGENCY, true)?;
        self.http.streams.insert(stream, owner);
        Ok(stream)
    }

    /// Answers a request; `end` when no body follows.
    pub(crate) fn respond(
        &mut self,
        stream: u64,
        fields: &[h3::Header],
        end: bool,
    ) -> Result<(), h3::Error> {
        let h3 = self.http.h3.as_mut().ok_or(h3::Error::InternalError)?;
        let priority = h3::Priority::new(3, true);
        h3.send_response_with_priority(&mut self.quic, stream, fields, &priority, end)?;
        self.quic.stream_priority(stream, STREAM_URGENCY, true)?;
        Ok(())
    }

    /// Ends both directions of a stream at once (RFC 9000, Section 3.5).
    pub(crate) fn reset(&mut self, stream: u64, code: u64) {
        // An error only says that the direction has ended already.
        let _ = self.quic.stream_shutdown(stream, quiche::Shutdown::Write, code);
        self.abandon(stream, code);
    }

    /// Forgets a stream on which all has been written: whatever the peer sends is of no use.
    pub(crate) fn abandon(&mut self, stream: u64, code: u64) {
        self.http.streams.remove(&stream);
        // As above.
        let _ = self.quic.stream_shutdown(stream, quiche::Shutdown::Read, code);
        if let Some(h3) = &mut self.http.h3 {
            h3.forget_stream(stream);
        }
    }

    /// How long before its time a packet may leave now. A `busy` worker sends a millisecond of the rate at a time, or two
    /// packets where these are more: each message and each turn of a connection cost processor time.
    pub(crate) fn pacing_lead(&self, busy: bool) -> Duration {
        if busy && let Some(controller) = self.quic.external_cc() {
            let packet_bytes = self.quic.max_send_udp_payload_size();
            return busy_pacing_lead(packet_bytes, controller.pacing_rate());
        }
        // What 50 us of the pacing rate are, and two packets at least.
        let quantum = self.quic.send_quantum();
        match quantum > 2 * self.quic.max_send_udp_payload_size() {
            true => PACING_LEAD,
            false => PACING_LEAD_LOW_RATE,
        }
    }

    /// Hands over what is due, at most `most_bytes` together with what `so_far` has.
    pub(crate) fn flush(
        &mut self,
        outbox: &mut Outbox,
        max_segments: usize,
        most_bytes: usize,
        busy: bool,
        so_far: &mut Flushing,
    ) -> Flushed {
        let release_deadline = Instant::now() + self.pacing_lead(busy);
        loop {
            if let Some(at) =
                self.quic.get_next_release_time().and_then(|next| next.time(release_deadline))
            {
                return Flushed::Paced(at, so_far.bytes > 0);
            }
            if so_far.bytes >= most_bytes {
                return Flushed::All(true);
            }
            if outbox.is_blocked() {
                return Flushed::Blocked;
            }
            let Some(room) = outbox.room(self.quic.max_send_udp_payload_size()) else {
                return Flushed::Full;
            };
            let (len, path) = match self.quic.send(room) {
                Ok(sent) => sent,
                Err(quiche::Error::Done) => return Flushed::All(so_far.bytes > 0),
                Err(error) => {
                    tracing::debug!(conn = self.id.serial, %error, "QUIC send failed");
                    // The transport closes the connection itself after an error of its own.
                    let _ = self.quic.close(false, 1, b"send");
                    return Flushed::All(so_far.bytes > 0);
                }
            };
            so_far.bytes += len;
            so_far.packets += 1;
            let path = PacketPath { to: path.to, from: path.from };
            outbox.add(self.id, path, len, max_segments);
        }
    }

    /// Packets that it has handed over have left.
    pub(crate) fn on_sent(&mut self, sent: &OutboxSender, now: Instant) {
        if let Some((path, bytes)) = sent.refused {
            self.path_mtu.refuse(path.to, path.from.ip(), bytes);
        }
        self.activity.last_sent = now;
        self.quic.on_message_sent(now, sent.bytes);
    }

    /// Begins a trace of it, or ends the one that runs; where that is.
    pub(crate) fn trace(
        &mut self,
        name: &str,
        sink: Option<&Arc<QlogSink>>,
    ) -> Result<PathBuf, QlogError> {
        let running = self.trace.take_if(|trace| !trace.is_stopped());
        match (sink, running) {
            (Some(_), Some(running)) => {
                self.trace = Some(running);
                Err(QlogError::Running)
            }
            (Some(sink), None) => {
                let (trace, writer) = sink.start(name)?;
                let title = format!("millrace {name}");
                self.quic.set_qlog(Box::new(writer), title, self.address.peer.to_string());
                let file = trace.file().to_owned();
                self.trace = Some(trace);
                Ok(file)
            }
            (None, Some(running)) => {
                if let Some(streamer) = self.quic.qlog_streamer() {
                    // It flushes what it has; an error says that it has ended already.
                    let _ = streamer.finish_log();
                }
                Ok(running.file().to_owned())
            }
            (None, None) => Err(QlogError::NotRunning),
        }
    }

    /// Whether `name` is one of its IDs in hexadecimal.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.address.cids.iter().any(|cid| hex(cid) == name)
    }

    /// When the connection wants to be driven without any event, `paced` aside.
    pub(crate) fn timeout(&self) -> Option<Instant> {
        self.quic.timeout_instant()
    }
}

impl Conn {
    /// The client's name in its certificate, at a server once it is known.
    pub fn peer_name(&self) -> Option<&str> {
        self.handshake.peer_place.as_ref().map(|place| &**place.name())
    }

    /// One of its flows as `/flows` shows it.
    pub(crate) fn describe(&self, flow: FlowSeen<'_>, now: Instant) -> FlowInfo {
        let path = self.quic.path_stats().find(|path| path.active);
        let stats = self.quic.stats();
        let controller = quiche_adapter::inspect(&self.quic);
        let (bytes_up, bytes_down) = match self.quic.is_server() {
            true => (flow.received_bytes, flow.sent_bytes),
            false => (flow.sent_bytes, flow.received_bytes),
        };
        FlowInfo {
            id: FlowInfo::number(self.id.serial, flow.number),
            bypassed: false,
            connection: Some(hex(self.quic.source_id().as_ref())),
            key_exchange: self.handshake.key_exchange.map(str::to_owned),
            bytes_up,
            bytes_down,
            rtt_ms: path
                .as_ref()
                .filter(|path| path.min_rtt.is_some())
                .map(|path| path.rtt.as_secs_f64() * 1e3),
            cwnd_bytes: Some(path.as_ref().map_or(0, |path| path.cwnd as u64)),
            path_mtu_bytes: path.as_ref().map(|path| path.pmtu as u64),
            pacing_mbps: controller.as_ref().map(|(metrics, _)| metrics.pacing_rate.mbps()),
            controller: controller.map(|(metrics, path)| ControllerInfo::new(&metrics, path)),
            loss: Some(stats.lost as f64 / stats.sent.max(1) as f64),
            counts: Some(ConnectionCounts {
                sent_packets: stats.sent as u64,
                retransmitted_packets: stats.retrans as u64,
                lost_packets: stats.lost as u64,
                sent_bytes: stats.sent_bytes,
                received_packets: stats.recv as u64,
                received_bytes: stats.recv_bytes,
            }),
            ..self.cc.shown_in(FlowInfo::bypassed(flow, now), now)
        }
    }
}

/// The pacing lead of a busy worker's connection at a rate in bytes per second.
fn busy_pacing_lead(packet_bytes: usize, rate: u64) -> Duration {
    let packet_time = Duration::from_secs_f64(packet_bytes as f64 / rate.max(1) as f64);
    match packet_time <= MAX_PAIRED_PACKET_TIME {
        true => PACING_LEAD_BUSY.max(packet_time),
        false => PACING_LEAD_LOW_RATE,
    }
}

/// The group of a connection's key exchange, as X25519MLKEM768; none before it is agreed on.
pub fn key_exchange(quic: &mut quiche::Connection) -> Option<&'static str> {
    let tls: &mut SslRef = quic.as_mut();
    tls.curve_name()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets that leave at once at `mbps` on a busy worker, when none is late.
    fn burst_packets(mbps: f64) -> usize {
        let bytes_per_second = mbps * 1e6 / 8.0;
        let lead = busy_pacing_lead(1450, bytes_per_second as u64);
        // Those that are due until then, and the one that is due now.
        1 + (lead.as_secs_f64() * bytes_per_second / 1450.0 * (1.0 + 1e-6)) as usize
    }

    #[test]
    fn bursts_of_a_busy_worker_are_two_packets_or_a_millisecond() {
        assert_eq!(burst_packets(1.0), 1);
        for mbps in [2.4, 4.0, 8.0, 20.0] {
            assert_eq!(burst_packets(mbps), 2, "{mbps} Mbit/s");
        }
        for mbps in [50.0, 100.0, 500.0] {
            let millisecond_packets = mbps * 1e3 / 8.0 / 1450.0;
            let packets = burst_packets(mbps) as f64;
            assert!(packets > 2.0 && packets <= millisecond_packets, "{packets} at {mbps} Mbit/s");
        }
    }
}
