//! A camera (RTSP, RFC 2326) that deviates from the RFC in one point, as cameras do.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Receiver, Sender, channel};

use socket2::Socket;

use crate::listeners::read_head;
use crate::origin::{Origin, listen};
use crate::rtsp::{Ends, Sockets, field, parameter};
use crate::tcp::IO_TIMEOUT;

/// In what a camera deviates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deviation {
    /// A field that goes on in the next line, in each answer.
    FoldedField,
    /// `CSeq` twice in each answer.
    RepeatedCseq,
    /// A line without a colon in each answer.
    LineWithoutColon,
    /// A `Content-Length` that counts fewer bytes than there are.
    ShortContentLength,
    /// `CSeq: 0` in each answer.
    ZeroCseq,
    /// Each answer has the next number.
    CseqOffByOne,
    /// No `CSeq` in any answer.
    NoCseq,
    /// No `server_port`.
    NoServerPort,
    /// `server_port=0-0`.
    ZeroServerPorts,
    /// `server_port=0-1`.
    ServerPortsFromZero,
    /// No `Transport` in the answer.
    NoTransport,
    /// Media come from other ports than announced.
    OtherPorts,
    /// A wrong address as `source`, to which no flow may go.
    ForeignSource,
}

impl Deviation {
    /// All that a tunnel carries.
    pub const CARRIED: [Self; 12] = [
        Self::FoldedField,
        Self::RepeatedCseq,
        Self::LineWithoutColon,
        Self::ShortContentLength,
        Self::ZeroCseq,
        Self::CseqOffByOne,
        Self::NoCseq,
        Self::NoServerPort,
        Self::ZeroServerPorts,
        Self::ServerPortsFromZero,
        Self::NoTransport,
        Self::OtherPorts,
    ];
}

/// A camera on 127.0.0.1.
#[derive(Debug)]
pub struct Camera {
    /// Where its media come from.
    pub media: Sockets,
    requests: Receiver<Request>,
    origin: Origin,
}

/// What a camera was asked.
#[derive(Clone, Debug)]
pub struct Request {
    /// The request's head, as it came.
    pub head: String,
    /// Where its media go, of a SETUP over UDP.
    pub ends: Option<Ends>,
}

/// The content of each description.
pub const DESCRIPTION: &str =
    "v=0\r\no=- 0 0 IN IP4 0.0.0.0\r\ns=camera\r\nm=video 0 RTP/AVP 96\r\n";

impl Camera {
    /// With one deviation.
    ///
    /// # Panics
    /// When there are no ports.
    #[must_use]
    pub fn start(deviation: Deviation) -> Self {
        let media = Sockets::open();
        let announced = match deviation {
            // Ports of nobody.
            Deviation::OtherPorts => Sockets::open().ports(),
            _ => media.ports(),
        };
        let (tell, requests) = channel();
        let listener = listen((Ipv4Addr::LOCALHOST, 0).into(), 128);
        let origin =
            Origin::serve(listener, move |stream| serve(stream, deviation, &announced, &tell));
        Self { media, requests, origin }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.origin.address()
    }

    /// The next request with this method.
    ///
    /// # Panics
    /// When none comes.
    #[track_caller]
    #[must_use]
    pub fn request(&self, method: &str) -> Request {
        loop {
            let request = self.requests.recv_timeout(IO_TIMEOUT).expect("a request comes");
            if request.head.starts_with(method) {
                return request;
            }
        }
    }

    /// Whether a request with this method has come since the last call.
    #[must_use]
    pub fn was_asked(&self, method: &str) -> bool {
        self.requests.try_iter().any(|request| request.head.starts_with(method))
    }
}

fn serve(mut stream: Socket, deviation: Deviation, announced: &str, tell: &Sender<Request>) {
    let Some(peer) = stream.peer_addr().ok().and_then(|it| it.as_socket()) else { return };
    while let Ok(head) = read_head(&mut stream) {
        let transport = field(&head, "Transport");
        let client = transport.and_then(|it| parameter(it, "client_port"));
        let ends = client.map(|client| Ends::parse(peer.ip(), client));
        let answer = answer(deviation, &head, announced);
        // Before the answer: a player that has the answer can rely on this.
        tell.send(Request { head, ends }).ok();
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn answer(deviation: Deviation, head: &str, announced: &str) -> String {
    let mut answer = "RTSP/1.0 200 OK\r\n".to_owned();
    let cseq = field(head, "CSeq").unwrap_or_default();
    match deviation {
        Deviation::NoCseq => {}
        Deviation::ZeroCseq => answer += "CSeq: 0\r\n",
        Deviation::CseqOffByOne => {
            answer += &format!("CSeq: {}\r\n", cseq.parse::<u32>().map_or(0, |it| it + 1));
        }
        Deviation::RepeatedCseq => answer += &format!("CSeq: {cseq}\r\nCSeq: {cseq}\r\n"),
        _ => answer += &format!("CSeq: {cseq}\r\n"),
    }
    match deviation {
        Deviation::FoldedField => answer += "Public: OPTIONS,\r\n DESCRIBE, SETUP\r\n",
        Deviation::LineWithoutColon => answer += "a camera\r\n",
        _ => {}
    }
    if head.starts_with("DESCRIBE ") {
        let length = match deviation {
            Deviation::ShortContentLength => DESCRIPTION.len() - 22,
            _ => DESCRIPTION.len(),
        };
        return answer + &format!("Content-Length: {length}\r\n\r\n{DESCRIPTION}");
    }
    if let Some(transport) = field(head, "Transport").filter(|_| head.starts_with("SETUP ")) {
        answer += &chosen(deviation, transport, announced);
        answer += "Session: 47;timeout=60\r\n";
    }
    answer + "\r\n"
}

fn chosen(deviation: Deviation, transport: &str, announced: &str) -> String {
    let Some(client) = parameter(transport, "client_port") else {
        return format!("Transport: {transport}\r\n");
    };
    let ports = match deviation {
        Deviation::NoTransport => return String::new(),
        Deviation::NoServerPort => String::new(),
        Deviation::ZeroServerPorts => ";server_port=0-0".to_owned(),
        Deviation::ServerPortsFromZero => ";server_port=0-1".to_owned(),
        Deviation::ForeignSource => format!(";server_port={announced};source=198.18.250.9"),
        _ => format!(";server_port={announced}"),
    };
    format!("Transport: RTP/AVP;unicast;client_port={client}{ports}\r\n")
}
