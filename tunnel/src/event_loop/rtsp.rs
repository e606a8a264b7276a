//! Media over UDP of RTSP flows.

use crate::conn_id::ConnId;
use crate::datagrams::Near;
use crate::event_loop::core::Core;
use crate::flow::Flow;
use crate::flow_end::FlowEnd;
use crate::flow_owner::FlowOwner;
use crate::rtsp::Medium;
use crate::rtsp::candidate::RtspCandidate;
use crate::rtsp::follow::Event;
use crate::rtsp::ports::UdpPair;
use crate::rtsp::{MediumFlow, MediumId, NewMedium, Reserved, Rtsp, RtspFollowing};
use crate::stream_owner::Owner;
use crate::tunnel_event::TunnelEvent;
use millrace_wire::Destination;
use millrace_wire::rtsp::PortPair;
use std::sync::Arc;

impl Core {
    /// Follows the RTSP messages of a flow as `following` says, as far as that is possible.
    pub(crate) fn follow_rtsp(&self, following: RtspFollowing, flow: &mut Flow) {
        let (rtsp, is_certain) = match following {
            RtspFollowing::Never => return,
            RtspFollowing::FromStart(rtsp) => (rtsp, true),
            RtspFollowing::OnceRecognised(rtsp) => (rtsp, false),
        };
        let Some(conn) = self.conn(flow.conn).filter(|_| self.shared.follows_rtsp()) else {
            return;
        };
        let client = conn.handshake.peer_place.as_ref().map(|peer| peer.name().clone());
        let viewer = FlowOwner::of_client(client, flow.label.client).viewer();
        let candidate = RtspCandidate::new(rtsp, self.shared.clone(), viewer);
        if !is_certain {
            flow.watch_for_rtsp(Box::new(candidate));
        } else if let Some(followed) = candidate.follow(&flow.socket) {
            flow.follow_rtsp(followed);
        }
    }

    /// Handles the events of a flow's messages.
    pub(crate) fn rtsp_news(&mut self, slot: usize) {
        let Some(flow) = self.flows.get_mut(slot) else { return };
        let Some(followed) = flow.rtsp.followed_mut() else { return };
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
        tracing::debug!(destination = flow.label.destination, %origin, "RTP over UDP set up");
        let flows = std::iter::zip(ends, [origin.rtp, origin.rtcp]).map(|(near, port)| {
            MediumFlow { near, destination: destination.with_port(port), medium: medium.clone() }
        });
        match rtsp {
            Rtsp::Server => {
                for MediumFlow { near, destination, medium } in flows {
                    let key = (id.conn, id.stream, destination.port());
                    let destination = destination.to_string();
                    self.admission.reserved.insert(key, Reserved { destination, near, medium });
                }
            }
            Rtsp::Client { player, group, .. } => {
                let flows: Vec<_> = flows.collect();
                if let Ok(flows) = flows.try_into() {
                    let medium = Box::new(NewMedium { group, player, flows });
                    self.pending.events.push_back(TunnelEvent::MediumSetUp(medium));
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
        self.admission.reserved.get(&key).filter(|it| it.destination == asked)?;
        self.admission.reserved.remove(&key).map(|it| (it.near, it.medium))
    }

    /// Whether the RTSP flow of a medium still runs.
    pub(crate) fn has_rtsp_flow(&self, id: MediumId) -> bool {
        let owner = self.conn(id.conn).and_then(|conn| conn.http.streams.get(&id.stream));
        let Some(Owner::Flow(slot)) = owner else { return false };
        self.flows.get(*slot).is_some_and(|flow| flow.conn == id.conn && flow.rtsp.is_followed())
    }

    /// An RTSP flow is over.
    pub(crate) fn end_rtsp(&mut self, flow: &Flow) {
        if flow.rtsp.is_followed() {
            self.end_media(flow.conn, flow.stream, None);
        }
    }

    /// Ends one medium of an RTSP flow, or all.
    fn end_media(&mut self, conn: ConnId, stream: u64, number: Option<u32>) {
        self.admission.reserved.retain(|_, it| !it.medium.is_of(conn, stream, number));
        self.end_datagram_flows(|flow| {
            let over = flow.medium.as_ref().is_some_and(|it| it.is_of(conn, stream, number));
            over.then_some(FlowEnd::Complete)
        });
        self.pending.events.push_back(TunnelEvent::MediaOver { conn, stream, number });
    }
}
