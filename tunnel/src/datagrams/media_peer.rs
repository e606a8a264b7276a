//! Where the datagrams of a medium come from and go to.

use std::net::{IpAddr, SocketAddr};

/// The player or the origin of a medium at one of its two ports.
///
/// Cameras send from other ports than they announce, or announce none; players send RTCP from any port. What comes from
/// a permitted address is accepted from each of its ports.
#[derive(Debug)]
pub struct MediaPeer {
    addresses: [IpAddr; 2],
    least_port: u16,
    /// Where it was said to be.
    announced: Option<SocketAddr>,
    /// Where it was heard from last.
    heard: Option<SocketAddr>,
}

impl MediaPeer {
    /// A peer at `addresses`, which may be the same, that nothing below `least_port` is accepted from or sent to.
    /// Without an announced address, its datagrams tell where it is.
    pub fn new(addresses: [IpAddr; 2], least_port: u16, announced: Option<SocketAddr>) -> Self {
        Self {
            addresses: addresses.map(|it| it.to_canonical()),
            least_port,
            announced,
            heard: None,
        }
    }

    /// Whether a datagram from this address is one of the peer's.
    pub(crate) fn accept(&mut self, from: SocketAddr) -> bool {
        let accepted =
            self.addresses.contains(&from.ip().to_canonical()) && from.port() >= self.least_port;
        if accepted {
            self.heard = Some(from);
        }
        accepted
    }

    /// Where it is reached; `None` while that is not known.
    pub(crate) fn send_to(&self) -> Option<SocketAddr> {
        self.announced.or(self.heard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn any_port_of_a_permitted_address_is_accepted() {
        let origin = [at("198.18.2.1:1"), at("198.18.2.7:1")].map(|it| it.ip());
        let mut peer = MediaPeer::new(origin, 1024, Some(at("198.18.2.1:6970")));
        for (from, accepted) in [
            ("198.18.2.1:6970", true),
            ("198.18.2.1:40000", true),
            ("198.18.2.7:6970", true),
            ("[::ffff:198.18.2.7]:6970", true),
            ("198.18.2.1:53", false),
            ("198.18.2.2:6970", false),
        ] {
            assert_eq!(peer.accept(at(from)), accepted, "{from}");
        }
        assert_eq!(peer.send_to(), Some(at("198.18.2.1:6970")), "as announced");
    }

    #[test]
    fn an_unannounced_peer_is_where_it_was_heard_from() {
        let ip = at("198.18.2.1:1").ip();
        let mut peer = MediaPeer::new([ip; 2], 1024, None);
        assert_eq!(peer.send_to(), None);
        assert!(!peer.accept(at("198.18.2.2:7000")));
        assert_eq!(peer.send_to(), None);
        assert!(peer.accept(at("198.18.2.1:7000")));
        assert_eq!(peer.send_to(), Some(at("198.18.2.1:7000")));
    }
}
