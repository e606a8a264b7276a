//! A QUIC origin that sends bytes, and its client. Loss recovery and congestion control are those of quiche.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::TimeSpec;

use crate::certificates::Identity;

const PROTOCOL: &[u8] = b"bytes";
const ID_BYTES: usize = 8;
/// The only stream: the client asks for nothing, the origin sends until the connection is closed.
const STREAM: u64 = 0;
/// UDP payloads as large as browsers send them.
const MAX_PACKET_BYTES: usize = 1350;
/// More than rate and round trip of any test.
const WINDOW_BYTES: u64 = 64 << 20;
const SOCKET_BUFFER_BYTES: usize = 8 << 20;
/// Bytes written to the stream at a time.
const CHUNK_BYTES: usize = 64 << 10;
/// Interval of checks of the stop flag.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Silence after which a connection is over.
const IDLE_MS: u64 = 10_000;

/// An origin that sends to one client after the other. It ends when dropped.
#[derive(Debug)]
pub struct QuicOrigin {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl QuicOrigin {
    /// An origin on `socket` with the congestion control that quiche has under a name: `reno` (RFC 9002) or `cubic`, which
    /// takes reductions of the window back after episodes of few losses.
    ///
    /// # Panics
    /// When the congestion control, the certificate or the socket can't be used.
    #[must_use]
    pub fn start(socket: UdpSocket, identity: &Identity, congestion_control: &str) -> Self {
        let mut config = config();
        config.set_cc_algorithm_name(congestion_control).expect("a name of quiche");
        let path = |path: &std::path::Path| path.to_str().expect("a path in UTF-8").to_owned();
        config.load_cert_chain_from_pem_file(&path(&identity.certificate)).expect("a certificate");
        config.load_priv_key_from_pem_file(&path(&identity.private_key)).expect("its key");
        let address = socket.local_addr().expect("a bound socket");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || serve(&socket, config, &stopped));
        Self { address, stop, thread: Some(thread) }
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for QuicOrigin {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the origin does not panic");
        }
    }
}

fn serve(socket: &UdpSocket, mut config: quiche::Config, stop: &AtomicBool) {
    let mut endpoint = Endpoint::new(socket);
    let mut current: Option<quiche::Connection> = None;
    let chunk = vec![0x5a; CHUNK_BYTES];
    while !stop.load(Ordering::Relaxed) {
        endpoint.wait(current.as_ref());
        while let Some((packet, from)) = endpoint.receive() {
            if let Some(quic) = accept(&packet, from, endpoint.local, &mut config, &current) {
                endpoint.waiting = None;
                current = Some(quic);
            }
            if let Some(quic) = &mut current {
                endpoint.take(quic, packet, from);
            }
        }
        if let Some(quic) = &mut current {
            quic.on_timeout();
            while quic.stream_readable(STREAM) && quic.stream_recv(STREAM, &mut [0; 64]).is_ok() {}
            // Nothing is written before the client has opened the stream.
            while matches!(quic.stream_send(STREAM, &chunk, false), Ok(1..)) {}
            endpoint.send(quic);
        }
    }
}

/// The connection of a client that is not the current one.
fn accept(
    packet: &[u8],
    from: SocketAddr,
    to: SocketAddr,
    config: &mut quiche::Config,
    current: &Option<quiche::Connection>,
) -> Option<quiche::Connection> {
    let mut packet = packet.to_vec();
    let header = quiche::Header::from_slice(&mut packet, ID_BYTES).ok()?;
    let is_known =
        current.as_ref().is_some_and(|it| it.path_stats().any(|it| it.peer_addr == from));
    if is_known || header.ty != quiche::Type::Initial {
        return None;
    }
    quiche::accept(&quiche::ConnectionId::from_ref(&[0x5a; ID_BYTES]), None, to, from, config).ok()
}

/// Bytes that a client received.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Download {
    /// Megabits of payload a second from the request on.
    pub whole_mbps: f64,
    /// The same after the time for warming up.
    pub steady_mbps: f64,
    /// Until the first byte.
    pub first_byte: Duration,
}

/// Times of a download.
#[derive(Clone, Copy, Debug)]
pub struct DownloadTimes {
    /// Until the rate is measured.
    pub warm_up: Duration,
    /// From the request to the end.
    pub whole: Duration,
}

/// Counts what arrives.
#[derive(Debug)]
pub struct DownloadMeter {
    times: DownloadTimes,
    start: Instant,
    first_byte: Option<Duration>,
    bytes: u64,
    bytes_of_warm_up: u64,
}

impl DownloadMeter {
    /// A download that begins now.
    #[must_use]
    pub fn start(times: DownloadTimes) -> Self {
        let start = Instant::now();
        Self { times, start, first_byte: None, bytes: 0, bytes_of_warm_up: 0 }
    }

    /// So many bytes have arrived.
    pub fn add(&mut self, bytes: usize) {
        let elapsed = self.start.elapsed();
        self.bytes += bytes as u64;
        if bytes > 0 {
            self.first_byte.get_or_insert(elapsed);
        }
        if elapsed <= self.times.warm_up {
            self.bytes_of_warm_up = self.bytes;
        }
    }

    /// Whether the time is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.start.elapsed() >= self.times.whole
    }

    /// What has arrived.
    #[must_use]
    pub fn download(&self) -> Download {
        let DownloadTimes { warm_up, whole } = self.times;
        let mbps = |bytes: u64, time: Duration| bytes as f64 * 8e-6 / time.as_secs_f64();
        Download {
            whole_mbps: mbps(self.bytes, whole),
            steady_mbps: mbps(self.bytes - self.bytes_of_warm_up, whole - warm_up),
            first_byte: self.first_byte.unwrap_or(whole),
        }
    }
}

/// Downloads from the origin at `to` for some time.
///
/// # Panics
/// When the socket can't be used.
#[must_use]
pub fn download(socket: &UdpSocket, to: SocketAddr, times: DownloadTimes) -> Download {
    let mut config = config();
    config.verify_peer(false);
    let mut endpoint = Endpoint::new(socket);
    let id = quiche::ConnectionId::from_ref(&[0xa5; ID_BYTES]);
    let mut quic = quiche::connect(None, &id, endpoint.local, to, &mut config).expect("QUIC");
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut meter = DownloadMeter::start(times);
    let mut is_asked = false;
    endpoint.send(&mut quic);
    while !meter.is_over() && !quic.is_closed() {
        endpoint.wait(Some(&quic));
        while let Some((packet, from)) = endpoint.receive() {
            endpoint.take(&mut quic, packet, from);
        }
        quic.on_timeout();
        if !is_asked && quic.is_established() {
            is_asked = quic.stream_send(STREAM, b"more", false).is_ok();
        }
        while let Ok((read, _)) = quic.stream_recv(STREAM, &mut buffer) {
            meter.add(read);
        }
        endpoint.send(&mut quic);
    }
    let download = meter.download();
    // An error only says that it is closed already.
    let _ = quic.close(true, 0, b"");
    endpoint.waiting = None;
    endpoint.send(&mut quic);
    download
}

fn config() -> quiche::Config {
    let mut config = quiche::Config::new(quiche::PROTOCOL_VERSION).expect("a version of quiche");
    config.set_application_protos(&[PROTOCOL]).expect("a protocol");
    config.set_max_idle_timeout(IDLE_MS);
    config.set_max_send_udp_payload_size(MAX_PACKET_BYTES);
    config.set_max_recv_udp_payload_size(1500);
    config.set_initial_max_data(WINDOW_BYTES);
    config.set_initial_max_stream_data_bidi_local(WINDOW_BYTES);
    config.set_initial_max_stream_data_bidi_remote(WINDOW_BYTES);
    config.set_max_connection_window(WINDOW_BYTES);
    config.set_max_stream_window(WINDOW_BYTES);
    config.set_initial_max_streams_bidi(1);
    config
}

/// A socket, and a packet that waits for its time (pacing).
struct Endpoint<'a> {
    socket: &'a UdpSocket,
    local: SocketAddr,
    buffer: Vec<u8>,
    waiting: Option<(Vec<u8>, quiche::SendInfo)>,
}

impl<'a> Endpoint<'a> {
    fn new(socket: &'a UdpSocket) -> Self {
        socket.set_nonblocking(true).expect("a UDP socket");
        // Beyond the system's limit where that is permitted.
        if setsockopt(socket, sockopt::RcvBufForce, &SOCKET_BUFFER_BYTES).is_err() {
            setsockopt(socket, sockopt::RcvBuf, &SOCKET_BUFFER_BYTES).expect("SO_RCVBUF");
        }
        let local = socket.local_addr().expect("a bound socket");
        Self { socket, local, buffer: vec![0; 65_536], waiting: None }
    }

    /// Waits until there is something to do.
    fn wait(&self, quic: Option<&quiche::Connection>) {
        let release = self.waiting.as_ref().map(|(_, info)| until(info.at));
        let timeout = quic.and_then(quiche::Connection::timeout);
        let at_most = [release, timeout].into_iter().flatten().fold(LOOK_EVERY, Duration::min);
        let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        // A signal only means to look early.
        let _ = ppoll(&mut fds, Some(TimeSpec::from_duration(at_most)), None);
    }

    fn receive(&mut self) -> Option<(Vec<u8>, SocketAddr)> {
        let (length, from) = self.socket.recv_from(&mut self.buffer).ok()?;
        Some((self.buffer[..length].to_vec(), from))
    }

    fn take(&self, quic: &mut quiche::Connection, mut packet: Vec<u8>, from: SocketAddr) {
        // Invalid packets do not matter to the tests.
        let _ = quic.recv(&mut packet, quiche::RecvInfo { from, to: self.local });
    }

    /// Sends what is due.
    fn send(&mut self, quic: &mut quiche::Connection) {
        loop {
            let next = self.waiting.take().or_else(|| {
                let (length, info) = quic.send(&mut self.buffer).ok()?;
                Some((self.buffer[..length].to_vec(), info))
            });
            let Some((packet, info)) = next else { return };
            if !until(info.at).is_zero() {
                self.waiting = Some((packet, info));
                return;
            }
            // What can't be sent is lost, as on any path.
            let _ = self.socket.send_to(&packet, info.to);
        }
    }
}

fn until(at: Instant) -> Duration {
    at.saturating_duration_since(Instant::now())
}
