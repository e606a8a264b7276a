//! An RTSP origin and its players, with RTP over UDP (RFC 2326).

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use socket2::{SockAddr, Socket};

use crate::data::pattern;
use crate::listeners::{TestListener, read_head, status_of};
use crate::origin::{Origin, listen};
use crate::tcp::IO_TIMEOUT;
use crate::udp;
use crate::wait::DEFAULT_TIMEOUT;

/// Two UDP sockets, for RTP and RTCP.
#[derive(Debug)]
pub struct Sockets {
    /// RTP.
    pub rtp: UdpSocket,
    /// RTCP.
    pub rtcp: UdpSocket,
}

/// The RTP and RTCP addresses of one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// RTP.
    pub rtp: SocketAddr,
    /// RTCP.
    pub rtcp: SocketAddr,
}

/// What an origin was asked.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The request's head, as it came.
    pub head: String,
    /// Of a SETUP over UDP: where its media go.
    pub ends: Option<Ends>,
}

/// Answers every request. Media of all its sessions leave from the same two ports, as live555 has
/// it with a live source. What is called `refused` is.
#[derive(Debug)]
pub struct RtspOrigin {
    /// Where its media come from.
    pub media: Sockets,
    asked: Receiver<Asked>,
    origin: Origin,
}

impl Sockets {
    /// On ports of 127.0.0.1.
    ///
    /// # Panics
    /// When there are none.
    #[must_use]
    pub fn open() -> Self {
        Self::at(Ipv4Addr::LOCALHOST.into())
    }

    /// On ports of another address of this machine.
    ///
    /// # Panics
    /// When there are none.
    #[must_use]
    pub fn at(ip: IpAddr) -> Self {
        Self { rtp: udp::socket_at(ip), rtcp: udp::socket_at(ip) }
    }

    /// `RTP-RTCP`, as a Transport field has it.
    #[must_use]
    pub fn ports(&self) -> String {
        let port = |socket: &UdpSocket| socket.local_addr().expect("it is bound").port();
        format!("{}-{}", port(&self.rtp), port(&self.rtcp))
    }
}

impl Ends {
    /// At the two ports of `text`.
    ///
    /// # Panics
    /// When there are not two.
    #[must_use]
    pub fn parse(ip: IpAddr, text: &str) -> Self {
        let (rtp, rtcp) = text.split_once('-').expect("two ports");
        let at = |port: &str| SocketAddr::new(ip, port.parse().expect("a port"));
        Self { rtp: at(rtp), rtcp: at(rtcp) }
    }

    /// Whether these ports are free.
    #[must_use]
    pub fn are_free(&self) -> bool {
        [self.rtp, self.rtcp].into_iter().all(|at| UdpSocket::bind(at).is_ok())
    }
}

impl RtspOrigin {
    /// On ports of 127.0.0.1.
    ///
    /// # Panics
    /// When there are none.
    #[must_use]
    pub fn start() -> Self {
        Self::serve(listen((Ipv4Addr::LOCALHOST, 0).into(), 128), Sockets::open())
    }

    /// Takes connections from `listener`, and sends from `media`.
    ///
    /// # Panics
    /// When it can't tell where it listens.
    #[must_use]
    pub fn serve(listener: TcpListener, media: Sockets) -> Self {
        let (ports, (tell, asked)) = (media.ports(), channel());
        let origin = Origin::serve(listener, move |stream| serve(stream, &ports, &tell));
        Self { media, asked, origin }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.origin.address()
    }

    /// The next request that it gets.
    ///
    /// # Panics
    /// When none comes.
    #[track_caller]
    pub fn asked(&self) -> Asked {
        self.asked.recv_timeout(IO_TIMEOUT).expect("a request comes")
    }
}

fn serve(mut stream: Socket, ports: &str, tell: &Sender<Asked>) {
    let ip = |address: io::Result<SockAddr>| {
        address.ok().and_then(|it| it.as_socket()).map(|it| it.ip())
    };
    let (Some(peer), Some(own)) = (ip(stream.peer_addr()), ip(stream.local_addr())) else { return };
    while let Ok(head) = read_head(&mut stream) {
        let cseq = field(&head, "CSeq").unwrap_or_default();
        let transport = field(&head, "Transport");
        let client = transport.and_then(|it| parameter(it, "client_port"));
        let ends = client.map(|client| Ends::parse(peer, client));
        let chosen = match (transport, client) {
            (Some(_), Some(client)) => format!(
                "Transport: RTP/AVP;unicast;destination={peer};source={own};\
                 client_port={client};server_port={ports}\r\nSession: 47;timeout=60\r\n"
            ),
            (Some(transport), None) => format!("Transport: {transport}\r\nSession: 47\r\n"),
            (None, _) => String::new(),
        };
        let answer = match head.contains("/refused ") {
            true => format!("RTSP/1.0 461 Unsupported Transport\r\nCSeq: {cseq}\r\n\r\n"),
            false => format!("RTSP/1.0 200 OK\r\nCSeq: {cseq}\r\n{chosen}\r\n"),
        };
        // Before the answer: a player that has the answer can rely on this.
        tell.send(Asked { head, ends }).ok();
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// A player, connected to an origin.
#[derive(Debug)]
pub struct Player {
    /// Where it has its media.
    pub media: Sockets,
    stream: Socket,
    cseq: u32,
}

/// An answer that a player got.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// All of it.
    pub head: String,
}

impl Player {
    /// Connects through `listener` to `origin`.
    ///
    /// # Panics
    /// When the flow is refused.
    #[must_use]
    pub fn connect(listener: &TestListener, origin: SocketAddr) -> Self {
        Self::over(listener.open(&origin.to_string()).expect("a flow"), Sockets::open())
    }

    /// Uses an open connection.
    ///
    /// # Panics
    /// When the origin does not answer.
    #[must_use]
    pub fn over(stream: Socket, media: Sockets) -> Self {
        let mut player = Self { media, stream, cseq: 0 };
        // As players do, and not before the server has said that it follows.
        assert_eq!(player.ask("OPTIONS", "*", "").status, 200);
        player
    }

    /// Asks for a medium with its own ports.
    ///
    /// # Panics
    /// When no answer comes.
    pub fn set_up(&mut self, what: &str) -> Answer {
        let ports = self.media.ports();
        self.ask("SETUP", what, &format!("Transport: RTP/AVP;unicast;client_port={ports}\r\n"))
    }

    /// Sends a request, with these fields more, and reads its answer.
    ///
    /// # Panics
    /// When none comes.
    pub fn ask(&mut self, method: &str, what: &str, fields: &str) -> Answer {
        self.cseq += 1;
        let request = request(method, what, self.cseq, fields);
        self.stream.write_all(request.as_bytes()).expect("the connection is open");
        let head = read_head(&mut self.stream).expect("an answer");
        Answer { status: status_of(&head), head }
    }

    /// The next bytes of the origin, which are no head.
    ///
    /// # Panics
    /// When they do not come.
    #[track_caller]
    pub fn read(&mut self, bytes: usize) -> Vec<u8> {
        let mut content = vec![0; bytes];
        self.stream.read_exact(&mut content).expect("so many bytes come");
        content
    }

    /// The connection.
    #[must_use]
    pub fn into_stream(self) -> Socket {
        self.stream
    }

    /// Ends all its media.
    ///
    /// # Panics
    /// When the origin refuses.
    pub fn tear_down(&mut self) {
        assert_eq!(self.ask("TEARDOWN", "live", "Session: 47\r\n").status, 200);
    }

    /// Ends its direction of the connection, and waits for the other's end.
    pub fn hang_up(&mut self) {
        self.stream.shutdown(std::net::Shutdown::Write).ok();
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).ok();
    }
}

impl Answer {
    /// Where the player's media come from.
    ///
    /// # Panics
    /// When that is not said.
    #[must_use]
    pub fn ends(&self) -> Ends {
        let transport = field(&self.head, "Transport").expect("a Transport field");
        let source = parameter(transport, "source").expect("a source").parse().expect("an address");
        Ends::parse(source, parameter(transport, "server_port").expect("ports"))
    }
}

/// A request as players here write it.
#[must_use]
pub fn request(method: &str, what: &str, cseq: u32, fields: &str) -> String {
    format!("{method} rtsp://127.0.0.1/{what} RTSP/1.0\r\nCSeq: {cseq}\r\n{fields}\r\n")
}

/// A field's value in a head.
#[must_use]
pub fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// A parameter's value in a Transport field.
#[must_use]
pub fn parameter<'a>(transport: &'a str, name: &str) -> Option<&'a str> {
    transport.split(';').find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
}

/// The next datagram and its sender.
///
/// # Panics
/// When none comes within `at_most`.
#[track_caller]
pub fn receive(socket: &UdpSocket, at_most: Duration) -> (Vec<u8>, SocketAddr) {
    let mut buffer = vec![0; 2048];
    socket.set_read_timeout(Some(at_most)).expect("a time-out");
    let (length, from) = socket.recv_from(&mut buffer).expect("a datagram comes");
    buffer.truncate(length);
    (buffer, from)
}

/// Sends datagrams both ways, on both ports. `found` is where the player found the origin, and
/// `to_player` where the origin found the player: each must come from where the other is known to be.
///
/// # Panics
/// When one does not come, or comes from elsewhere.
#[track_caller]
pub fn assert_media(
    player: &Player,
    origin: &RtspOrigin,
    (found, to_player): (Ends, Ends),
    seed: u64,
) {
    let Sockets { rtp, rtcp } = &player.media;
    let ways = [
        (&origin.media.rtp, to_player.rtp, rtp, found.rtp),
        (&origin.media.rtcp, to_player.rtcp, rtcp, found.rtcp),
        (rtp, found.rtp, &origin.media.rtp, to_player.rtp),
        (rtcp, found.rtcp, &origin.media.rtcp, to_player.rtcp),
    ];
    for (way, (from, to, at, seen_from)) in ways.into_iter().enumerate() {
        for number in 0..20 {
            // The largest are beyond what a packet of the tunnel has room for.
            let datagram = pattern(seed << 16 | number, 12 + 76 * number as usize);
            from.send_to(&datagram, to).expect("a datagram can be sent");
            let (got, sender) = receive(at, DEFAULT_TIMEOUT);
            assert!(got == datagram, "way {way}, datagram {number}: {} bytes", got.len());
            assert_eq!(sender, seen_from, "way {way}");
        }
    }
}
