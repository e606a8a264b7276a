//! The application over one QUIC connection: bytes between its streams and TCP sockets.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream as StdTcpStream};
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_quiche::quic::{HandshakeInfo, QuicheConnection};
use tokio_quiche::quiche::{self, Shutdown};
use tokio_quiche::{ApplicationOverQuic, QuicResult};

/// Read from TCP at a time, and from a stream.
const CHUNK_BYTES: usize = 64 << 10;

enum Role {
    Server { origin: SocketAddr },
    Client { accepted: mpsc::Receiver<TcpStream>, next_stream: u64 },
}

/// One flow.
struct Flow {
    tcp: TcpStream,
    /// Read from the stream, not yet taken by TCP.
    pending: Vec<u8>,
    taken: usize,
    /// TCP has more for the stream, as far as known.
    tcp_readable: bool,
    /// The stream has room, as far as known.
    has_room: bool,
    ended: bool,
}

/// See the module's documentation.
pub struct Relay {
    role: Role,
    flows: BTreeMap<u64, Flow>,
    chunk: BytesMut,
}

impl Relay {
    /// Dials `origin` for every stream that the peer opens.
    pub fn server(origin: SocketAddr) -> Self {
        Self::new(Role::Server { origin })
    }

    /// Opens a stream for everything that comes from `accepted`.
    pub fn client(accepted: mpsc::Receiver<TcpStream>) -> Self {
        Self::new(Role::Client { accepted, next_stream: 0 })
    }

    fn new(role: Role) -> Self {
        Self { role, flows: BTreeMap::new(), chunk: BytesMut::new() }
    }

    fn add(&mut self, id: u64, tcp: TcpStream) {
        self.flows.insert(
            id,
            Flow {
                tcp,
                pending: Vec::new(),
                taken: 0,
                tcp_readable: true,
                has_room: true,
                ended: false,
            },
        );
    }
}

impl ApplicationOverQuic for Relay {
    fn on_conn_established(
        &mut self,
        _: &mut QuicheConnection,
        _: &HandshakeInfo,
    ) -> QuicResult<()> {
        Ok(())
    }

    fn should_act(&self) -> bool {
        true
    }

    async fn wait_for_data(&mut self, qconn: &mut QuicheConnection) -> QuicResult<()> {
        let Self { role, flows, .. } = self;
        let opened = poll_fn(|cx| {
            if let Role::Client { accepted, .. } = role
                && let Poll::Ready(Some(tcp)) = accepted.poll_recv(cx)
            {
                return Poll::Ready(Some(tcp));
            }
            let mut ready = false;
            for (id, flow) in flows.iter_mut() {
                ready |= flow.poll(*id, qconn, cx);
            }
            if ready { Poll::Ready(None) } else { Poll::Pending }
        })
        .await;
        if let (Some(tcp), Role::Client { next_stream, .. }) = (opened, &mut self.role) {
            let id = *next_stream;
            *next_stream += 4;
            self.add(id, tcp);
        }
        Ok(())
    }

    fn process_reads(&mut self, qconn: &mut QuicheConnection) -> QuicResult<()> {
        for id in qconn.readable() {
            if let Role::Server { origin } = self.role
                && !self.flows.contains_key(&id)
            {
                // Next door and listening: it doesn't block for long.
                let tcp = StdTcpStream::connect(origin)?;
                tcp.set_nonblocking(true)?;
                tcp.set_nodelay(true)?;
                self.add(id, TcpStream::from_std(tcp)?);
            }
            let Some(flow) = self.flows.get_mut(&id) else { continue };
            flow.to_tcp(id, qconn)?;
        }
        Ok(())
    }

    fn process_writes(&mut self, qconn: &mut QuicheConnection) -> QuicResult<()> {
        for (id, flow) in &mut self.flows {
            if flow.taken < flow.pending.len() {
                flow.to_tcp(*id, qconn)?;
            }
            flow.to_stream(*id, qconn, &mut self.chunk)?;
        }
        self.flows.retain(|_, flow| !flow.ended);
        Ok(())
    }
}

impl Flow {
    /// Whether there is something to do; registers interest otherwise.
    fn poll(&mut self, id: u64, qconn: &mut QuicheConnection, cx: &mut Context<'_>) -> bool {
        let mut ready = false;
        if !self.tcp_readable {
            self.tcp_readable = self.tcp.poll_read_ready(cx).is_ready();
        }
        if self.tcp_readable && !self.has_room {
            self.has_room = qconn.stream_capacity(id).is_ok_and(|capacity| capacity > 0);
        }
        ready |= self.tcp_readable && self.has_room;
        if self.taken < self.pending.len() {
            ready |= self.tcp.poll_write_ready(cx).is_ready();
        }
        ready
    }

    fn to_stream(
        &mut self,
        id: u64,
        qconn: &mut QuicheConnection,
        chunk: &mut BytesMut,
    ) -> QuicResult<()> {
        loop {
            // A stream that was not sent on yet is unknown and has room.
            let capacity = match qconn.stream_capacity(id) {
                Ok(capacity) => capacity,
                Err(quiche::Error::InvalidStreamState(_)) => CHUNK_BYTES,
                Err(quiche::Error::StreamStopped(_)) => {
                    self.ended = true;
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            };
            self.has_room = capacity > 0;
            if !self.has_room {
                return Ok(());
            }
            // Room that bytes are read into without being zeroed first, and that the stream then
            // keeps without a copy.
            chunk.reserve(CHUNK_BYTES);
            let read = {
                use bytes::BufMut as _;
                self.tcp.try_read_buf(&mut chunk.limit(capacity.min(CHUNK_BYTES)))
            };
            let read = match read {
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.tcp_readable = false;
                    return Ok(());
                }
                Err(_) => {
                    self.ended = true;
                    qconn.stream_shutdown(id, Shutdown::Write, 0).ok();
                    return Ok(());
                }
            };
            let bytes: Bytes = chunk.split().freeze();
            match qconn.stream_send_zc(id, bytes, read == 0) {
                Ok((sent, _)) if sent == read => {}
                Ok((sent, _)) => return Err(format!("{sent} of {read} bytes fit").into()),
                Err(error) => return Err(error.into()),
            }
            if read == 0 {
                self.ended = true;
                qconn.stream_shutdown(id, Shutdown::Read, 0).ok();
                return Ok(());
            }
        }
    }

    fn to_tcp(&mut self, id: u64, qconn: &mut QuicheConnection) -> QuicResult<()> {
        loop {
            while self.taken < self.pending.len() {
                match self.tcp.try_write(&self.pending[self.taken..]) {
                    Ok(written) => self.taken += written,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                    Err(_) => {
                        self.ended = true;
                        qconn.stream_shutdown(id, Shutdown::Read, 0).ok();
                        qconn.stream_shutdown(id, Shutdown::Write, 0).ok();
                        return Ok(());
                    }
                }
            }
            self.taken = 0;
            self.pending.resize(CHUNK_BYTES, 0);
            match qconn.stream_recv(id, &mut self.pending) {
                Ok((read, fin)) => {
                    self.pending.truncate(read);
                    self.ended |= fin && read == 0;
                }
                Err(error) => {
                    self.pending.clear();
                    self.ended |= matches!(error, quiche::Error::StreamReset(_));
                    return Ok(());
                }
            }
        }
    }
}
