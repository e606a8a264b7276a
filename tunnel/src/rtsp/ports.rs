//! Pairs of UDP ports for RTP and RTCP.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use millrace_wire::rtsp::PortPair;

use super::follow::{LEAST_ORIGIN_PORT, OriginMedia, Ports};
use super::media_sources::MediaSources;
use crate::datagrams::{MediaPeer, Near};
use crate::flow_owner::Viewer;
use crate::shared::{PairPlace, Shared};
use crate::udp::UdpPort;

/// Attempts to find two free ports beside each other.
const ATTEMPTS: usize = 32;
/// A player is sent to at the ports that it names itself, and at no other host.
const LEAST_PLAYER_PORT: u16 = 1;

/// Two sockets, and where they send to.
#[derive(Debug)]
pub(crate) struct UdpPair {
    rtp: UdpPort,
    rtcp: UdpPort,
    /// Set once they are known.
    peers: Option<[MediaPeer; 2]>,
    place: PairPlace,
}

/// Opens pairs for one RTSP connection.
#[derive(Debug)]
pub(crate) struct UdpPairs {
    shared: Arc<Shared>,
    /// The viewer that they count for.
    viewer: Viewer,
    /// Where they are bound.
    local: IpAddr,
    /// `local` is not this machine's own (`IP_TRANSPARENT`).
    transparent: bool,
    peer: Peer,
}

/// The peer of a pair.
#[derive(Clone, Debug)]
pub(crate) enum Peer {
    /// The player, at the ports that its request names.
    Player(IpAddr),
    /// The origin, at the ports that its answer names, if it does.
    Origin {
        /// Of the RTSP connection.
        address: IpAddr,
        /// Which other addresses its answer may name as `source`.
        permits: MediaSources,
    },
}

impl UdpPairs {
    pub(crate) fn new(
        shared: Arc<Shared>,
        viewer: Viewer,
        local: IpAddr,
        transparent: bool,
        peer: Peer,
    ) -> Self {
        Self { shared, viewer, local, transparent, peer }
    }

    fn open(&self) -> io::Result<(UdpPort, UdpPort)> {
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let first = UdpPort::reserve((self.local, 0).into(), self.transparent)?;
            // RFC 3550, Section 11: RTP has the even one.
            let other = first.local().port() ^ 1;
            match UdpPort::reserve((self.local, other).into(), self.transparent) {
                Ok(second) if other & 1 == 0 => return Ok((second, first)),
                Ok(second) => return Ok((first, second)),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| io::ErrorKind::AddrInUse.into()))
    }
}

impl UdpPair {
    /// The sockets of the two flows, RTP and RTCP. `None` while the pair has no peer.
    pub(crate) fn into_ends(self) -> Option<(PairPlace, [Near; 2])> {
        let [rtp, rtcp] = self.peers?;
        let ends = [(self.rtp, rtp), (self.rtcp, rtcp)];
        Some((self.place, ends.map(|(port, peer)| Near::Media { port, peer })))
    }
}

impl Ports for UdpPairs {
    type Pair = UdpPair;

    fn reserve(&mut self, player: PortPair) -> Option<(UdpPair, PortPair)> {
        let place = self.shared.take_port_pair(self.viewer.clone())?;
        let opened = self.open();
        let (rtp, rtcp) =
            opened.inspect_err(|error| tracing::warn!(%error, "no free RTP ports")).ok()?;
        let ports = PortPair { rtp: rtp.local().port(), rtcp: rtcp.local().port() };
        let peers = match self.peer {
            Peer::Player(ip) => Some([player.rtp, player.rtcp].map(|port| {
                MediaPeer::new([ip; 2], LEAST_PLAYER_PORT, Some(SocketAddr::new(ip, port)))
            })),
            Peer::Origin { .. } => None,
        };
        Some((UdpPair { rtp, rtcp, peers, place }, ports))
    }

    fn connect(&mut self, pair: &mut UdpPair, origin: &OriginMedia) -> bool {
        let Peer::Origin { address, permits } = &self.peer else { return true };
        let ports = origin.ports.map(|it| [it.rtp, it.rtcp]);
        let source = origin.source.unwrap_or(address.to_canonical());
        let foreign = source != address.to_canonical();
        let first = SocketAddr::new(source, ports.map_or(0, |ports| ports[0]));
        // An origin that names no usable address sends from that of its RTSP connection.
        let usable = !(source.is_unspecified() || source.is_multicast())
            && source.is_ipv4() == self.local.to_canonical().is_ipv4();
        if foreign && usable && !permits.permit(first) {
            return false;
        }
        let source = if usable { source } else { address.to_canonical() };
        let announced = |index: usize| ports.map(|ports| SocketAddr::new(source, ports[index]));
        let peer = |index| MediaPeer::new([*address, source], LEAST_ORIGIN_PORT, announced(index));
        pair.peers = Some([peer(0), peer(1)]);
        true
    }
}
