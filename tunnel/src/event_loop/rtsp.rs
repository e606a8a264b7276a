//! Media of RTSP flows: those over UDP, and the queue of those in the connection.

use crate::conn_id::ConnId;
use crate::datagrams::LocalSocket;
use crate::event_loop::core::Core;
use crate::flow::{Flow, Pump};
use crate::flow_end::FlowEnd;
use crate::metrics::{DroppedMedium, FlowRecognition, Label, SetupRefusal};
use crate::queued_relay;
use crate::rtsp::follow::{Event, Follower, RtspSide};
use crate::rtsp::ports::{UdpPair, UdpPairs};
use crate::rtsp::send_queue::SendQueue;
use crate::rtsp::{Medium, MediumFlow, MediumId, NewMedium, Reserved, Rtsp, RtspFlow};
use crate::stream_owner::Owner;
use crate::tunnel_event::TunnelEvent;
use millrace_admission::flow_owner::FlowOwner;
use millrace_config::Class;
use millrace_wire::Destination;
use millrace_wire::rtsp::PortPair;
use std::net::SocketAddr;

/// Most reads into a queue for one event of a socket, so that other flows have their turn: a megabyte.
const MAX_FILL_READS: usize = 16;

impl Core {
    /// Starts to follow a flow; `None` where that is not possible.
    pub(crate) fn follow_rtsp(&self, rtsp: Rtsp, flow: &Flow) -> Option<Box<RtspFlow>> {
        let shared = self.shared.clone();
        // A client without ports follows too, so that it refuses SETUPs where the server does not follow.
        if matches!(rtsp, Rtsp::Server { .. }) && !shared.follows_rtsp() {
            return None;
        }
        let client =
            self.conn(flow.conn)?.handshake.peer_place.as_ref().map(|peer| peer.name().clone());
        let viewer = FlowOwner::of_client(client, flow.label.client).viewer();
        let mut queue = None;
        let (side, ports) = match rtsp {
            Rtsp::Client { player, origin, server_follows, .. } => {
                let player = SocketAddr::new(player.ip().to_canonical(), player.port());
                let side = RtspSide::Client { player: player.ip(), server_follows };
                (side, UdpPairs::of_player(shared, viewer, player, origin))
            }
            Rtsp::Server { ref media_sources, queue: max_time } => {
                queue = max_time.map(SendQueue::new);
                // The origin sends its media to the peer address of its TCP connection.
                let (local, origin) = flow.socket.tcp_addresses()?;
                let sources = media_sources.clone();
                (
                    RtspSide::Server,
                    UdpPairs::of_origin(shared, viewer, local.ip(), origin.ip(), sources),
                )
            }
        };
        Some(Box::new(RtspFlow::new(Follower::new(side, ports), rtsp, queue)))
    }

    /// Handles the events of a flow's messages.
    pub(crate) fn handle_rtsp_events(&mut self, slot: usize) {
        let Some(flow) = self.flows.get_mut(slot) else { return };
        let Some(followed) = &mut flow.rtsp else { return };
        let (events, rtsp) = (followed.follower.events(), followed.rtsp.clone());
        let (conn, stream) = (flow.conn, flow.stream);
        for event in events {
            match event {
                Event::SetUp { number, pair, origin } => {
                    let id = MediumId { conn, stream, number };
                    self.set_up_medium(slot, &rtsp, id, pair, origin);
                }
                Event::TornDown { number } => self.end_media(conn, stream, Some(number)),
                Event::Begun => self.on_rtsp_begun(slot, &rtsp),
                Event::Refused(reason) => self.on_setup_refused(slot, reason),
                Event::CloseOrigin => self.close_origin(slot),
            }
        }
        self.report_queue(slot);
        self.queue_rtsp_output(slot);
    }

    /// Reads what a flow's socket has into the flow's queue, if it has one, also while its connection can take nothing.
    pub(crate) fn fill_queue(&mut self, slot: usize) {
        let Some(flow) = self.flows.get_mut(slot).filter(|flow| flow.uses_queue()) else {
            return;
        };
        let conn = flow.conn.slot;
        for _ in 0..MAX_FILL_READS {
            let Some(flow) = self.flows.get_mut(slot) else { return };
            match queued_relay::fill(flow, 0, &mut self.buffers.scratch, self.now) {
                Pump::More => {}
                Pump::Wait => break,
                Pump::Failed(end) => return self.end_flow(slot, end),
            }
            self.handle_rtsp_events(slot);
            // A picture of a fast stream takes milliseconds to read: what is due leaves meanwhile.
            self.drive(conn);
        }
        self.handle_rtsp_events(slot);
    }

    /// Counts and logs what a flow's queue has dropped.
    fn report_queue(&mut self, slot: usize) {
        let now = self.now;
        let Some(flow) = self.flows.get_mut(slot) else { return };
        let Some(rtsp) = &mut flow.rtsp else { return };
        let Some(report) = rtsp.queue.as_mut().map(SendQueue::take_report) else { return };
        let metrics = &self.shared.metrics;
        metrics.rtsp_frames_dropped.of(DroppedMedium::Video).inc_by(report.dropped_video);
        metrics.rtsp_frames_dropped.of(DroppedMedium::Audio).inc_by(report.dropped_audio);
        for wait in report.waits {
            metrics.rtsp_queue_wait.observe(wait.as_secs_f64());
        }
        let destination = &flow.label.destination;
        if report.was_limited {
            tracing::debug!(%destination, "RTP in the RTSP connection is faster than real time; nothing is dropped");
        }
        if let Some((video, audio)) =
            rtsp.drop_log.take(report.dropped_video, report.dropped_audio, now)
        {
            tracing::info!(
                %destination,
                video_frames = video,
                audio_frames = audio,
                "frames of RTP in the RTSP connection dropped: they waited too long for the tunnel"
            );
        }
    }

    /// The peer has said whether it follows RTSP too.
    pub(crate) fn on_server_follows_rtsp(&mut self, slot: usize, follows: bool) {
        let Some(flow) = self.flows.get_mut(slot) else { return };
        let Some(rtsp) = &mut flow.rtsp else { return };
        rtsp.follower.on_server_follows(follows);
        self.handle_rtsp_events(slot);
    }

    /// What the agent itself sends goes with the flow's next turn.
    fn queue_rtsp_output(&mut self, slot: usize) {
        let Some(flow) = self.flows.get_mut(slot) else { return };
        if !flow.take_rtsp_output(self.now) || std::mem::replace(&mut flow.state.queued, true) {
            return;
        }
        let id = flow.conn;
        if let Some(conn) = self.conn_mut(id) {
            conn.pending.flows.push_back(slot);
        }
        self.mark_pending(id.slot);
    }

    /// A flow has turned out to be RTSP.
    fn on_rtsp_begun(&mut self, slot: usize, rtsp: &Rtsp) {
        let Some(flow) = self.flows.get(slot) else { return };
        if matches!(rtsp, Rtsp::Client { .. }) && flow.label.class != Class::Rtsp {
            self.shared.metrics.flows_recognised.of(FlowRecognition::LateRtsp).inc();
        }
    }

    fn on_setup_refused(&mut self, slot: usize, reason: SetupRefusal) {
        self.shared.metrics.rtsp_setups_refused.of(reason).inc();
        let Some(flow) = self.flows.get(slot) else { return };
        let (destination, reason) = (&flow.label.destination, reason.as_str());
        tracing::info!(%destination, reason, "RTP over UDP can't be carried; the player is told to use the RTSP connection");
    }

    /// Closes the connection to an origin that has set up what can't be carried.
    fn close_origin(&mut self, slot: usize) {
        if let Some(flow) = self.flows.get_mut(slot).filter(|flow| {
            flow.rtsp.as_ref().is_some_and(|it| matches!(it.rtsp, Rtsp::Server { .. }))
        }) {
            flow.end_socket_writes();
        }
    }

    fn set_up_medium(
        &mut self,
        slot: usize,
        rtsp: &Rtsp,
        id: MediumId,
        pair: UdpPair,
        origin: PortPair,
    ) {
        let Some(flow) = self.flows.get(slot) else { return };
        let Ok(destination) = flow.label.destination.parse::<Destination>() else { return };
        let Some((place, ends)) = pair.into_ends() else { return };
        let medium = Medium::new(id, place, self.now);
        tracing::debug!(destination = flow.label.destination, %origin, "RTP over UDP set up");
        let flows = std::iter::zip(ends, [origin.rtp, origin.rtcp]).map(|(socket, port)| {
            MediumFlow { socket, destination: destination.with_port(port), medium: medium.clone() }
        });
        match rtsp {
            Rtsp::Server { .. } => {
                for MediumFlow { socket, destination, medium } in flows {
                    let key = (id.conn, id.stream, destination.port());
                    let destination = destination.to_string();
                    self.admission.reserved.insert(key, Reserved { destination, socket, medium });
                }
            }
            &Rtsp::Client { player, group, .. } => {
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
    ) -> Option<(LocalSocket, Medium)> {
        let key = (conn, stream, destination.port());
        let asked = destination.to_string();
        self.admission.reserved.get(&key).filter(|it| it.destination == asked)?;
        self.admission.reserved.remove(&key).map(|it| (it.socket, it.medium))
    }

    /// Whether the RTSP flow of a medium still runs.
    pub(crate) fn has_rtsp_flow(&self, id: MediumId) -> bool {
        let owner = self.conn(id.conn).and_then(|conn| conn.http.streams.get(&id.stream));
        let Some(Owner::Flow(slot)) = owner else { return false };
        self.flows.get(*slot).is_some_and(|flow| flow.conn == id.conn && flow.rtsp.is_some())
    }

    /// An RTSP flow is over. After a close in order, media for which the player has sent no TEARDOWN go on for a while.
    pub(crate) fn end_rtsp(&mut self, flow: &Flow, in_order: bool) {
        let Some(rtsp) = &flow.rtsp else { return };
        let at_client = matches!(rtsp.rtsp, Rtsp::Client { .. });
        let now = self.now;
        for number in rtsp.follower.lasting_media().filter(|_| in_order) {
            let of_medium = |it: &Medium| it.is_of(flow.conn, flow.stream, Some(number));
            for (_, udp) in &mut self.udp_flows {
                if let Some(medium) = udp.medium.as_mut().filter(|it| of_medium(it)) {
                    medium.orphan(now);
                    // A player that has gone refuses what comes.
                    if at_client {
                        udp.socket.connect();
                    }
                }
            }
        }
        self.end_media(flow.conn, flow.stream, None);
    }

    /// Ends one medium of an RTSP flow, or all.
    fn end_media(&mut self, conn: ConnId, stream: u64, number: Option<u32>) {
        self.admission.reserved.retain(|_, it| !it.medium.is_of(conn, stream, number));
        self.end_datagram_flows(|flow| {
            let of_it = |it: &Medium| it.is_of(conn, stream, number) && !it.is_orphaned();
            let over = flow.medium.as_ref().is_some_and(of_it);
            over.then_some(FlowEnd::Complete)
        });
        self.pending.events.push_back(TunnelEvent::MediaOver { conn, stream, number });
    }
}
