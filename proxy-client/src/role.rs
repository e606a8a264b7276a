//! The client's role in an event loop: passes its events to the listeners, the flows and the pool.

use std::collections::HashSet;
use std::io;
use std::time::Instant;

use millrace_config::ClientConfig;
use millrace_ops::published::Published;
use millrace_tunnel::conn_id::ConnId;
use millrace_tunnel::event_loop::Core;
use millrace_tunnel::event_loop::Role;
use millrace_tunnel::flow_end::FlowEnd;
use millrace_tunnel::flow_info::FlowInfo;
use millrace_tunnel::h3_errors::H3_CONNECT_ERROR;
use millrace_tunnel::metrics::FlowFailure;
use millrace_tunnel::tunnel_event::TunnelEvent;
use mio::event::Event;

use crate::accepted::{Accepted, AcceptedState};
use crate::direct::{self, Direct};
use crate::flow_context::{FIRST_FLOW_KEY, FlowContext};
use crate::listener::Listener;
use crate::pool::{Availability, Pool};
use crate::reloadable::Reloadable;
use crate::tcp::{Accept, MAX_ACCEPTS_PER_TURN, TcpFlows, TcpListeners, answer_unanswered};
use crate::udp::{self, UdpFlows, UdpListeners};

/// The role of a client in an event loop: turns accepted connections and datagrams into flows through the tunnel.
pub struct ClientRole {
    /// The tunnel connections, and the settings of new flows.
    context: FlowContext,
    listeners: TcpListeners,
    tcp: TcpFlows,
    udp_listeners: UdpListeners,
    udp: UdpFlows,
    latest: Published<Reloadable>,
}

impl ClientRole {
    /// A role that accepts flows at `listeners` and `udp_listeners`, and carries them on the connections of `pool`.
    pub fn new(
        listeners: Vec<Listener>,
        udp_listeners: UdpListeners,
        pool: Pool,
        direct: Option<Direct>,
        config: &ClientConfig,
        latest: Published<Reloadable>,
    ) -> Self {
        let listeners = TcpListeners::new(listeners);
        let counted = (listeners.views(), udp_listeners.count());
        let settings = (*latest.get()).clone();
        Self {
            context: FlowContext::new(pool, counted, config.tunnel.connect_timeout, settings),
            listeners,
            tcp: TcpFlows::new(direct, config.tunnel.servers.len() > 1),
            udp_listeners,
            udp: UdpFlows::default(),
            latest,
        }
    }

    fn accept_all(&mut self, core: &mut Core) {
        for index in self.listeners.take_queued(core.now()) {
            let is_done = (0..MAX_ACCEPTS_PER_TURN).any(|_| !self.accept(core, index));
            if !is_done {
                self.listeners.queue(index);
            }
        }
    }

    /// Accepts a connection from a listener. Returns `false` when no connection waits.
    fn accept(&mut self, core: &mut Core, index: usize) -> bool {
        let (socket, peer) = match self.listeners.accept(core, index) {
            Accept::Connection(socket, peer) => (socket, peer),
            Accept::Failed => return true,
            Accept::Nothing => return false,
        };
        let accepted = self.listeners.admit(&self.context, core, index, socket, peer);
        if let Some(accepted) = accepted {
            self.tcp.add(&mut self.context, core, accepted);
        }
        true
    }

    /// Reads the sockets of the UDP listeners.
    fn read_datagrams(&mut self, core: &mut Core) {
        self.udp_listeners.read(&mut self.udp, &mut self.context, core);
    }

    /// Opens streams for the waiting flows, as far as that is possible now.
    fn request_waiting(&mut self, core: &mut Core) {
        self.tcp.request_waiting(&mut self.context, core);
        self.udp.request_waiting(&mut self.context, core);
    }

    /// Moves the requests on lost connections to others.
    fn leave(&mut self, core: &mut Core, lost: &[ConnId]) {
        self.tcp.leave(&mut self.context, core, lost);
        self.udp.leave(&mut self.context, core, lost);
    }

    /// Tunnel connections on which flows wait for a response of the server.
    fn awaited(&self, core: &Core) -> HashSet<ConnId> {
        let requested = self.tcp.accepted.requested();
        requested.chain(self.udp.requested()).chain(core.unconfirmed()).collect()
    }

    /// Checks the servers, and requests waiting flows.
    fn watch(&mut self, core: &mut Core) {
        let awaited = match self.context.pool.state.has_connection_per_flow() {
            true => self.awaited(core),
            false => HashSet::new(),
        };
        let lost = self.context.pool.watch(core, &awaited);
        if !lost.is_empty() {
            // Flows without a response are ended so that their clients can try again. A slow origin is no reason
            // for that, since its server answers PINGs.
            for conn in &lost {
                core.end_unconfirmed(*conn);
            }
            self.leave(core, &lost);
        }
        self.update_listeners(core);
        self.request_waiting(core);
    }

    /// Opens and closes the listeners that take no flows while no server is usable.
    fn update_listeners(&mut self, core: &mut Core) {
        let usable = match self.context.pool.availability(core.now()) {
            Availability::Up => true,
            Availability::Down => false,
            Availability::Pending => return,
        };
        self.listeners.on_servers(core, usable);
        self.accept_all(core);
        self.udp_listeners.on_servers(usable);
    }
}

impl Role for ClientRole {
    fn start(&mut self, core: &mut Core) -> io::Result<()> {
        self.context.pool.start(core)?;
        self.udp_listeners.start(core)?;
        self.listeners.start(core);
        Ok(())
    }

    fn on_event(&mut self, core: &mut Core, key: usize, _event: &Event) {
        let key = key as u64;
        if key & direct::KEY_BIT != 0 {
            let failed = self.tcp.direct.as_mut().and_then(|direct| direct.on_event(core, key));
            self.tcp.on_direct_failed(&mut self.context, core, failed);
        } else if key & udp::KEY_BIT != 0 {
            self.udp_listeners.on_event(key);
            self.read_datagrams(core);
        } else if key >= FIRST_FLOW_KEY {
            self.tcp.advance(&mut self.context, core, key);
        } else {
            self.listeners.queue(key as usize);
            self.accept_all(core);
        }
    }

    fn on_wake(&mut self, core: &mut Core) {
        self.context.reload((*self.latest.get()).clone());
        if let Some(direct) = &mut self.tcp.direct {
            direct.set_limits(self.context.limits.clone());
            let failed = direct.on_wake(core);
            self.tcp.on_direct_failed(&mut self.context, core, failed);
        }
        self.tcp.maintain(&mut self.context, core);
    }

    fn on_tunnel_event(&mut self, core: &mut Core, event: TunnelEvent) {
        let Self { context, tcp, udp, .. } = self;
        match event {
            TunnelEvent::Open(_) | TunnelEvent::Writable(_) => self.request_waiting(core),
            TunnelEvent::Established(conn) => {
                context.pool.on_established(core, conn);
                self.update_listeners(core);
                self.request_waiting(core);
            }
            TunnelEvent::Token { conn, token } => context.pool.on_token(conn, token),
            TunnelEvent::Disconnected { conn, reason, .. } => {
                context.pool.on_disconnected(core, conn, &reason);
                self.leave(core, &[conn]);
                self.tcp.on_disconnected(&mut self.context, core, conn);
                self.tcp.maintain(&mut self.context, core);
                self.request_waiting(core);
            }
            TunnelEvent::Response { conn, stream, key, fields } if udp.has(key) => {
                udp.on_response(context, core, (conn, stream, key), &fields);
            }
            TunnelEvent::Response { conn, stream, key, fields } => {
                tcp.on_response(context, core, (conn, stream, key), &fields);
            }
            TunnelEvent::StreamLost { conn, stream, key }
            | TunnelEvent::StreamFinished { conn, stream, key }
                if udp.has(key) =>
            {
                udp.on_stream_lost(context, core, (conn, stream, key));
            }
            TunnelEvent::StreamLost { conn, stream, key }
            | TunnelEvent::StreamFinished { conn, stream, key } => {
                tcp.on_stream_lost(context, core, (conn, stream, key));
            }
            TunnelEvent::DatagramsEnded { conn, key, end } => {
                udp.on_ended(context, core, (conn, key), end);
                self.request_waiting(core);
            }
            TunnelEvent::FlowEnded { conn, end } => {
                if end == FlowEnd::Refused(FlowFailure::ServerFull) {
                    context.pool.on_full(core, conn);
                    self.update_listeners(core);
                }
                self.context.pool.flow_ends(core, conn);
                self.request_waiting(core);
            }
            TunnelEvent::MediumSetUp(medium) => udp.on_medium(context, core, *medium),
            TunnelEvent::MediaOver { conn, stream, number } => {
                udp.on_media_over(context, core, (conn, stream), number);
            }
            TunnelEvent::FlowRetryable(returned) => tcp.on_returned(context, core, *returned),
            TunnelEvent::FlowUnanswered(flow) => {
                answer_unanswered(&mut tcp.accepted, context, core, *flow);
            }
            TunnelEvent::GoingAway(conn) => context.pool.on_going_away(core, conn),
            TunnelEvent::Request { conn, stream, .. } => {
                core.reset_stream(conn, stream, H3_CONNECT_ERROR);
            }
        }
    }

    fn on_tick(&mut self, core: &mut Core, now: Instant) {
        self.tcp.expire(&mut self.context, core, now);
        self.udp.expire(&mut self.context, core, now);
        self.read_datagrams(core);
        self.accept_all(core);
        self.tcp.maintain(&mut self.context, core);
        self.watch(core);
        if let Some(direct) = &mut self.tcp.direct {
            let failed = direct.on_tick(core);
            self.tcp.on_direct_failed(&mut self.context, core, failed);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let deadlines = [
            self.context.pool.next_deadline(),
            self.tcp.direct.as_ref().and_then(Direct::next_deadline),
            self.udp_listeners.next_deadline(),
            self.listeners.next_deadline(),
            self.tcp.accepted.next_deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }

    fn on_panic(&mut self, core: &mut Core, key: usize) {
        // Of flows that bypass the tunnel and of UDP flows nothing is known to be broken: their own
        // time-outs end them.
        let accepted = self.tcp.accepted.remove(key as u64);
        if let Some(Accepted { state: AcceptedState::Requested { conn, stream, .. }, .. }) =
            accepted
        {
            core.reset_stream(conn, stream, H3_CONNECT_ERROR);
        }
    }

    fn drain(&mut self, core: &mut Core) {
        self.listeners.close(core);
        self.udp.drain();
        self.context.pool.drain();
    }

    fn bypassed_flows(&self) -> Vec<FlowInfo> {
        self.tcp.direct.as_ref().map_or_else(Vec::new, Direct::flows)
    }

    fn pending(&self) -> usize {
        let bypassed = self.tcp.direct.as_ref().map_or(0, Direct::len);
        self.tcp.accepted.pending_count() + self.udp.pending() + bypassed
    }
}
