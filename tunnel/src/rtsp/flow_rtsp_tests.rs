use std::net::{Ipv4Addr, SocketAddr};

use millrace_wire::rtsp::MARK;

use super::*;
use crate::flow_admission::FlowLimits;
use crate::flow_owner::FlowOwner;
use crate::metrics::{FlowRecognition, Metrics};
use crate::peer_limits::Limits;
use crate::rtsp::Rtsp;
use crate::shared::Shared;

const OPTIONS: &str = "OPTIONS rtsp://a/live RTSP/1.0\r\nCSeq: 1\r\n\r\n";
const SETUP: &str = "SETUP rtsp://a/live RTSP/1.0\r\nCSeq: 2\r\n\
                     Transport: RTP/AVP;unicast;client_port=5000-5001\r\n\r\n";

/// A socket of a flow, and what keeps it open.
fn socket() -> (Socket, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let other = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (own, _) = listener.accept().unwrap();
    own.set_nonblocking(true).unwrap();
    (Socket::tcp(mio::net::TcpStream::from_std(own)), other)
}

struct End {
    rtsp: FlowRtsp,
    metrics: std::sync::Arc<Metrics>,
    sockets: (Socket, std::net::TcpStream),
}

impl End {
    fn new(rtsp: Rtsp) -> Self {
        let metrics = Metrics::new("millrace-test", "1").unwrap();
        let (flows, peers) = (FlowLimits::default(), Limits::default());
        let shared = Shared::new(metrics.clone(), 1 << 30, flows, peers);
        let viewer = FlowOwner::default().viewer();
        let rtsp = FlowRtsp::Candidate(Box::new(RtspCandidate::new(rtsp, shared, viewer)));
        Self { rtsp, metrics, sockets: socket() }
    }

    fn client() -> Self {
        let player = SocketAddr::from((Ipv4Addr::LOCALHOST, 40_000));
        let mut end = Self::new(Rtsp::Client { player, origin: None, agreed: false, group: 0 });
        // The answer of the server, which may come before the first bytes.
        end.rtsp.agree();
        end
    }

    /// Takes bytes of the player; what goes on instead.
    fn from_player(&mut self, bytes: &[u8]) -> Vec<u8> {
        let socket = &self.sockets.0;
        let instead = match self.rtsp.is_at_client() {
            true => self.rtsp.socket_brought(bytes, socket),
            false => self.rtsp.stream_brought(bytes, socket),
        };
        instead.unwrap_or_else(|| bytes.to_vec())
    }

    fn from_player_in_pieces(&mut self, bytes: &[u8], piece: usize) -> Vec<u8> {
        bytes.chunks(piece).flat_map(|bytes| self.from_player(bytes)).collect()
    }

    fn late(&self) -> u64 {
        self.metrics.flows_recognised.of(FlowRecognition::LateRtsp).get()
    }
}

impl FlowRtsp {
    fn is_at_client(&self) -> bool {
        match self {
            Self::Candidate(candidate) => candidate.has_player_at_socket(),
            Self::Followed(followed) => matches!(followed.rtsp, Rtsp::Client { .. }),
            Self::Unseen => true,
        }
    }
}

#[test]
fn a_flow_is_followed_from_its_second_request_on_however_the_first_comes() {
    for piece in [1, 2, 5, 20, 33, 1000] {
        let (mut client, mut server) = (End::client(), End::new(Rtsp::Server));
        assert_eq!(client.from_player_in_pieces(OPTIONS.as_bytes(), piece), OPTIONS.as_bytes());
        assert_eq!(server.from_player_in_pieces(OPTIONS.as_bytes(), piece), OPTIONS.as_bytes());
        assert!(client.rtsp.is_followed() && server.rtsp.is_followed(), "pieces of {piece}");
        assert_eq!((client.late(), server.late()), (1, 0));
        let marked = client.from_player_in_pieces(SETUP.as_bytes(), piece);
        let marked = String::from_utf8(marked).unwrap();
        assert!(marked.contains(MARK), "{marked}");
        let asked = server.from_player_in_pieces(marked.as_bytes(), piece);
        let asked = String::from_utf8(asked).unwrap();
        assert!(!asked.contains(MARK) && !asked.contains("5000-5001"), "{asked}");
    }
}

/// Otherwise the server, which may have passed on a part of it, could not take the mark out.
#[test]
fn a_setup_in_the_first_head_is_not_marked() {
    for piece in [1, 3, 10, 40, 1000] {
        let mut client = End::client();
        let both = [SETUP, &SETUP.replace("CSeq: 2", "CSeq: 3")].concat();
        let passed = client.from_player_in_pieces(both.as_bytes(), piece);
        let passed = String::from_utf8(passed).unwrap();
        assert!(passed.starts_with(SETUP), "{passed}");
        assert_eq!(passed.matches(MARK).count(), 1, "{passed}");
    }
}

#[test]
fn another_protocol_passes_unseen_and_the_other_side_decides_nothing() {
    for first in ["GET / HTTP/1.1\r\n\r\n", "\u{16}\u{3}\u{1}", "ping"] {
        let mut client = End::client();
        assert_eq!(client.from_player_in_pieces(first.as_bytes(), 1), first.as_bytes());
        assert!(matches!(client.rtsp, FlowRtsp::Unseen), "{first:?}");
        assert_eq!(client.from_player(SETUP.as_bytes()), SETUP.as_bytes());
    }
    let mut client = End::client();
    let socket = &client.sockets.0;
    assert_eq!(client.rtsp.stream_brought(b"220 hello\r\n", socket), None);
    assert_eq!(client.rtsp.stream_brought(OPTIONS.as_bytes(), socket), None);
    assert!(matches!(client.rtsp, FlowRtsp::Candidate(_)));
    assert_eq!(client.from_player(OPTIONS.as_bytes()), OPTIONS.as_bytes());
    assert!(client.rtsp.is_followed());
}
