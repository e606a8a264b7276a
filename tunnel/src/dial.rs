//! Connecting to a destination that has several addresses (Happy Eyeballs v2, RFC 8305).

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use millrace_config::Dial;
use millrace_wire::ConnectFailure;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use socket2::{Domain, Protocol, Socket, Type};

use crate::local_resources::{bind_source, log_shortage};

/// Addresses tried for one destination.
pub const MAX_ADDRESSES: usize = 8;

/// Alternates families, beginning with that of the first (RFC 8305, Section 4).
pub fn interleave(addresses: &[SocketAddr]) -> VecDeque<SocketAddr> {
    let Some(first) = addresses.first() else { return VecDeque::new() };
    let (same, other): (Vec<SocketAddr>, Vec<SocketAddr>) =
        addresses.iter().partition(|address| address.is_ipv4() == first.is_ipv4());
    let mut order = VecDeque::new();
    let (mut same, mut other) = (same.into_iter(), other.into_iter());
    while order.len() < MAX_ADDRESSES {
        let before = order.len();
        order.extend(same.next());
        order.extend(other.next());
        if order.len() == before {
            break;
        }
    }
    order.truncate(MAX_ADDRESSES);
    order
}

struct Attempt {
    socket: TcpStream,
    number: usize,
    give_up: Instant,
}

/// What a dialler has come to.
#[derive(Debug)]
pub enum DialProgress {
    /// Not yet.
    Waiting,
    /// Connected; the socket is registered with the loop.
    Connected(TcpStream),
    /// No address is left.
    Failed(ConnectFailure),
}

/// The attempts to connect to one destination.
pub struct Dialer {
    addresses: VecDeque<SocketAddr>,
    attempts: Vec<Attempt>,
    started: usize,
    next_attempt: Instant,
    failure: ConnectFailure,
    mark: Option<u32>,
}

impl Dialer {
    /// No attempt is started yet.
    pub fn new(addresses: VecDeque<SocketAddr>, now: Instant) -> Self {
        Self {
            addresses,
            attempts: Vec::new(),
            started: 0,
            next_attempt: now,
            failure: ConnectFailure::Internal,
            mark: None,
        }
    }

    /// Sets `SO_MARK` on the sockets, by which firewall rules let them pass.
    pub fn with_mark(self, mark: Option<u32>) -> Self {
        Self { mark, ..self }
    }

    /// When [`Dialer::advance`] has something to do without an event.
    pub fn next_deadline(&self) -> Option<Instant> {
        let next = (!self.addresses.is_empty()).then_some(self.next_attempt);
        self.attempts.iter().map(|attempt| attempt.give_up).chain(next).min()
    }

    /// Starts and gives up attempts as their time has come. `token` numbers the attempts.
    pub fn advance(
        &mut self,
        registry: &Registry,
        dial: &Dial,
        token: impl Fn(usize) -> Token,
        now: Instant,
    ) -> DialProgress {
        let before = self.attempts.len();
        self.attempts.retain(|attempt| attempt.give_up > now);
        if self.attempts.len() < before {
            self.failure = ConnectFailure::TimedOut;
        }
        while self.next_attempt <= now || self.attempts.is_empty() {
            let Some(address) = self.addresses.pop_front() else { break };
            let number = self.started;
            self.started += 1;
            match connect(address, dial, self.mark, registry, token(number)) {
                Ok(socket) => {
                    let give_up = now + dial.per_address_timeout;
                    self.attempts.push(Attempt { socket, number, give_up });
                    self.next_attempt = now + dial.attempt_delay;
                }
                Err(error) => {
                    log_shortage(&error, address);
                    self.failure = ConnectFailure::from(&error);
                }
            }
        }
        match self.attempts.is_empty() {
            true => DialProgress::Failed(self.failure),
            false => DialProgress::Waiting,
        }
    }

    /// An attempt's socket reported something.
    pub fn on_event(&mut self, number: usize, now: Instant) -> DialProgress {
        let Some(index) = self.attempts.iter().position(|attempt| attempt.number == number) else {
            return DialProgress::Waiting;
        };
        let socket = &self.attempts[index].socket;
        let error = match socket.take_error() {
            Ok(None) => match socket.peer_addr() {
                Ok(_) => return DialProgress::Connected(self.attempts.swap_remove(index).socket),
                // Still under way: connect(2) reports success as writability with a peer.
                Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                    return DialProgress::Waiting;
                }
                Err(error) => error,
            },
            Ok(Some(error)) | Err(error) => error,
        };
        self.failure = ConnectFailure::from(&error);
        self.attempts.swap_remove(index);
        // The next address need not wait for its delay (RFC 8305, Section 5).
        self.next_attempt = now;
        DialProgress::Waiting
    }
}

fn connect(
    address: SocketAddr,
    dial: &Dial,
    mark: Option<u32>,
    registry: &Registry,
    token: Token,
) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    // Urgent data has its place in the stream (RFC 6093 §3).
    socket.set_out_of_band_inline(true)?;
    if let Some(mark) = mark {
        socket.set_mark(mark)?;
    }
    let same_family = |source: &&IpAddr| source.is_ipv4() == address.is_ipv4();
    if let Some(source) = dial.bind_source.iter().find(same_family) {
        bind_source(&socket, *source, address)?;
    }
    match socket.connect(&address.into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
        Err(error) => return Err(error),
    }
    let mut socket = TcpStream::from_std(socket.into());
    registry.register(&mut socket, token, Interest::READABLE | Interest::WRITABLE)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::time::Duration;

    fn addresses(text: &[&str]) -> Vec<SocketAddr> {
        text.iter().map(|it| it.parse().expect("an address")).collect()
    }

    fn dial() -> Dial {
        Dial {
            timeout: Duration::from_secs(5),
            per_address_timeout: Duration::from_secs(4),
            attempt_delay: Duration::from_millis(250),
            bind_source: Vec::new(),
        }
    }

    #[test]
    fn families_alternate() {
        let given = addresses(&["[::1]:1", "[::2]:1", "[::3]:1", "198.18.0.1:1"]);
        let order = interleave(&given);
        assert_eq!(order, addresses(&["[::1]:1", "198.18.0.1:1", "[::2]:1", "[::3]:1"]));
    }

    #[test]
    fn a_name_with_very_many_addresses_is_bounded() {
        let many: Vec<_> = (0..100).map(|n| SocketAddr::from(([198, 18, 0, n], 80))).collect();
        assert_eq!(interleave(&many).len(), MAX_ADDRESSES);
    }

    #[test]
    fn a_refused_address_gives_way_to_the_next_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let closed = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let refused = closed.local_addr().expect("bound");
        drop(closed);
        let mut poll = mio::Poll::new().expect("epoll");
        let mut events = mio::Events::with_capacity(8);
        let open = listener.local_addr().expect("bound");
        let start = Instant::now();
        let mut dialer = Dialer::new(interleave(&[refused, open]), start);
        let connected = loop {
            let now = Instant::now();
            assert!(now - start < Duration::from_secs(5), "no connection");
            dialer.advance(poll.registry(), &dial(), Token, now);
            poll.poll(&mut events, Some(Duration::from_millis(50))).expect("poll");
            let mut done = None;
            for event in &events {
                if let DialProgress::Connected(socket) =
                    dialer.on_event(event.token().0, Instant::now())
                {
                    done = Some(socket);
                }
            }
            if let Some(socket) = done {
                break socket;
            }
        };
        assert_eq!(connected.peer_addr().expect("connected"), open);
    }

    #[test]
    fn the_last_failure_is_the_one_reported() {
        let closed = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let refused = closed.local_addr().expect("bound");
        drop(closed);
        let poll = mio::Poll::new().expect("epoll");
        let start = Instant::now();
        let mut dialer = Dialer::new(interleave(&[refused]), start);
        dialer.advance(poll.registry(), &dial(), Token, start);
        std::thread::sleep(Duration::from_millis(20));
        assert!(matches!(dialer.on_event(0, Instant::now()), DialProgress::Waiting));
        let end = dialer.advance(poll.registry(), &dial(), Token, Instant::now());
        assert!(matches!(end, DialProgress::Failed(ConnectFailure::Refused)), "{end:?}");
    }
}
