//! A connection to a server, on a socket of its own and without an event loop.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use millrace_tunnel::transport::TunnelConfig;
use quiche::{RecvInfo, h3};

/// Longest wait for one packet: the transport's timers are looked at this often.
const MAX_PACKET_WAIT: Duration = Duration::from_millis(50);

/// A connection to a server.
pub(super) struct Dialled {
    socket: UdpSocket,
    pub(super) quic: quiche::Connection,
    pub(super) h3: Option<h3::Connection>,
    /// Fields of the answers to its requests, by stream.
    answers: HashMap<u64, Vec<h3::Header>>,
    /// The host answered that the port is closed (ICMP).
    pub(super) refused: bool,
}

impl Dialled {
    /// A connection whose handshake has not begun, on a connected socket.
    pub(super) fn new(socket: UdpSocket, quic: quiche::Connection) -> Self {
        Self { socket, quic, h3: None, answers: HashMap::new(), refused: false }
    }

    /// The server's settings come once it has taken our certificate: TLS 1.3 lets a client finish
    /// before.
    pub(super) fn is_taken(&self) -> bool {
        self.h3.as_ref().is_some_and(|h3| h3.peer_settings_raw().is_some())
    }

    /// Sends a request, whose stream ends with it or not. Returns the stream, unless the server allows none.
    pub(super) fn request(&mut self, fields: &[h3::Header], is_end: bool) -> Option<u64> {
        self.h3.as_mut()?.send_request(&mut self.quic, fields, is_end).ok()
    }

    /// Waits for the answers on `streams`, at most for `timeout`.
    pub(super) fn wait_for_answers(
        &mut self,
        config: &TunnelConfig,
        streams: &[u64],
        timeout: Duration,
    ) -> io::Result<()> {
        let are_there = |it: &Self| streams.iter().all(|stream| it.answers.contains_key(stream));
        self.drive(config, Instant::now() + timeout, are_there)
    }

    /// The fields of the answer on a stream.
    pub(super) fn answer(&self, stream: u64) -> Option<&[h3::Header]> {
        self.answers.get(&stream).map(Vec::as_slice)
    }

    /// The largest packet that has arrived, in bytes.
    pub(super) fn largest(&self) -> usize {
        self.quic.path_stats().find(|path| path.active).map_or(0, |path| path.pmtu)
    }

    /// Sends what the connection has to send.
    pub(super) fn send(&mut self) {
        let mut out = [0; 65_535];
        while let Ok((length, _)) = self.quic.send(&mut out) {
            match self.socket.send(&out[..length]) {
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => self.refused = true,
                // Too large for the link, as probes may be: lost, like any other.
                _ => {}
            }
        }
    }

    /// Until `done`, the end of the connection, or `until`.
    pub(super) fn drive(
        &mut self,
        config: &TunnelConfig,
        until: Instant,
        done: impl Fn(&Self) -> bool,
    ) -> io::Result<()> {
        let mut buffer = [0; 65_535];
        let info = RecvInfo { from: self.socket.peer_addr()?, to: self.socket.local_addr()? };
        loop {
            if self.h3.is_none() && self.quic.is_established() {
                self.h3 = h3::Connection::with_transport(&mut self.quic, &config.http3).ok();
            }
            if let Some(h3) = &mut self.h3 {
                while let Ok((stream, event)) = h3.poll(&mut self.quic) {
                    if let h3::Event::Headers { list, .. } = event {
                        self.answers.entry(stream).or_insert(list);
                    }
                }
            }
            self.send();
            let now = Instant::now();
            if done(self) || self.quic.is_closed() || now >= until {
                return Ok(());
            }
            let wait = self
                .quic
                .timeout()
                .unwrap_or(MAX_PACKET_WAIT)
                .min(MAX_PACKET_WAIT)
                .min(until - now);
            self.socket.set_read_timeout(Some(wait.max(Duration::from_millis(1))))?;
            match self.socket.recv(&mut buffer) {
                Ok(length) => drop(self.quic.recv(&mut buffer[..length], info)),
                Err(error) => {
                    self.refused |= error.kind() == ErrorKind::ConnectionRefused;
                    self.quic.on_timeout();
                }
            }
        }
    }
}
