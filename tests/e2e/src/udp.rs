//! UDP origins, and clients of a UDP listener.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::SockRef;

use crate::wait;

/// How often an origin looks whether it is to end.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
const BUFFER_BYTES: usize = 4 << 20;

/// Answers each datagram with itself, and counts them. Ends when dropped.
#[derive(Debug)]
pub struct UdpEcho {
    address: SocketAddr,
    seen: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl UdpEcho {
    /// On a port of 127.0.0.1.
    ///
    /// # Panics
    /// When it can't have one.
    #[must_use]
    pub fn start() -> Self {
        Self::with(|datagram| datagram.to_vec())
    }

    /// The same with another answer.
    ///
    /// # Panics
    /// When it can't have a port.
    pub fn with(answer: impl Fn(&[u8]) -> Vec<u8> + Send + 'static) -> Self {
        Self::at(Ipv4Addr::LOCALHOST.into(), answer)
    }

    /// The same on another address of this machine.
    ///
    /// # Panics
    /// When it can't have a port.
    pub fn at(ip: IpAddr, answer: impl Fn(&[u8]) -> Vec<u8> + Send + 'static) -> Self {
        Self::on((ip, 0).into(), answer)
    }

    /// The same on a port of its own.
    ///
    /// # Panics
    /// When it can't have it.
    pub fn on(address: SocketAddr, answer: impl Fn(&[u8]) -> Vec<u8> + Send + 'static) -> Self {
        let socket = socket_on(address);
        socket.set_read_timeout(Some(CHECK_INTERVAL)).expect("a UDP socket");
        let address = socket.local_addr().expect("it is bound");
        let (seen, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, stopped) = (seen.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 65_536];
            while !stopped.load(Ordering::Relaxed) {
                let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
                count.fetch_add(1, Ordering::Relaxed);
                // The client may have closed its socket.
                let _ = socket.send_to(&answer(&buffer[..length]), from);
            }
        });
        Self { address, seen, stop, thread: Some(thread) }
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Datagrams that it has got.
    #[must_use]
    pub fn seen(&self) -> usize {
        self.seen.load(Ordering::Relaxed)
    }
}

impl Drop for UdpEcho {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the echo does not panic");
        }
    }
}

/// A socket on a port of 127.0.0.1 with large buffers: losses shall be those of the tunnel.
///
/// # Panics
/// When the socket can't be bound.
#[must_use]
pub fn socket() -> UdpSocket {
    socket_at(Ipv4Addr::LOCALHOST.into())
}

/// The same on another address of this machine.
///
/// # Panics
/// When the socket can't be bound.
#[must_use]
pub fn socket_at(ip: IpAddr) -> UdpSocket {
    socket_on((ip, 0).into())
}

/// The same on a port of its own.
///
/// # Panics
/// When the socket can't be bound.
#[must_use]
pub fn socket_on(address: SocketAddr) -> UdpSocket {
    let bound = wait::for_free_address(|| UdpSocket::bind(address));
    let socket = bound.expect("an address of this machine");
    // As much as the system grants.
    let _ = SockRef::from(&socket).set_recv_buffer_size(BUFFER_BYTES);
    socket
}

/// A client of a UDP listener, on the listener's address.
///
/// # Panics
/// When there is no socket.
#[must_use]
pub fn client(listener: SocketAddr) -> UdpSocket {
    let socket = socket_at(listener.ip());
    socket.connect(listener).expect("a UDP address");
    socket
}

/// The next datagram, if one comes in time.
pub fn receive(socket: &UdpSocket, at_most: Duration) -> Option<Vec<u8>> {
    let mut buffer = vec![0; 65_536];
    socket.set_read_timeout(Some(at_most)).ok()?;
    loop {
        match socket.recv(&mut buffer) {
            Ok(length) => {
                buffer.truncate(length);
                return Some(buffer);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

/// Sends a datagram and returns the next that comes.
pub fn exchange(socket: &UdpSocket, datagram: &[u8], at_most: Duration) -> Option<Vec<u8>> {
    socket.send(datagram).ok()?;
    receive(socket, at_most)
}
