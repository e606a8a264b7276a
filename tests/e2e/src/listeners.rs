//! Clients of the listeners of millrace-client.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use socket2::Socket;

use crate::tcp::{self, End};

/// A TCP listener of millrace-client under test, by its mode.
#[derive(Clone, Debug)]
pub enum TestListener {
    /// `static`: the destination is in the configuration.
    Static(SocketAddr),
    /// `http_connect`
    Http(SocketAddr),
    /// `socks5`
    Socks(SocketAddr),
    /// `proxy_protocol`, on TCP.
    Proxy(SocketAddr),
    /// `proxy_protocol`, on a Unix socket.
    ProxyUnix(PathBuf),
}

/// Why a flow was refused.
#[derive(Debug)]
pub enum Refusal {
    /// The proxy's answer to CONNECT other than 200.
    Http {
        /// The status.
        status: u16,
        /// The whole head.
        head: String,
    },
    /// The proxy's SOCKS reply other than 0.
    Socks(u8),
    /// The connection to the proxy failed.
    Io(io::Error),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl TestListener {
    /// Opens a flow to `destination`, written `host:port`. At listeners without a failure reply the flow
    /// opens in any case, and is reset when it can't be connected.
    ///
    /// # Errors
    /// What the proxy answered.
    pub fn open(&self, destination: &str) -> Result<Socket, Refusal> {
        match self {
            Self::Static(address) => Ok(tcp::connect(*address)?),
            Self::Http(address) => http_connect(tcp::connect(*address)?, destination),
            Self::Socks(address) => socks5(tcp::connect(*address)?, destination),
            Self::Proxy(address) => Ok(proxy_header(tcp::connect(*address)?, destination)?),
            Self::ProxyUnix(path) => Ok(proxy_header(tcp::connect_unix(path)?, destination)?),
        }
    }

    /// Opens a flow to `destination` and reads it to its end: what came, and what the end was.
    ///
    /// # Errors
    /// What the proxy answered.
    pub fn drain(&self, destination: &str) -> Result<(Vec<u8>, End), Refusal> {
        match self.open(destination) {
            // Linux says so of a connection that was there and was reset before connect(2) could tell, and
            // ECONNREFUSED of one that never was.
            Err(Refusal::Io(error)) if error.kind() == io::ErrorKind::ConnectionReset => {
                Ok((vec![], End::Reset))
            }
            opened => opened.map(tcp::drain),
        }
    }

    /// Connects to the listener without sending anything.
    ///
    /// # Panics
    /// When it can't be made.
    #[must_use]
    pub fn connect(&self) -> Socket {
        let socket = match self {
            Self::Static(address)
            | Self::Http(address)
            | Self::Socks(address)
            | Self::Proxy(address) => tcp::connect(*address),
            Self::ProxyUnix(path) => tcp::connect_unix(path),
        };
        socket.unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }
}

fn http_connect(socket: Socket, destination: &str) -> Result<Socket, Refusal> {
    begin_connect(&socket, destination)?;
    end_connect(&socket)?;
    Ok(socket)
}

/// Sends the CONNECT request for `destination`, written `host:port`.
///
/// # Errors
/// Of the socket.
pub fn begin_connect(mut socket: &Socket, destination: &str) -> io::Result<()> {
    write!(socket, "CONNECT {destination} HTTP/1.1\r\nHost: {destination}\r\n\r\n")
}

/// Reads the answer to a CONNECT request.
///
/// # Errors
/// The proxy's answer, where it is not 200.
pub fn end_connect(mut socket: &Socket) -> Result<(), Refusal> {
    let head = read_head(&mut socket)?;
    match status_of(&head) {
        200 => Ok(()),
        status => Err(Refusal::Http { status, head }),
    }
}

/// Reads an HTTP head and not a byte more.
///
/// # Errors
/// When the connection ends before.
pub fn read_head(from: &mut impl Read) -> io::Result<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        from.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// The status of a response's head; 0 if it has none.
#[must_use]
pub fn status_of(head: &str) -> u16 {
    head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

/// A SOCKS5 request for `host:port`, with an address if `host` is an address, else with a name.
///
/// # Panics
/// When `destination` has no port.
#[must_use]
pub fn socks_request(destination: &str) -> Vec<u8> {
    let (host, port) = destination.rsplit_once(':').expect("host:port");
    let port: u16 = port.parse().expect("a port");
    let mut request = vec![5, 1, 0];
    match host.trim_matches(['[', ']']).parse() {
        Ok(IpAddr::V4(ip)) => {
            request.push(1);
            request.extend(ip.octets());
        }
        Ok(IpAddr::V6(ip)) => {
            request.push(4);
            request.extend(ip.octets());
        }
        Err(_) => {
            request.extend([3, host.len() as u8]);
            request.extend(host.as_bytes());
        }
    }
    request.extend(port.to_be_bytes());
    request
}

fn socks5(mut socket: Socket, destination: &str) -> Result<Socket, Refusal> {
    socket.write_all(&[5, 1, 0])?;
    let mut method = [0; 2];
    socket.read_exact(&mut method)?;
    assert_eq!(method, [5, 0], "the proxy's answer to a SOCKS greeting");
    socket.write_all(&socks_request(destination))?;
    let reply = read_socks_reply(&mut socket)?;
    if reply == 0 { Ok(socket) } else { Err(Refusal::Socks(reply)) }
}

/// Reads a SOCKS5 reply to its end and answers its code.
///
/// # Errors
/// When the connection ends before.
///
/// # Panics
/// When it is not a SOCKS5 reply.
pub fn read_socks_reply(from: &mut impl Read) -> io::Result<u8> {
    let mut head = [0; 4];
    from.read_exact(&mut head)?;
    assert_eq!((head[0], head[2]), (5, 0), "version and reserved byte of a SOCKS reply");
    let address_bytes = match head[3] {
        1 => 4,
        4 => 16,
        kind => panic!("address type {kind} in a SOCKS reply"),
    };
    let mut rest = vec![0; address_bytes + 2];
    from.read_exact(&mut rest)?;
    Ok(head[1])
}

/// A PROXY header of version 1 for a flow to `destination`.
///
/// # Panics
/// When that is no address.
#[must_use]
pub fn proxy_v1(destination: &str) -> String {
    let to: SocketAddr = destination.parse().expect("a PROXY header carries an address");
    let (family, from) = if to.is_ipv4() { ("TCP4", "192.0.2.9") } else { ("TCP6", "2001:db8::9") };
    format!("PROXY {family} {from} {} 40000 {}\r\n", to.ip(), to.port())
}

/// A PROXY header of version 2 for a flow to `destination`.
///
/// # Panics
/// When that is no IPv4 address.
#[must_use]
pub fn proxy_v2(destination: &str) -> Vec<u8> {
    let to: std::net::SocketAddrV4 = destination.parse().expect("an IPv4 address");
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    header.extend([192, 0, 2, 9]);
    header.extend(to.ip().octets());
    header.extend(40_000_u16.to_be_bytes());
    header.extend(to.port().to_be_bytes());
    header
}

fn proxy_header(mut socket: Socket, destination: &str) -> io::Result<Socket> {
    // The version alternates with the port, so that every test of many flows sees both.
    let v2 = destination.parse::<std::net::SocketAddrV4>().is_ok_and(|to| to.port() % 2 == 0);
    if v2 {
        socket.write_all(&proxy_v2(destination))?;
    } else {
        socket.write_all(proxy_v1(destination).as_bytes())?;
    }
    Ok(socket)
}
