//! A UDP path between client and server: it delays, swallows or records, and passes on everything
//! else. Each client address gets a socket of its own towards the server, as behind a NAT.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt,
    sockopt,
};
use nix::sys::time::TimeSpec;
use socket2::SockRef;

use crate::{priority, wait};

/// The most that one receive call answers, with offload.
const MESSAGE_BYTES: usize = 65_536;
/// Receive calls on one socket before the others get their turn.
const BATCH: usize = 32;
/// What a fast sender may have on its way while this thread is not scheduled.
const SOCKET_BUFFER_BYTES: usize = 16 << 20;

/// What the path does.
#[derive(Clone, Copy, Debug, Default)]
pub struct RelayOptions {
    /// Propagation in each direction.
    pub one_way: Duration,
    /// Keep the kernel's receive time and the size of each datagram from the server. Turns
    /// aggregation off, so that every datagram is seen.
    pub record: bool,
    /// Of a thousand messages in either direction so many do not arrive.
    pub loss_permille: u32,
}

/// What happens to datagrams in either direction, each with its probability in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// One bit is another.
    pub corrupt_permille: u32,
    /// A second one arrives.
    pub duplicate_permille: u32,
    /// It arrives [`REORDER_DELAY`] later than those after it.
    pub reorder_permille: u32,
    /// It does not arrive.
    pub lose_permille: u32,
    /// Larger ones do not arrive, in bytes of UDP payload; 0 is no limit.
    pub max_datagram_bytes: usize,
}

impl Faults {
    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// By how much a reordered datagram is late: some tens of packets at 50 Mbit/s.
pub const REORDER_DELAY: Duration = Duration::from_millis(8);

/// A datagram from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The kernel's receive time, in nanoseconds of the wall clock.
    pub at_ns: u64,
    /// UDP payload.
    pub bytes: u32,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    swallow: AtomicBool,
    swallowed: AtomicU64,
    /// Datagrams of more bytes do not arrive; 0 is no limit.
    largest_bytes: AtomicUsize,
    rebind: AtomicBool,
    sent: AtomicBool,
    faults: Mutex<Faults>,
    records: Mutex<Vec<Record>>,
}

/// A running path. Dropping it stops it.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Starts a path to `server`.
    ///
    /// # Panics
    /// When its sockets can't be opened.
    #[must_use]
    pub fn start(server: SocketAddr, options: RelayOptions) -> Self {
        Self::start_on((Ipv4Addr::LOCALHOST, 0).into(), server, options)
    }

    /// The same at an address, in the calling thread's network namespace.
    ///
    /// # Panics
    /// When its sockets can't be opened.
    #[must_use]
    pub fn start_on(front: SocketAddr, server: SocketAddr, options: RelayOptions) -> Self {
        let front = open_on(front, options);
        let address = front.local_addr().expect("a bound socket has an address");
        let shared = Arc::<Shared>::default();
        let state = State {
            server,
            options,
            front,
            sessions: Vec::new(),
            queues: [VecDeque::new(), VecDeque::new()],
            shared: shared.clone(),
            buffer: vec![0; MESSAGE_BYTES],
            random: 1,
            faults: Faults::default(),
        };
        let thread = std::thread::Builder::new().name("relay".into()).spawn(move || state.run());
        Self { address, shared, thread: Some(thread.expect("a thread")) }
    }

    /// Where the client is to send to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on nothing arrives, or everything again.
    pub fn swallow(&self, swallow: bool) {
        self.shared.swallow.store(swallow, Ordering::Relaxed);
    }

    /// From now on datagrams of more than so many bytes do not arrive, in either direction; all do without.
    pub fn pass_up_to(&self, bytes: Option<usize>) {
        self.shared.largest_bytes.store(bytes.unwrap_or(0), Ordering::Relaxed);
    }

    /// Datagrams that did not arrive because of [`Relay::swallow`].
    #[must_use]
    pub fn swallowed(&self) -> u64 {
        self.shared.swallowed.load(Ordering::Relaxed)
    }

    /// From now on datagrams meet with these faults, in both directions.
    pub fn set_faults(&self, faults: Faults) {
        *self.shared.faults.lock().unwrap_or_else(PoisonError::into_inner) = faults;
    }

    /// Gives each client another address towards the server, as a NAT does that has lost its table.
    ///
    /// # Panics
    /// When the path has ended.
    pub fn rebind(&self) {
        self.shared.rebind.store(true, Ordering::Relaxed);
        wait::for_true("the relay rebinds", wait::DEFAULT_TIMEOUT, || {
            !self.shared.rebind.load(Ordering::Relaxed)
        });
    }

    /// Whether anything has been passed on to the server since the last [`Relay::rebind`].
    #[must_use]
    pub fn has_sent(&self) -> bool {
        self.shared.sent.load(Ordering::Relaxed)
    }

    /// Takes what has been recorded until now.
    #[must_use]
    pub fn take_records(&self) -> Vec<Record> {
        std::mem::take(&mut self.shared.records.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

/// One message: a datagram, or several of one size that the kernel has put together.
struct Message {
    due: Instant,
    session: usize,
    bytes: Vec<u8>,
    segment: Option<u16>,
}

struct State {
    server: SocketAddr,
    options: RelayOptions,
    front: UdpSocket,
    sessions: Vec<(SocketAddr, UdpSocket)>,
    /// Towards the server, and towards the client.
    queues: [VecDeque<Message>; 2],
    shared: Arc<Shared>,
    buffer: Vec<u8>,
    random: u64,
    faults: Faults,
}

impl State {
    fn run(mut self) {
        priority::raise_thread();
        while !self.shared.stop.load(Ordering::Relaxed) {
            if self.shared.rebind.load(Ordering::Relaxed) {
                for (_, socket) in &mut self.sessions {
                    *socket = towards(self.server, self.options);
                }
                self.shared.sent.store(false, Ordering::Relaxed);
                self.shared.rebind.store(false, Ordering::Relaxed);
            }
            let readable = self.wait();
            // After the wait: what comes now meets with the faults set before.
            self.faults = *self.shared.faults.lock().unwrap_or_else(PoisonError::into_inner);
            for (index, readable) in readable.into_iter().enumerate() {
                for _ in 0..if readable { BATCH } else { 0 } {
                    if !self.receive(index) {
                        break;
                    }
                }
            }
            self.release();
        }
    }

    /// Which of the sockets have something: the front one, then each session's.
    fn wait(&self) -> Vec<bool> {
        let due = self.queues.iter().filter_map(|queue| queue.front()).map(|first| first.due).min();
        let most = Duration::from_millis(20);
        let timeout =
            due.map_or(most, |due| due.saturating_duration_since(Instant::now()).min(most));
        let sockets = std::iter::once(&self.front).chain(self.sessions.iter().map(|(_, s)| s));
        let mut fds: Vec<_> =
            sockets.map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN)).collect();
        match ppoll(&mut fds, Some(TimeSpec::from_duration(timeout)), None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => panic!("ppoll: {error}"),
        }
        fds.iter().map(|fd| fd.any().unwrap_or(false)).collect()
    }

    /// Receives one message; `false` when none waits.
    fn receive(&mut self, index: usize) -> bool {
        let socket = if index == 0 { &self.front } else { &self.sessions[index - 1].1 };
        let mut control = cmsg_space!(TimeSpec, i32);
        let mut parts = [IoSliceMut::new(&mut self.buffer)];
        let received = recvmsg::<SockaddrStorage>(
            socket.as_raw_fd(),
            &mut parts,
            Some(&mut control),
            MsgFlags::MSG_DONTWAIT,
        );
        // Among other errors: an ICMP answer of a server that is away.
        let Ok(received) = received else { return false };
        let (length, from) = (received.bytes, received.address);
        let (mut segment, mut at_ns) = (None, 0);
        for message in received.cmsgs().into_iter().flatten() {
            match message {
                ControlMessageOwned::UdpGroSegments(bytes) => segment = u16::try_from(bytes).ok(),
                ControlMessageOwned::ScmTimestampns(at) => {
                    at_ns = at.tv_sec() as u64 * 1_000_000_000 + at.tv_nsec() as u64;
                }
                _ => {}
            }
        }
        let session = if index == 0 { self.session(from) } else { Some(index - 1) };
        let Some(session) = session else { return true };
        if self.options.record && index > 0 {
            let record = Record { at_ns, bytes: length as u32 };
            self.shared.records.lock().unwrap_or_else(PoisonError::into_inner).push(record);
        }
        if self.shared.swallow.load(Ordering::Relaxed) {
            self.shared.swallowed.fetch_add(1, Ordering::Relaxed);
            return true;
        }
        let largest = self.shared.largest_bytes.load(Ordering::Relaxed);
        if largest > 0 && segment.map_or(length, usize::from) > largest {
            return true;
        }
        if self.is_lost() {
            return true;
        }
        let message = Message {
            due: Instant::now() + self.options.one_way,
            session,
            bytes: self.buffer[..length].to_vec(),
            segment: segment.filter(|segment| usize::from(*segment) < length),
        };
        let to_client = index > 0;
        match self.faults.is_none() {
            true => self.queues[usize::from(to_client)].push_back(message),
            false => self.queue_with_faults(message, to_client),
        }
        true
    }

    /// Queues a message's datagrams one by one, with what happens to each.
    fn queue_with_faults(&mut self, message: Message, to_client: bool) {
        let Message { due, session, bytes, segment } = message;
        let faults = self.faults;
        for datagram in bytes.chunks(segment.map_or(bytes.len().max(1), usize::from)) {
            let too_large =
                faults.max_datagram_bytes > 0 && datagram.len() > faults.max_datagram_bytes;
            if too_large || self.draws(faults.lose_permille) {
                continue;
            }
            let mut bytes = datagram.to_vec();
            if self.draws(faults.corrupt_permille) {
                let bit = self.next_random() as usize % (8 * bytes.len());
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            let late = self.draws(faults.reorder_permille);
            let due = if late { due + REORDER_DELAY } else { due };
            let copies = 1 + usize::from(self.draws(faults.duplicate_permille));
            for _ in 0..copies {
                let message = Message { due, session, bytes: bytes.clone(), segment: None };
                let queue = &mut self.queues[usize::from(to_client)];
                let place = queue.partition_point(|queued| queued.due <= due);
                queue.insert(place, message);
            }
        }
    }

    /// Draws whether a message gets lost, the same in every run.
    fn is_lost(&mut self) -> bool {
        self.draws(self.options.loss_permille)
    }

    fn draws(&mut self, permille: u32) -> bool {
        permille > 0 && self.next_random() % 1000 < u64::from(permille)
    }

    /// xorshift64 (Marsaglia 2003).
    fn next_random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// The session of a client, made when it is new.
    fn session(&mut self, from: Option<SockaddrStorage>) -> Option<usize> {
        let v4 = from.as_ref()?.as_sockaddr_in()?;
        let from = SocketAddr::from((v4.ip(), v4.port()));
        let known = self.sessions.iter().position(|(client, _)| *client == from);
        Some(known.unwrap_or_else(|| {
            self.sessions.push((from, towards(self.server, self.options)));
            self.sessions.len() - 1
        }))
    }

    /// Hands over what is due.
    fn release(&mut self) {
        let now = Instant::now();
        for (queue, to_client) in self.queues.iter_mut().zip([false, true]) {
            while let Some(message) = queue.pop_front_if(|message| message.due <= now) {
                let (client, back) = &self.sessions[message.session];
                let client = SockaddrStorage::from(*client);
                let (socket, to) =
                    if to_client { (&self.front, Some(&client)) } else { (back, None) };
                let segment = message.segment.unwrap_or(0);
                let control = [ControlMessage::UdpGsoSegments(&segment)];
                let control = &control[..usize::from(message.segment.is_some())];
                let parts = [IoSlice::new(&message.bytes)];
                if !to_client {
                    self.shared.sent.store(true, Ordering::Relaxed);
                }
                // What can't be sent is lost, as on any path.
                sendmsg(socket.as_raw_fd(), &parts, control, MsgFlags::MSG_DONTWAIT, to).ok();
            }
        }
    }
}

fn towards(server: SocketAddr, options: RelayOptions) -> UdpSocket {
    let socket = open(options);
    socket.connect(server).expect("a UDP socket can be connected");
    socket
}

fn open(options: RelayOptions) -> UdpSocket {
    open_on((Ipv4Addr::LOCALHOST, 0).into(), options)
}

fn open_on(address: SocketAddr, options: RelayOptions) -> UdpSocket {
    let socket = UdpSocket::bind(address).expect("a UDP socket");
    let buffers = SockRef::from(&socket);
    // Beyond the system's limit where that is permitted.
    if setsockopt(&socket, sockopt::RcvBufForce, &SOCKET_BUFFER_BYTES).is_err() {
        buffers.set_recv_buffer_size(SOCKET_BUFFER_BYTES).expect("SO_RCVBUF");
    }
    if setsockopt(&socket, sockopt::SndBufForce, &SOCKET_BUFFER_BYTES).is_err() {
        buffers.set_send_buffer_size(SOCKET_BUFFER_BYTES).expect("SO_SNDBUF");
    }
    if options.record {
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true).expect("SO_TIMESTAMPNS");
    } else {
        setsockopt(&socket, sockopt::UdpGroSegment, &true).expect("UDP_GRO");
    }
    socket
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(options: RelayOptions) -> (UdpSocket, UdpSocket, Relay) {
        let [client, server] = [(); 2].map(|()| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        for end in [&client, &server] {
            end.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        }
        let relay = Relay::start(server.local_addr().unwrap(), options);
        client.connect(relay.address()).unwrap();
        (client, server, relay)
    }

    #[test]
    fn delays_each_way() {
        let one_way = Duration::from_millis(40);
        let (client, server, _relay) = ends(RelayOptions { one_way, ..Default::default() });
        let mut buffer = [0; 100];
        let started = Instant::now();
        client.send(b"there").unwrap();
        let (length, from) = server.recv_from(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"there");
        assert!(started.elapsed() >= one_way);
        server.send_to(b"back", from).unwrap();
        assert_eq!(client.recv(&mut buffer).unwrap(), 4);
        assert!(started.elapsed() >= 2 * one_way && started.elapsed() < 8 * one_way);
    }

    #[test]
    fn swallows_and_records() {
        let (client, server, relay) = ends(RelayOptions { record: true, ..Default::default() });
        let mut buffer = [0; 100];
        client.send(b"hello").unwrap();
        let (_, from) = server.recv_from(&mut buffer).unwrap();
        server.send_to(b"four", from).unwrap();
        server.send_to(b"three", from).unwrap();
        assert_eq!(client.recv(&mut buffer).unwrap(), 4);
        assert_eq!(client.recv(&mut buffer).unwrap(), 5);
        let records = relay.take_records();
        assert_eq!(records.iter().map(|record| record.bytes).collect::<Vec<_>>(), [4, 5]);
        assert!(records[0].at_ns > 0 && records[0].at_ns <= records[1].at_ns);
        relay.swallow(true);
        client.send(b"lost").unwrap();
        server.recv_from(&mut buffer).unwrap_err();
        assert_eq!(relay.swallowed(), 1);
        relay.swallow(false);
        client.send(b"again").unwrap();
        assert_eq!(server.recv_from(&mut buffer).unwrap().0, 5);
    }

    #[test]
    fn rebinds() {
        let (client, server, relay) = ends(RelayOptions::default());
        let mut seen = Vec::new();
        for _ in 0..3 {
            client.send(b"here").unwrap();
            seen.push(server.recv_from(&mut [0; 100]).unwrap().1);
            assert!(relay.has_sent());
            relay.rebind();
        }
        assert!(!relay.has_sent());
        assert!(seen[0] != seen[1] && seen[1] != seen[2]);
        // The old mapping is gone.
        server.send_to(b"back", seen[2]).unwrap();
        client.recv(&mut [0; 100]).unwrap_err();
    }

    fn sizes_through(faults: Faults) -> Vec<usize> {
        let (client, server, relay) = ends(RelayOptions::default());
        relay.set_faults(faults);
        // Beside the sending: a socket's buffer has no room for all.
        std::thread::scope(|scope| {
            let received = scope.spawn(|| {
                let mut buffer = [0; 300];
                let next = || server.recv_from(&mut buffer).ok();
                std::iter::from_fn(next).map(|(length, _)| length).collect()
            });
            for bytes in 1..=100_usize {
                client.send(&vec![0; bytes]).unwrap();
            }
            received.join().unwrap()
        })
    }

    #[test]
    fn duplicates_reorders_and_limits_the_size() {
        let all: Vec<_> = (1..=100).collect();
        let doubled = sizes_through(Faults { duplicate_permille: 1000, ..Faults::default() });
        assert_eq!(doubled.len(), 200);
        let small = sizes_through(Faults { max_datagram_bytes: 50, ..Faults::default() });
        assert_eq!(small, all[..50]);
        let mut mixed = sizes_through(Faults { reorder_permille: 300, ..Faults::default() });
        assert_ne!(mixed, all);
        mixed.sort_unstable();
        assert_eq!(mixed, all);
    }

    #[test]
    fn corrupts_one_bit() {
        let (client, server, relay) = ends(RelayOptions::default());
        relay.set_faults(Faults { corrupt_permille: 1000, ..Faults::default() });
        client.send(&[0; 64]).unwrap();
        let mut buffer = [0; 100];
        let (length, _) = server.recv_from(&mut buffer).unwrap();
        assert_eq!(buffer[..length].iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
    }

    #[test]
    fn loses() {
        let (client, server, _relay) =
            ends(RelayOptions { loss_permille: 500, ..Default::default() });
        for _ in 0..200 {
            client.send(b"perhaps").unwrap();
        }
        let arrived = std::iter::from_fn(|| server.recv_from(&mut [0; 100]).ok()).count();
        assert!((60..140).contains(&arrived), "{arrived} of 200");
    }
}
