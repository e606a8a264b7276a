//! Pairs of UDP ports for RTP and RTCP.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use millrace_wire::rtsp::PortPair;

use super::follow::Ports;
use crate::datagrams::Near;
use crate::flow_owner::Viewer;
use crate::shared::{PairPlace, Shared};
use crate::udp::UdpPort;

/// Attempts to find two free ports beside each other.
const ATTEMPTS: usize = 32;

/// Two sockets, and where they send to.
#[derive(Debug)]
pub(crate) struct UdpPair {
    rtp: UdpPort,
    rtcp: UdpPort,
    /// Set once they are connected.
    peers: Option<[SocketAddr; 2]>,
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
#[derive(Clone, Copy, Debug)]
pub(crate) enum Peer {
    /// The player, at the ports that its request names.
    Player(IpAddr),
    /// The origin, at the ports that its answer names. Its answer may name another address as
    /// `source`, which the allow-list has not permitted.
    Origin(IpAddr),
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
    fn connect(&mut self, ip: IpAddr, ports: PortPair) -> io::Result<()> {
        let peers = [ports.rtp, ports.rtcp].map(|port| SocketAddr::new(ip, port));
        self.rtp.connect_to(peers[0])?;
        self.rtcp.connect_to(peers[1])?;
        self.peers = Some(peers);
        Ok(())
    }

    /// The sockets of the two flows, RTP and RTCP. `None` while the pair has no peer.
    pub(crate) fn into_ends(self) -> Option<(PairPlace, [Near; 2])> {
        let [rtp, rtcp] = self.peers?;
        let ends = [(self.rtp, rtp), (self.rtcp, rtcp)];
        Some((self.place, ends.map(|(port, peer)| Near::Own { port, peer })))
    }
}

impl Ports for UdpPairs {
    type Pair = UdpPair;

    fn reserve(&mut self, player: PortPair) -> Option<(UdpPair, PortPair)> {
        let place = self.shared.take_port_pair(self.viewer.clone())?;
        let opened = self.open().and_then(|(rtp, rtcp)| {
            let mut pair = UdpPair { rtp, rtcp, peers: None, place };
            if let Peer::Player(ip) = self.peer {
                pair.connect(ip, player)?;
            }
            Ok(pair)
        });
        let pair = opened.inspect_err(|error| tracing::warn!(%error, "no free RTP ports")).ok()?;
        let ports = PortPair { rtp: pair.rtp.local().port(), rtcp: pair.rtcp.local().port() };
        Some((pair, ports))
    }

    fn connect(&mut self, pair: &mut UdpPair, origin: PortPair) -> bool {
        match self.peer {
            Peer::Player(_) => true,
            Peer::Origin(ip) => pair.connect(ip, origin).is_ok(),
        }
    }
}
