//! A stub of a server: it accepts connections, advertises given capabilities, and answers no request.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use millrace_e2e::certificates::Certificates;
use quiche::h3;

const ID_BYTES: usize = 16;
/// Interval of its checks of timers and of the stop flag.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// HTTP/3 settings that a server may advertise.
#[derive(Clone, Copy, Debug)]
pub struct Capabilities {
    /// RFC 9220.
    pub extended_connect: bool,
    /// RFC 9297.
    pub datagrams: bool,
}

/// A stub of a server. It ends when dropped.
pub struct StubServer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl StubServer {
    pub fn start(at: SocketAddr, certificates: &Certificates, capabilities: Capabilities) -> Self {
        let mut config = quiche::Config::new(quiche::PROTOCOL_VERSION).unwrap();
        config.set_application_protos(h3::APPLICATION_PROTOCOL).unwrap();
        let own = &certificates.server;
        config.load_cert_chain_from_pem_file(own.certificate.to_str().unwrap()).unwrap();
        config.load_priv_key_from_pem_file(own.private_key.to_str().unwrap()).unwrap();
        config.set_initial_max_data(1 << 20);
        config.set_initial_max_stream_data_bidi_remote(1 << 18);
        config.set_initial_max_stream_data_uni(1 << 16);
        config.set_initial_max_streams_bidi(100);
        config.set_initial_max_streams_uni(8);
        config.enable_dgram(capabilities.datagrams, 64, 64);
        let mut http = h3::Config::new().unwrap();
        http.enable_extended_connect(capabilities.extended_connect);
        let socket = UdpSocket::bind(at).unwrap();
        socket.set_read_timeout(Some(CHECK_INTERVAL)).unwrap();
        let server = Server { socket, config, http, conns: Vec::new(), ids: HashMap::new() };
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || server.run(&stopped));
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for StubServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the server does not panic");
        }
    }
}

struct Server {
    socket: UdpSocket,
    config: quiche::Config,
    http: h3::Config,
    conns: Vec<(quiche::Connection, Option<h3::Connection>)>,
    ids: HashMap<Vec<u8>, usize>,
}

impl Server {
    fn run(mut self, stop: &AtomicBool) {
        let mut buffer = [0; 65_536];
        while !stop.load(Ordering::Relaxed) {
            if let Ok((length, from)) = self.socket.recv_from(&mut buffer) {
                self.take(&mut buffer[..length], from);
            }
            for (quic, h3) in &mut self.conns {
                quic.on_timeout();
                if h3.is_none() && quic.is_established() {
                    *h3 = h3::Connection::with_transport(quic, &self.http).ok();
                }
                if let Some(h3) = h3 {
                    while h3.poll(quic).is_ok() {}
                }
                while let Ok((length, info)) = quic.send(&mut buffer) {
                    // A peer may have closed its socket.
                    let _ = self.socket.send_to(&buffer[..length], info.to);
                }
            }
        }
    }

    fn take(&mut self, packet: &mut [u8], from: SocketAddr) {
        let Ok(header) = quiche::Header::from_slice(packet, ID_BYTES) else { return };
        let to = self.socket.local_addr().unwrap();
        let known = self.ids.get(header.dcid.as_ref()).copied();
        let conn = known.or_else(|| {
            let number = self.conns.len();
            let mut id = [0x5a; ID_BYTES];
            id[..8].copy_from_slice(&number.to_be_bytes());
            let scid = quiche::ConnectionId::from_ref(&id);
            let quic = quiche::accept(&scid, None, to, from, &mut self.config).ok()?;
            self.conns.push((quic, None));
            self.ids.insert(id.to_vec(), number);
            self.ids.insert(header.dcid.to_vec(), number);
            Some(number)
        });
        if let Some(conn) = conn {
            // Invalid packets do not matter to the tests.
            let _ = self.conns[conn].0.recv(packet, quiche::RecvInfo { from, to });
        }
    }
}
