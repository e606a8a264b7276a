//! A QUIC client of the test itself, one thread, blocking.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use millrace_e2e::certificates::{Identity, SERVER_NAME};
use millrace_e2e::pair::Pair;
use millrace_e2e::wait;
use quiche::h3::{self, NameValue};

/// A connection to the server.
pub struct Peer {
    pub socket: UdpSocket,
    pub quic: quiche::Connection,
    h3: Option<h3::Connection>,
}

/// What came of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// A response with this status and the `proxy-status` field, if any.
    Status(String, String),
    /// The stream was reset with this code.
    Reset(u64),
    /// The whole connection was closed.
    Closed,
    /// Nothing, within the time.
    Nothing,
}

fn status_of(fields: &[h3::Header]) -> Answer {
    let value = |name: &[u8]| {
        let field = fields.iter().find(|field| field.name() == name);
        field.map_or(String::new(), |field| String::from_utf8_lossy(field.value()).into_owned())
    };
    Answer::Status(value(b":status"), value(b"proxy-status"))
}

impl Peer {
    /// A connection of which nothing has been sent yet.
    pub fn new(pair: &Pair, with_certificate: bool) -> Self {
        Self::with_datagrams(pair, with_certificate, true)
    }

    /// The same, with or without DATAGRAM frames (RFC 9221).
    pub fn with_datagrams(pair: &Pair, with_certificate: bool, datagrams: bool) -> Self {
        Self::make(pair, with_certificate, datagrams, Ipv4Addr::LOCALHOST)
    }

    /// The same from an address of this host.
    pub fn at(pair: &Pair, with_certificate: bool, ip: Ipv4Addr) -> Self {
        Self::make(pair, with_certificate, true, ip)
    }

    fn make(pair: &Pair, with_certificate: bool, datagrams: bool, ip: Ipv4Addr) -> Self {
        let own = with_certificate.then_some(&pair.certificates.client);
        Self::from_address(pair, &pair.certificates.ca, own, ip, |config| {
            config.enable_dgram(datagrams, 64, 64);
            config.enable_early_data();
        })
    }

    /// A client with this certificate, and with settings of its own.
    pub fn of(
        pair: &Pair,
        ca: &Path,
        own: Option<&Identity>,
        set: impl FnOnce(&mut quiche::Config),
    ) -> Self {
        Self::from_address(pair, ca, own, Ipv4Addr::LOCALHOST, set)
    }

    fn from_address(
        pair: &Pair,
        ca: &Path,
        own: Option<&Identity>,
        ip: Ipv4Addr,
        set: impl FnOnce(&mut quiche::Config),
    ) -> Self {
        let mut config = quiche::Config::new(quiche::PROTOCOL_VERSION).unwrap();
        config.set_application_protos(h3::APPLICATION_PROTOCOL).unwrap();
        let path = |path: &Path| path.to_str().unwrap().to_owned();
        config.load_verify_locations_from_file(&path(ca)).unwrap();
        config.verify_peer(true);
        if let Some(own) = own {
            config.load_cert_chain_from_pem_file(&path(&own.certificate)).unwrap();
            config.load_priv_key_from_pem_file(&path(&own.private_key)).unwrap();
        }
        config.set_max_idle_timeout(5000);
        config.set_initial_max_data(1 << 20);
        config.set_initial_max_stream_data_bidi_local(1 << 18);
        config.set_initial_max_stream_data_uni(1 << 16);
        config.set_initial_max_streams_uni(8);
        // Room for headers that are too large.
        config.set_initial_congestion_window_packets(64);
        set(&mut config);
        let socket = UdpSocket::bind((ip, 0)).unwrap();
        socket.connect(pair.addresses.tunnel).unwrap();
        let id: [u8; 16] =
            std::array::from_fn(|i| i as u8 ^ socket.local_addr().unwrap().port() as u8);
        let id = quiche::ConnectionId::from_ref(&id);
        let (local, peer) = (socket.local_addr().unwrap(), pair.addresses.tunnel);
        let quic = quiche::connect(Some(SERVER_NAME), &id, local, peer, &mut config).unwrap();
        Self { socket, quic, h3: None }
    }

    /// A connection whose handshake is over, as far as this end can tell.
    pub fn connect(pair: &Pair, with_certificate: bool) -> Self {
        let mut connection = Self::new(pair, with_certificate);
        connection.drive(wait::DEFAULT_TIMEOUT, |peer| peer.quic.is_established().then_some(()));
        connection
    }

    /// The next datagram that it would send.
    pub fn next_datagram(&mut self) -> Vec<u8> {
        let mut buffer = vec![0; 1500];
        let (length, _) = self.quic.send(&mut buffer).unwrap();
        buffer.truncate(length);
        buffer
    }

    /// Its first flight: all that it would send before it hears anything. A ClientHello does not fit
    /// in one datagram.
    pub fn first_flight(&mut self) -> Vec<Vec<u8>> {
        let (mut flight, mut buffer) = (Vec::new(), vec![0; 1500]);
        while let Ok((length, _)) = self.quic.send(&mut buffer) {
            flight.push(buffer[..length].to_vec());
        }
        flight
    }

    /// Takes one datagram, if one comes in time.
    pub fn receive(&mut self, at_most: Duration) -> Option<Vec<u8>> {
        let mut buffer = vec![0; 65_536];
        self.socket.set_read_timeout(Some(at_most)).unwrap();
        let length = self.socket.recv(&mut buffer).ok()?;
        buffer.truncate(length);
        Some(buffer)
    }

    /// Lets it see a datagram.
    pub fn take(&mut self, datagram: &[u8]) {
        let from = self.socket.peer_addr().unwrap();
        let info = quiche::RecvInfo { from, to: self.socket.local_addr().unwrap() };
        self.quic.recv(&mut datagram.to_vec(), info).unwrap();
    }

    /// Lets it see a datagram that may be of no use.
    pub fn take_quietly(&mut self, datagram: &[u8]) {
        let from = self.socket.peer_addr().unwrap();
        let info = quiche::RecvInfo { from, to: self.socket.local_addr().unwrap() };
        let _ = self.quic.recv(&mut datagram.to_vec(), info);
    }

    /// Sends and receives until there is an answer, the connection is closed, or the time is up.
    pub fn drive<T>(
        &mut self,
        at_most: Duration,
        mut answer: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<T> {
        let end = Instant::now() + at_most;
        let mut buffer = [0; 65_536];
        loop {
            while let Ok((length, _)) = self.quic.send(&mut buffer) {
                self.socket.send(&buffer[..length]).ok();
            }
            if let Some(answer) = answer(self) {
                return Some(answer);
            }
            if self.quic.is_closed() || Instant::now() >= end {
                return None;
            }
            let timeout =
                self.quic.timeout().unwrap_or(wait::DEFAULT_TIMEOUT).min(Duration::from_millis(50));
            self.socket.set_read_timeout(Some(timeout.max(Duration::from_millis(1)))).unwrap();
            match self.socket.recv(&mut buffer) {
                Ok(length) => {
                    let from: SocketAddr = self.socket.peer_addr().unwrap();
                    let info = quiche::RecvInfo { from, to: self.socket.local_addr().unwrap() };
                    self.quic.recv(&mut buffer[..length], info).ok();
                }
                Err(_) => self.quic.on_timeout(),
            }
        }
    }

    /// Sends a request of these fields and waits for what comes of it.
    pub fn request(&mut self, fields: &[(&str, &str)]) -> Answer {
        self.open(fields).1
    }

    /// Sends a request, without a look at what comes of it; its stream.
    pub fn send_request(&mut self, fields: &[(&str, &str)]) -> u64 {
        let fields: Vec<_> =
            fields.iter().map(|(n, v)| h3::Header::new(n.as_bytes(), v.as_bytes())).collect();
        if self.h3.is_none() {
            let config = h3::Config::new().unwrap();
            self.h3 = Some(h3::Connection::with_transport(&mut self.quic, &config).unwrap());
        }
        let h3 = self.h3.as_mut().unwrap();
        h3.send_request(&mut self.quic, &fields, false).unwrap()
    }

    /// What comes of requests that have been sent.
    pub fn answers(&mut self, streams: &[u64]) -> Vec<Answer> {
        let mut answers = HashMap::new();
        self.drive(Duration::from_secs(5), |peer| {
            while let Ok((stream, event)) = peer.h3.as_mut().unwrap().poll(&mut peer.quic) {
                match event {
                    h3::Event::Headers { list, .. } => answers.insert(stream, status_of(&list)),
                    h3::Event::Reset(code) => answers.insert(stream, Answer::Reset(code)),
                    _ => None,
                };
            }
            (answers.len() == streams.len()).then_some(())
        });
        streams.iter().map(|stream| answers.remove(stream).unwrap_or(Answer::Nothing)).collect()
    }

    /// The same as [`Peer::request`], with the stream.
    pub fn open(&mut self, fields: &[(&str, &str)]) -> (u64, Answer) {
        let stream = self.send_request(fields);
        let answer = self.drive(Duration::from_secs(5), |peer| {
            match peer.h3.as_mut().unwrap().poll(&mut peer.quic) {
                Ok((of, h3::Event::Headers { list, .. })) if of == stream => Some(status_of(&list)),
                Ok((of, h3::Event::Reset(code))) if of == stream => Some(Answer::Reset(code)),
                _ => None,
            }
        });
        let none = if self.quic.is_closed() { Answer::Closed } else { Answer::Nothing };
        (stream, answer.unwrap_or(none))
    }

    /// The HTTP/3 layer, which is there from the first request on, and what it runs on.
    pub fn h3(&mut self) -> (&mut h3::Connection, &mut quiche::Connection) {
        (self.h3.as_mut().expect("a request has been made"), &mut self.quic)
    }

    /// The code with which a stream is reset, if that comes in time. Bodies are thrown away.
    pub fn reset_of(&mut self, stream: u64, at_most: Duration) -> Option<u64> {
        self.drive(at_most, |peer| {
            let (h3, quic) = peer.h3();
            match h3.poll(quic) {
                Ok((of, h3::Event::Reset(code))) if of == stream => Some(code),
                _ => None,
            }
        })
    }
}
