//! Two connections of the patched quiche in memory, after a real handshake. The input is a schedule: what each end
//! sends, reads, shuts down and moves, which controller drives it, and what the path does to packets. Packet
//! protection is disabled, so that a modified packet reaches the frame parser.
//!
//! Nothing panics, the memory of a stream is bounded, and a DATAGRAM frame has one outcome at most. While no packet was modified, no end closes the
//! connection, every byte read is the byte that was sent, a stream holds at most its window, and all data arrives
//! or a timer is armed.
#![no_main]

use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use millrace_cc::quiche_adapter;
use millrace_cc::registry::{self, Algorithm, Spec};
use quiche::{Config, Connection, ConnectionId, RecvInfo, Shutdown};

const MIN_STREAM_WINDOW: u64 = 4 << 10;
const MAX_STREAM_WINDOW: u64 = 32 << 10;
const MAX_CONNECTION_WINDOW: u64 = 48 << 10;
/// Unread data with what its chunks cost: a chunk has 256 bytes on average or is one of the first 256.
const MAX_STREAM_HELD_BYTES: u64 = 2 * MAX_STREAM_WINDOW + 256 * 256;
const MAX_OPERATIONS: usize = 300;
/// Packets on the path; further ones are lost.
const MAX_IN_FLIGHT: usize = 64;
const MAX_DATAGRAM_BYTES: usize = 1500;
/// quiche reads the clock of the machine: few timers are waited for, and only short ones.
const MAX_TIMEOUTS: usize = 4;
const MAX_TIMEOUT: Duration = Duration::from_millis(10);
/// Flights until both ends have nothing to send.
const MAX_FLIGHTS: usize = 400;
const CONNECTION_ID_BYTES: usize = 16;
/// Packet protection leaves room for its tag also while it is disabled.
const TAG_BYTES: usize = 16;

const CLIENT: usize = 0;
const SERVER: usize = 1;
const CLIENT_ADDRESS: ([u8; 4], u16) = ([127, 0, 0, 1], 1234);
const SERVER_ADDRESS: ([u8; 4], u16) = ([127, 0, 0, 1], 4321);

static CONTROLLERS: LazyLock<Vec<Algorithm>> = LazyLock::new(|| {
    ["cubic", "bbr", "bbr2", "bbr3", "copa", "vivace-latency", "proteus-h", "iris-min"]
        .map(|name| registry::find(&Spec::named(name)).expect("the registry has the name"))
        .into()
});

thread_local! {
    static CONFIG: RefCell<Config> = RefCell::new(config().expect("the configuration is valid"));
}

fn config() -> anyhow::Result<Config> {
    let own = rcgen::generate_simple_self_signed(["server.example".to_owned()])?;
    let files = tempfile::tempdir()?;
    let [certificate, key] = ["certificate", "key"].map(|name| files.path().join(name));
    std::fs::write(&certificate, own.cert.pem())?;
    std::fs::write(&key, own.signing_key.serialize_pem())?;

    let mut config = Config::new(quiche::PROTOCOL_VERSION)?;
    config.load_cert_chain_from_pem_file(&certificate.to_string_lossy())?;
    config.load_priv_key_from_pem_file(&key.to_string_lossy())?;
    config.set_application_protos(&[b"h3"])?;
    // A small key share: the handshake is most of the time that an input takes.
    config.set_curves_list("X25519")?;
    config.verify_peer(false);
    config.grease(false);
    config.set_max_recv_udp_payload_size(usize::from(u16::MAX));
    config.set_max_send_udp_payload_size(MAX_DATAGRAM_BYTES);
    config.discover_pmtu(true);
    config.set_initial_congestion_window_packets(32);
    config.set_active_connection_id_limit(4);
    config.set_max_ack_delay(1);
    config.set_initial_max_data(16 << 10);
    config.set_initial_max_stream_data_bidi_local(8 << 10);
    config.set_initial_max_stream_data_bidi_remote(8 << 10);
    config.set_initial_max_stream_data_uni(8 << 10);
    config.set_min_stream_window(MIN_STREAM_WINDOW);
    config.set_max_stream_window(MAX_STREAM_WINDOW);
    config.set_max_connection_window(MAX_CONNECTION_WINDOW);
    config.set_initial_max_streams_bidi(8);
    config.set_initial_max_streams_uni(8);
    config.enable_dgram(true, 16, 16);
    Ok(config)
}

/// The bytes of the input that are not used yet.
struct Schedule<'a>(&'a [u8]);

impl<'a> Schedule<'a> {
    fn byte(&mut self) -> Option<usize> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(usize::from(*first))
    }

    fn bytes(&mut self, most: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

struct Packet {
    bytes: Vec<u8>,
    info: RecvInfo,
    to: usize,
}

/// One direction of a stream.
#[derive(Default)]
struct Direction {
    sent: u64,
    read: u64,
    is_finished: bool,
    /// One end has reset or stopped it.
    is_cut: bool,
}

struct Pair {
    ends: [Connection; 2],
    path: VecDeque<Packet>,
    /// By the sending end and the stream.
    directions: HashMap<(usize, u64), Direction>,
    /// Identifiers of each end's DATAGRAM frames without an outcome.
    unreported: [HashSet<u64>; 2],
    next_identifier: u64,
    timeouts: usize,
    moves: u16,
    is_modified: bool,
    is_lossy: bool,
    is_closed: bool,
}

/// Each position of each direction differs from its neighbours.
fn pattern(from: usize, stream: u64, at: u64) -> u8 {
    let mixed = (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ (stream << 1 | from as u64).wrapping_mul(0xff51_afd7);
    (mixed >> 29) as u8
}

/// Streams of both ends and both kinds.
fn stream(choice: usize) -> u64 {
    (choice % 24) as u64
}

impl Pair {
    fn new(config: &mut Config, controller: &Algorithm) -> Self {
        quiche_adapter::apply(config, controller).expect("quiche knows its own algorithms");
        let [client, server] = [CLIENT_ADDRESS, SERVER_ADDRESS].map(SocketAddr::from);
        let [client_id, server_id] = [[1; CONNECTION_ID_BYTES], [2; CONNECTION_ID_BYTES]];
        let id = ConnectionId::from_ref(&client_id);
        let opened = quiche::connect(Some("server.example"), &id, client, server, config)
            .expect("the client opens a connection");
        let id = ConnectionId::from_ref(&server_id);
        let accepted = quiche::accept(&id, None, server, client, config)
            .expect("the server accepts a connection");
        let mut pair = Self {
            ends: [opened, accepted],
            path: VecDeque::new(),
            directions: HashMap::new(),
            unreported: Default::default(),
            next_identifier: 0,
            timeouts: 0,
            moves: 0,
            is_modified: false,
            is_lossy: false,
            is_closed: false,
        };
        pair.flush();
        assert!(pair.ends.iter().all(Connection::is_established));
        for (end, first) in [(CLIENT, 0x10), (SERVER, 0x20)] {
            for number in 0..2 {
                let id = [first + number; CONNECTION_ID_BYTES];
                let token = u128::from(first + number);
                pair.ends[end].new_scid(&ConnectionId::from_ref(&id), token, false).ok();
            }
        }
        pair.flush();
        pair
    }

    fn step(&mut self, schedule: &mut Schedule) -> Option<()> {
        let operation = schedule.byte()?;
        let end = operation >> 7;
        match operation & 0x7f {
            0..=25 => self.send(end, stream(schedule.byte()?), schedule.byte()?),
            26..=45 => self.read(end, stream(schedule.byte()?), 64 * schedule.byte()?),
            46..=49 => self.shut_down(end, stream(schedule.byte()?), schedule.byte()?),
            50..=52 => drop(self.ends[end].dgram_send(&vec![1; 6 * schedule.byte()?])),
            53..=54 => self.send_tracked(end, 6 * schedule.byte()?),
            55..=57 => drop(self.ends[end].dgram_recv(&mut [0; 2048])),
            58..=77 => drop(self.emit(end, 1 + schedule.byte()? % 16)),
            78..=97 => self.deliver(0),
            98..=101 => self.deliver(schedule.byte()?),
            102..=103 => self.lose(schedule.byte()?),
            104..=106 => self.repeat(schedule.byte()?),
            107..=109 => self.flip(schedule.byte()?, schedule.byte()? << 8 | schedule.byte()?),
            110..=115 => {
                let bytes = schedule.byte()?;
                self.inject(schedule.bytes(bytes));
            }
            116..=118 => self.move_client(),
            119..=120 => self.wait(end),
            121 => {
                self.is_closed = true;
                self.ends[end].close(true, 7, b"over").ok();
            }
            122..=123 => {
                let (stream, urgency) = (stream(schedule.byte()?), schedule.byte()?);
                self.ends[end].stream_priority(stream, urgency as u8, urgency & 1 == 1).ok();
            }
            124 => {
                let controller = &CONTROLLERS[schedule.byte()? % CONTROLLERS.len()];
                quiche_adapter::replace(&mut self.ends[end], controller).ok();
            }
            125 => self.report_path_mtu(end, 6 * schedule.byte()?),
            _ => self.flush(),
        }
        self.check();
        Some(())
    }

    fn send(&mut self, end: usize, stream: u64, size: usize) {
        let direction = self.directions.entry((end, stream)).or_default();
        if direction.is_finished {
            return;
        }
        let bytes: Vec<u8> = (0..16 * (size >> 1) as u64)
            .map(|at| pattern(end, stream, direction.sent + at))
            .collect();
        let is_last = size & 1 == 1 && size & 0x30 == 0;
        match self.ends[end].stream_send(stream, &bytes, is_last) {
            Ok(written) => {
                direction.sent += written as u64;
                direction.is_finished = is_last && written == bytes.len();
            }
            Err(quiche::Error::StreamStopped(_)) => direction.is_cut = true,
            Err(_) => {}
        }
    }

    fn send_tracked(&mut self, end: usize, bytes: usize) {
        let identifier = self.next_identifier;
        self.next_identifier += 1;
        if self.ends[end].dgram_send_tracked(vec![1; bytes], identifier).is_ok() {
            self.unreported[end].insert(identifier);
        }
    }

    fn read(&mut self, end: usize, stream: u64, most: usize) {
        let mut bytes = vec![0; most];
        let from = 1 - end;
        match self.ends[end].stream_recv(stream, &mut bytes) {
            Ok((read, is_end)) if !self.is_modified => {
                let direction = self.directions.entry((from, stream)).or_default();
                let expected =
                    (0..read as u64).map(|at| pattern(from, stream, direction.read + at));
                assert!(expected.eq(bytes[..read].iter().copied()), "stream {stream}: wrong data");
                direction.read += read as u64;
                assert!(direction.read <= direction.sent);
                let is_whole = direction.is_finished && direction.read == direction.sent;
                assert!(!is_end || is_whole, "stream {stream} ends before its data");
            }
            Err(quiche::Error::StreamReset(_)) => {
                self.directions.entry((from, stream)).or_default().is_cut = true;
            }
            _ => {}
        }
    }

    fn shut_down(&mut self, end: usize, stream: u64, choice: usize) {
        let (direction, from) = match choice & 1 {
            0 => (Shutdown::Read, 1 - end),
            _ => (Shutdown::Write, end),
        };
        if self.ends[end].stream_shutdown(stream, direction, choice as u64).is_ok() {
            self.directions.entry((from, stream)).or_default().is_cut = true;
        }
    }

    /// Whether there was anything to send.
    fn emit(&mut self, end: usize, most: usize) -> bool {
        for number in 0..most {
            let mut bytes = vec![0; MAX_DATAGRAM_BYTES];
            let Ok((written, info)) = self.ends[end].send(&mut bytes) else { return number > 0 };
            bytes.truncate(written);
            let info = RecvInfo { from: info.from, to: info.to };
            match self.path.len() < MAX_IN_FLIGHT {
                true => self.path.push_back(Packet { bytes, info, to: 1 - end }),
                false => self.is_lossy = true,
            }
        }
        true
    }

    fn chosen(&self, choice: usize) -> usize {
        choice % self.path.len().max(1)
    }

    fn deliver(&mut self, choice: usize) {
        let Some(mut packet) = self.path.remove(self.chosen(choice)) else { return };
        self.ends[packet.to].recv(&mut packet.bytes, packet.info).ok();
    }

    fn lose(&mut self, choice: usize) {
        self.is_lossy |= self.path.remove(self.chosen(choice)).is_some();
    }

    fn repeat(&mut self, choice: usize) {
        let Some(packet) = self.path.get(self.chosen(choice)) else { return };
        let again = Packet { bytes: packet.bytes.clone(), ..*packet };
        if self.path.len() < MAX_IN_FLIGHT {
            self.path.push_back(again);
        }
    }

    fn flip(&mut self, choice: usize, bit: usize) {
        let choice = self.chosen(choice);
        let Some(packet) = self.path.get_mut(choice) else { return };
        let bit = bit % (8 * packet.bytes.len());
        packet.bytes[bit / 8] ^= 1 << (bit % 8);
        self.is_modified = true;
    }

    /// Replaces the frames of the first packet.
    fn inject(&mut self, frames: &[u8]) {
        let Some(packet) = self.path.front_mut() else { return };
        let has_short_header = packet.bytes[0] & 0x80 == 0;
        // Flags, Destination Connection ID, packet number (RFC 9000, Section 17.3.1).
        let payload_at = 1 + CONNECTION_ID_BYTES + usize::from(packet.bytes[0] & 3) + 1;
        let is_long_enough = packet.bytes.len() >= payload_at + TAG_BYTES;
        if !has_short_header || !is_long_enough || frames.is_empty() {
            return;
        }
        packet.bytes.truncate(payload_at);
        packet.bytes.extend_from_slice(frames);
        packet.bytes.extend_from_slice(&[0; TAG_BYTES]);
        self.is_modified = true;
    }

    /// The client continues from another port.
    fn move_client(&mut self) {
        self.moves = (self.moves + 1) % 8;
        let local = SocketAddr::from((CLIENT_ADDRESS.0, 2000 + self.moves));
        self.ends[CLIENT].migrate_source(local).ok();
        // Packets of an abandoned path may be dropped.
        self.is_lossy = true;
    }

    fn report_path_mtu(&mut self, end: usize, bytes: usize) {
        let peer = self.ends[end].path_stats().find(|path| path.active).map(|path| path.peer_addr);
        if let Some(peer) = peer {
            self.ends[end].on_path_mtu(peer, None, bytes);
        }
    }

    fn wait(&mut self, end: usize) {
        let Some(timeout) = self.ends[end].timeout() else { return };
        if self.timeouts < MAX_TIMEOUTS && timeout <= MAX_TIMEOUT {
            self.timeouts += 1;
            std::thread::sleep(timeout);
            self.ends[end].on_timeout();
        }
    }

    /// All packets arrive in order, and those that follow from them.
    fn flush(&mut self) {
        for _ in 0..MAX_FLIGHTS {
            let has_sent = [CLIENT, SERVER].map(|end| self.emit(end, 8));
            if self.path.is_empty() && has_sent == [false, false] {
                return;
            }
            while !self.path.is_empty() {
                self.deliver(0);
            }
        }
    }

    fn check(&mut self) {
        for (end, unreported) in self.ends.iter_mut().zip(&mut self.unreported) {
            while let Some(outcome) = end.dgram_outcome() {
                assert!(unreported.remove(&outcome.id), "a frame has two outcomes: {outcome:?}");
            }
        }
        for (end, stream) in self.ends.iter().flat_map(|end| (0..24).map(move |it| (end, it))) {
            let held = end.stream_held_bytes(stream).received;
            assert!(held <= MAX_STREAM_HELD_BYTES, "stream {stream} holds {held} bytes");
        }
        if self.is_modified || self.is_closed {
            return;
        }
        for end in &self.ends {
            assert!(end.local_error().is_none(), "{:?}", end.local_error());
        }
        for ((from, stream), direction) in &self.directions {
            assert!(
                direction.is_cut || direction.sent - direction.read <= MAX_STREAM_WINDOW,
                "stream {stream} of end {from} holds more than its window"
            );
        }
    }

    /// Delivers and reads until nothing moves.
    fn drain(&mut self) {
        for _ in 0..64 {
            self.flush();
            let mut has_read = false;
            for end in [CLIENT, SERVER] {
                while let Some(stream) = self.ends[end].stream_readable_next() {
                    self.read(end, stream, 64 << 10);
                    has_read = true;
                }
            }
            if !has_read {
                return;
            }
        }
    }

    fn stuck(&self) -> Option<(usize, u64)> {
        let is_stuck = |it: &Direction| !it.is_cut && it.read < it.sent;
        self.directions.iter().find(|(_, it)| is_stuck(it)).map(|(key, _)| *key)
    }

    /// All data arrives. After losses a timer may be needed for it; those that are short are waited for.
    fn finish(&mut self) {
        self.drain();
        self.check();
        while let Some((from, stream)) = self.stuck() {
            if self.is_modified || self.is_closed {
                return;
            }
            assert!(self.is_lossy, "stream {stream} of end {from} is stuck");
            let timeout = self.ends.iter().filter_map(Connection::timeout).min();
            let timeout = timeout.expect("data is missing and no timer is armed");
            if self.timeouts >= MAX_TIMEOUTS || timeout > MAX_TIMEOUT {
                return;
            }
            self.timeouts += 1;
            std::thread::sleep(timeout);
            self.ends.iter_mut().for_each(Connection::on_timeout);
            self.drain();
            self.check();
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let mut schedule = Schedule(input);
    let Some(choice) = schedule.byte() else { return };
    let controller = &CONTROLLERS[choice % CONTROLLERS.len()];
    let mut pair = CONFIG.with_borrow_mut(|config| Pair::new(config, controller));
    for _ in 0..MAX_OPERATIONS {
        if pair.step(&mut schedule).is_none() {
            break;
        }
    }
    pair.finish();
});
