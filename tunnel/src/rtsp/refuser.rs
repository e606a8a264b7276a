//! RTSP outside the tunnel: a flow that a proxy connects to its origin itself.

use std::net::IpAddr;

use millrace_wire::rtsp::PortPair;

use super::follow::{Event, Follower, OriginMedia, PortSource, RtspSide};
use crate::metrics::SetupRefusal;

/// Answers each SETUP of media over UDP with 461, so that the player changes to RTP in the RTSP connection: the origin
/// would send its media to the proxy, whose address its connection comes from.
#[derive(Debug)]
pub struct UdpRefuser {
    follower: Follower<NoPorts>,
}

/// There are never ports.
#[derive(Debug)]
struct NoPorts;

impl PortSource for NoPorts {
    type Pair = ();

    fn reserve(&mut self, _player: PortPair) -> Option<((), PortPair)> {
        None
    }

    fn source(&self) -> Option<IpAddr> {
        None
    }

    fn connect(&mut self, (): &mut (), _origin: &OriginMedia) -> bool {
        false
    }
}

impl Default for UdpRefuser {
    fn default() -> Self {
        Self { follower: Follower::new(RtspSide::Server, NoPorts) }
    }
}

impl UdpRefuser {
    /// Takes bytes of the player; what goes to the origin instead.
    pub fn requests(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.follower.take_requests(bytes);
        std::mem::take(&mut self.follower.out.to_origin)
    }

    /// Takes bytes of the origin; what goes to the player instead.
    pub fn answers(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.follower.take_answers(bytes);
        self.replies()
    }

    /// What goes to the player after [`UdpRefuser::requests`].
    pub fn replies(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.follower.out.to_player)
    }

    /// The player's direction has ended: what was held of it.
    pub fn end_requests(&mut self) -> Vec<u8> {
        self.follower.end_requests();
        std::mem::take(&mut self.follower.out.to_origin)
    }

    /// The origin's direction has ended: what was held of it.
    pub fn end_answers(&mut self) -> Vec<u8> {
        self.follower.end_answers();
        self.replies()
    }

    /// Why media were refused since the last call.
    pub fn refused(&mut self) -> Vec<SetupRefusal> {
        let refusal = |event| match event {
            Event::Refused(reason) => Some(reason),
            _ => None,
        };
        self.follower.events().into_iter().filter_map(refusal).collect()
    }

    /// Whether the flow is not RTSP, so that all of it passes unchanged.
    pub fn is_over(&self) -> bool {
        self.follower.is_over()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setup_of_media_over_udp_is_refused_and_others_pass() {
        let mut refuser = UdpRefuser::default();
        let options = b"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n";
        assert_eq!(refuser.requests(options), options);
        let setup = b"SETUP a RTSP/1.0\r\nCSeq: 2\r\nTransport: RTP/AVP;unicast;client_port=5000-5001\r\n\r\n";
        assert_eq!(refuser.requests(setup), b"");
        assert_eq!(refuser.replies(), b"", "the first request has no answer yet");
        let answer = b"RTSP/1.0 200 OK\r\nCSeq: 1\r\n\r\n".as_slice();
        let refused = b"RTSP/1.0 461 Unsupported Transport\r\nCSeq: 2\r\n\r\n".as_slice();
        assert_eq!(refuser.answers(answer), [answer, refused].concat());
        assert_eq!(refuser.refused(), [SetupRefusal::Transport]);
        let tcp = b"SETUP a RTSP/1.0\r\nCSeq: 3\r\nTransport: RTP/AVP/TCP;interleaved=0-1\r\n\r\n";
        assert_eq!(refuser.requests(tcp), tcp);
        assert!(!refuser.is_over());
        let mut other = UdpRefuser::default();
        assert_eq!(other.requests(b"GET / HTTP/1.1\r\n"), b"GET / HTTP/1.1\r\n");
        assert!(other.is_over());
    }
}
