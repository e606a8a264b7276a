//! RTP over UDP of RTSP players (RFC 2326): what a SETUP in a TCP flow agrees on becomes UDP flows
//! (CONNECT-UDP, RFC 9298) beside it.
//!
//! `reader` finds messages, `follow` is what both ends make of them, `ports` are the sockets. Here is
//! what ties media to the flow that set them up: they begin and end with it, on its connection.

mod follow;
mod ports;
mod reader;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use millrace_wire::Destination;
use millrace_wire::rtsp::PortPair;

use crate::conn::{ConnId, Owner};
use crate::core::Core;
use crate::datagrams::Near;
use crate::flow::{Flow, FlowEnd};
use crate::flow_admission::FlowOwner;
use crate::liveness::source_address;
use crate::role::Notice;
use crate::shared::PairPlace;
use crate::udp::UdpPort;

#[cfg(fuzzing)]
pub use follow::fuzzing;
use follow::{Event, Follower, Side};
use ports::{Peer, UdpPair, UdpPairs};

/// That the SETUP requests of a flow are followed.
#[derive(Clone, Copy, Debug)]
pub enum Rtsp {
    /// At the player's end.
    Client {
        /// Who the player is.
        player: SocketAddr,
        /// The origin's address, if the player must not notice that it talks to somebody else.
        origin: Option<IpAddr>,
        /// Whether the server has said already that it follows RTSP too.
        agreed: bool,
        /// The role's own, for [`NewMedium`].
        lane: usize,
    },
    /// At the origin's.
    Server,
}

/// Which medium of which RTSP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediumId {
    /// The connection of the RTSP flow, and so of the medium's flows.
    pub conn: ConnId,
    /// The RTSP flow's stream.
    pub stream: u64,
    number: u32,
}

/// What a UDP flow belongs to that an RTSP connection has set up.
#[derive(Clone, Debug)]
pub struct Medium {
    /// Which.
    pub id: MediumId,
    /// Held for as long as a port of it is.
    _place: Arc<PairPlace>,
}

/// One of a medium's two flows, at the client.
#[derive(Debug)]
pub struct MediumFlow {
    /// The socket towards the player.
    pub near: Near,
    /// What the server is asked for.
    pub destination: Destination,
    /// What it belongs to.
    pub medium: Medium,
}

/// A medium that a client has to ask for; see [`Notice::MediumSetUp`].
#[derive(Debug)]
pub struct NewMedium {
    /// Of [`Rtsp::Client`].
    pub lane: usize,
    /// Of [`Rtsp::Client`].
    pub player: SocketAddr,
    /// RTP and RTCP.
    pub flows: [MediumFlow; 2],
}

/// A port at the server that waits for its CONNECT-UDP request.
#[derive(Debug)]
pub(crate) struct Reserved {
    destination: String,
    near: Near,
    medium: Medium,
}

/// By connection, stream of the RTSP flow, and the origin's port. As many as there are places.
pub(crate) type AllReserved = std::collections::HashMap<(ConnId, u64, u16), Reserved>;

/// What a flow has that is followed.
#[derive(Debug)]
pub(crate) struct RtspFlow {
    follower: Follower<UdpPairs>,
    rtsp: Rtsp,
}

impl RtspFlow {
    /// Takes what the flow's socket brought; what goes to the stream instead.
    pub(crate) fn socket_brought(&mut self, bytes: &[u8]) -> Vec<u8> {
        match self.rtsp {
            Rtsp::Client { .. } => self.follower.requests(bytes),
            Rtsp::Server => self.follower.answers(bytes),
        }
    }

    /// Takes what the stream brought; what goes to the socket instead.
    pub(crate) fn stream_brought(&mut self, bytes: &[u8]) -> Vec<u8> {
        match self.rtsp {
            Rtsp::Client { .. } => self.follower.answers(bytes),
            Rtsp::Server => self.follower.requests(bytes),
        }
    }

    /// The socket has ended: what was held of it.
    pub(crate) fn end_of_socket(&mut self) -> Vec<u8> {
        match self.rtsp {
            Rtsp::Client { .. } => self.follower.end_requests(),
            Rtsp::Server => self.follower.end_answers(),
        }
    }

    /// The stream has ended: what was held of it.
    pub(crate) fn end_of_stream(&mut self) -> Vec<u8> {
        match self.rtsp {
            Rtsp::Client { .. } => self.follower.end_answers(),
            Rtsp::Server => self.follower.end_requests(),
        }
    }

    /// The server follows RTSP too.
    pub(crate) fn agree(&mut self) {
        self.follower.agree();
    }
}

impl Core {
    /// Begins to follow a flow; `None` where that is not possible.
    pub(crate) fn follow_rtsp(&self, rtsp: Rtsp, flow: &Flow) -> Option<Box<RtspFlow>> {
        let shared = self.shared.clone();
        if !shared.follows_rtsp() {
            return None;
        }
        let client = self.conn(flow.conn)?.peer_place.as_ref().map(|peer| peer.name().clone());
        let viewer = FlowOwner::of_client(client, flow.label.client).viewer();
        let (side, ports) = match rtsp {
            Rtsp::Client { player, origin, agreed, .. } => {
                let ip = player.ip().to_canonical();
                let own = source_address(SocketAddr::new(ip, player.port())).ok()?;
                // A player on this machine would send its own packets to the origin past this end.
                let origin = origin
                    .map(|it| it.to_canonical())
                    .filter(|it| own != ip && UdpPort::reserve((*it, 0).into(), true).is_ok());
                let source = origin.unwrap_or(own);
                let peer = Peer::Player(ip);
                let side = Side::Client { player: ip, source, agreed };
                (side, UdpPairs::new(shared, viewer, source, origin.is_some(), peer))
            }
            Rtsp::Server => {
                // The origin sends its media to whom it sees at the other end.
                let (local, origin) = flow.socket.tcp_addresses()?;
                let peer = Peer::Origin(origin.ip());
                (Side::Server, UdpPairs::new(shared, viewer, local.ip(), false, peer))
            }
        };
        Some(Box::new(RtspFlow { follower: Follower::new(side, ports), rtsp }))
    }

    /// Does what became necessary as a flow's messages passed.
    pub(crate) fn rtsp_news(&mut self, slot: usize) {
        let Some(flow) = self.flows.get_mut(slot) else { return };
        let Some(followed) = &mut flow.rtsp else { return };
        let (events, rtsp) = (followed.follower.events(), followed.rtsp);
        let (conn, stream) = (flow.conn, flow.stream);
        for event in events {
            match event {
                Event::SetUp { number, pair, origin } => {
                    let id = MediumId { conn, stream, number };
                    self.set_up_medium(slot, rtsp, id, pair, origin);
                }
                Event::TornDown { number } => self.end_media(conn, stream, Some(number)),
            }
        }
    }

    fn set_up_medium(
        &mut self,
        slot: usize,
        rtsp: Rtsp,
        id: MediumId,
        pair: UdpPair,
        origin: PortPair,
    ) {
        let Some(flow) = self.flows.get(slot) else { return };
        let Ok(destination) = flow.label.destination.parse::<Destination>() else { return };
        let Some((place, ends)) = pair.into_ends() else { return };
        let medium = Medium { id, _place: Arc::new(place) };
        tracing::debug!(destination = flow.label.destination, %origin, "RTP over UDP");
        let flows = std::iter::zip(ends, [origin.rtp, origin.rtcp]).map(|(near, port)| {
            MediumFlow { near, destination: destination.with_port(port), medium: medium.clone() }
        });
        match rtsp {
            Rtsp::Server => {
                for MediumFlow { near, destination, medium } in flows {
                    let key = (id.conn, id.stream, destination.port());
                    let destination = destination.to_string();
                    self.reserved.insert(key, Reserved { destination, near, medium });
                }
            }
            Rtsp::Client { player, lane, .. } => {
                let flows: Vec<_> = flows.collect();
                if let Ok(flows) = flows.try_into() {
                    let medium = Box::new(NewMedium { lane, player, flows });
                    self.notices.push_back(Notice::MediumSetUp(medium));
                }
            }
        }
    }

    /// The port that a CONNECT-UDP request is about which names the stream of the RTSP flow that set
    /// it up. `None` unless that flow is on the same connection, with this port of its own origin.
    pub fn take_reserved(
        &mut self,
        conn: ConnId,
        stream: u64,
        destination: &Destination,
    ) -> Option<(Near, Medium)> {
        let key = (conn, stream, destination.port());
        let asked = destination.to_string();
        self.reserved.get(&key).filter(|it| it.destination == asked)?;
        self.reserved.remove(&key).map(|it| (it.near, it.medium))
    }

    /// Whether the RTSP flow of a medium still runs.
    pub(crate) fn has_rtsp_flow(&self, id: MediumId) -> bool {
        let owner = self.conn(id.conn).and_then(|conn| conn.streams.get(&id.stream));
        let Some(Owner::Flow(slot)) = owner else { return false };
        self.flows.get(*slot).is_some_and(|flow| flow.conn == id.conn && flow.rtsp.is_some())
    }

    /// An RTSP flow is over.
    pub(crate) fn end_rtsp(&mut self, flow: &Flow) {
        if flow.rtsp.is_some() {
            self.end_media(flow.conn, flow.stream, None);
        }
    }

    /// Ends one medium of an RTSP flow, or all.
    fn end_media(&mut self, conn: ConnId, stream: u64, number: Option<u32>) {
        self.reserved.retain(|_, it| !it.medium.is_of(conn, stream, number));
        self.end_datagram_flows(|flow| {
            let over = flow.medium.as_ref().is_some_and(|it| it.is_of(conn, stream, number));
            over.then_some(FlowEnd::Complete)
        });
        self.notices.push_back(Notice::MediaOver { conn, stream, number });
    }
}

impl Medium {
    /// Whether it belongs to this RTSP flow, and is the one of this number if one is given.
    pub fn is_of(&self, conn: ConnId, stream: u64, number: Option<u32>) -> bool {
        let MediumId { conn: its, stream: own, number: this } = self.id;
        (its, own) == (conn, stream) && number.is_none_or(|number| number == this)
    }
}
