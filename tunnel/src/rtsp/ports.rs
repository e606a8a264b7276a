//! Pairs of UDP ports for RTP and RTCP.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use millrace_admission::flow_owner::Viewer;
use millrace_wire::rtsp::PortPair;

use super::follow::{MIN_ORIGIN_PORT, OriginMedia, PortSource};
use super::media_sources::MediaSources;
use crate::datagrams::{LocalSocket, MediaPeer};
use crate::shared::{PairPlace, Shared};
use crate::source_address::source_address;
use crate::udp::UdpPort;

/// Attempts to find two free ports beside each other.
const MAX_BIND_ATTEMPTS: usize = 32;
/// A player is sent to at the ports that it names itself, and at no other host.
const MIN_PLAYER_PORT: u16 = 1;

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
    peer: PortPeer,
    /// Where they are bound; at a client known with the first pair.
    local: Option<Local>,
}

/// Where pairs are bound.
#[derive(Clone, Copy, Debug)]
struct Local {
    ip: IpAddr,
    /// It is not this machine's own (`IP_TRANSPARENT`).
    is_foreign: bool,
}

/// The peer of a pair.
#[derive(Debug)]
enum PortPeer {
    /// The player, at the ports that its request names.
    Player {
        /// The player's end of the RTSP connection.
        player: SocketAddr,
        /// The origin's address, if the interception is transparent to the player.
        origin: Option<IpAddr>,
    },
    /// The origin, at the ports that its answer names, if it does.
    Origin {
        /// Of the RTSP connection.
        address: IpAddr,
        /// Which other addresses its answer may name as `source`.
        sources: MediaSources,
    },
}

impl UdpPairs {
    /// Pairs towards a player, in place of `origin` where that is possible.
    pub(crate) fn of_player(
        shared: Arc<Shared>,
        viewer: Viewer,
        player: SocketAddr,
        origin: Option<IpAddr>,
    ) -> Self {
        Self { shared, viewer, peer: PortPeer::Player { player, origin }, local: None }
    }

    /// Pairs at `local` towards the origin at `address`.
    pub(crate) fn of_origin(
        shared: Arc<Shared>,
        viewer: Viewer,
        local: IpAddr,
        address: IpAddr,
        sources: MediaSources,
    ) -> Self {
        let local = Some(Local { ip: local, is_foreign: false });
        Self { shared, viewer, peer: PortPeer::Origin { address, sources }, local }
    }

    /// Finds out where pairs are bound, unless that is known.
    fn local(&mut self) -> io::Result<Local> {
        if let Some(local) = self.local {
            return Ok(local);
        }
        let PortPeer::Player { player, origin } = &self.peer else {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        };
        let own = source_address(*player)?;
        // A player on this machine would send its packets to the origin directly.
        let origin = origin
            .map(|it| it.to_canonical())
            .filter(|it| own != player.ip() && UdpPort::reserve((*it, 0).into(), true).is_ok());
        let local = Local { ip: origin.unwrap_or(own), is_foreign: origin.is_some() };
        self.local = Some(local);
        Ok(local)
    }

    fn open(&mut self) -> io::Result<(UdpPort, UdpPort)> {
        let Local { ip, is_foreign } = self.local()?;
        let mut last = None;
        for _ in 0..MAX_BIND_ATTEMPTS {
            let first = UdpPort::reserve((ip, 0).into(), is_foreign)?;
            // RFC 3550, Section 11: RTP has the even one.
            let other = first.local().port() ^ 1;
            match UdpPort::reserve((ip, other).into(), is_foreign) {
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
    pub(crate) fn into_ends(self) -> Option<(PairPlace, [LocalSocket; 2])> {
        let [rtp, rtcp] = self.peers?;
        let ends = [(self.rtp, rtp), (self.rtcp, rtcp)];
        Some((self.place, ends.map(|(port, peer)| LocalSocket::Media { port, peer })))
    }
}

impl PortSource for UdpPairs {
    type Pair = UdpPair;

    fn reserve(&mut self, player: PortPair) -> Option<(UdpPair, PortPair)> {
        let place = self.shared.take_port_pair(self.viewer.clone())?;
        let opened = self.open();
        let (rtp, rtcp) =
            opened.inspect_err(|error| tracing::warn!(%error, "no free RTP ports")).ok()?;
        let ports = PortPair { rtp: rtp.local().port(), rtcp: rtcp.local().port() };
        let peers = match &self.peer {
            PortPeer::Player { player: at, .. } => Some([player.rtp, player.rtcp].map(|port| {
                let ip = at.ip();
                MediaPeer::new([ip; 2], MIN_PLAYER_PORT, Some(SocketAddr::new(ip, port)))
            })),
            PortPeer::Origin { .. } => None,
        };
        Some((UdpPair { rtp, rtcp, peers, place }, ports))
    }

    fn source(&self) -> Option<IpAddr> {
        self.local.map(|it| it.ip)
    }

    fn connect(&mut self, pair: &mut UdpPair, origin: &OriginMedia) -> bool {
        let PortPeer::Origin { address, sources } = &self.peer else { return true };
        let ports = origin.ports.map(|it| [it.rtp, it.rtcp]);
        let source = origin.source.unwrap_or(address.to_canonical());
        let foreign = source != address.to_canonical();
        let first = SocketAddr::new(source, ports.map_or(0, |ports| ports[0]));
        // An origin that names no usable address sends from that of its RTSP connection.
        let usable = !(source.is_unspecified() || source.is_multicast())
            && source.is_ipv4() == address.to_canonical().is_ipv4();
        if foreign && usable && !sources.permit(first) {
            return false;
        }
        let source = if usable { source } else { address.to_canonical() };
        let announced = |index: usize| ports.map(|ports| SocketAddr::new(source, ports[index]));
        let peer = |index| MediaPeer::new([*address, source], MIN_ORIGIN_PORT, announced(index));
        pair.peers = Some([peer(0), peer(1)]);
        true
    }
}
