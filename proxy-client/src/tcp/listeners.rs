//! The TCP and Unix listeners of a worker, and the admission of the connections that they accept.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use millrace_admission::flow_owner::FlowOwner;
use millrace_admission::peer_limits::HandshakePlace;
use millrace_tunnel::event_loop::Core;
use millrace_tunnel::flow_trace::SetupStep;
use millrace_tunnel::metrics::{Drop, FlowFailure, Label};
use millrace_tunnel::shared::Admission;
use millrace_tunnel::socket::Socket;
use socket2::SockRef;
use tracing::field;

use crate::accept_queue::{AcceptQueue, is_out_of_resources};
use crate::accepted::{Accepted, AcceptedState};
use crate::flow_context::{FlowContext, log_refusal};
use crate::intercept::{Handshake, Mode, OriginalDestinationError};
use crate::listener::{Listener, ListenerView, is_transient};
use crate::server_set::ServerSet;

/// Connections accepted from a listener before other listeners have their turn.
pub(crate) const MAX_ACCEPTS_PER_TURN: usize = 256;

/// The listeners of a worker that accept connections.
pub(crate) struct TcpListeners {
    /// By their keys.
    listeners: Vec<Listener>,
    /// Those with connections to accept.
    queue: AcceptQueue,
}

/// Result of [`TcpListeners::accept`].
pub(crate) enum Accept {
    /// A connection; the address is that of a TCP peer.
    Connection(Socket, Option<SocketAddr>),
    /// A connection has failed; there may be others.
    Failed,
    /// There are no connections, or none can be accepted now.
    Nothing,
}

impl TcpListeners {
    /// They accept connections from [`TcpListeners::start`] on.
    pub(crate) fn new(listeners: Vec<Listener>) -> Self {
        Self { listeners, queue: AcceptQueue::default() }
    }

    /// What flows need of each listener after it has been closed.
    pub(crate) fn views(&self) -> Vec<ListenerView> {
        self.listeners.iter().map(Listener::view).collect()
    }

    /// Registers the listeners with the event loop.
    pub(crate) fn start(&mut self, core: &Core) {
        for (index, listener) in self.listeners.iter_mut().enumerate() {
            // A listener that withdraws does so once no server is known to be usable.
            listener.set_open(core, Core::role_token(index), true);
        }
    }

    /// Opens or closes the listeners that take no flows while no server is usable.
    pub(crate) fn on_servers(&mut self, core: &Core, usable: bool) {
        for (index, listener) in self.listeners.iter_mut().enumerate() {
            if !listener.withdraws() || listener.is_open() == usable {
                continue;
            }
            listener.set_open(core, Core::role_token(index), usable);
            // Connections may wait from before the change.
            self.queue.add(index);
        }
    }

    /// A listener may have connections to accept.
    pub(crate) fn queue(&mut self, index: usize) {
        self.queue.add(index);
    }

    /// Takes the listeners to accept from now.
    pub(crate) fn take_queued(&mut self, now: Instant) -> Vec<usize> {
        self.queue.take(now)
    }

    /// When to accept connections again after a pause.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.queue.next_deadline()
    }

    /// Accepts a connection. Without descriptors or memory all listeners pause.
    pub(crate) fn accept(&mut self, core: &Core, index: usize) -> Accept {
        let Some(listener) = self.listeners.get(index) else { return Accept::Nothing };
        match listener.accept() {
            Ok((socket, peer)) => Accept::Connection(socket, peer),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Accept::Nothing,
            Err(error) if is_transient(&error) => Accept::Failed,
            // It refuses connections now, and earlier ones have been accepted.
            Err(_) if !listener.is_open() => Accept::Nothing,
            Err(error) => {
                if is_out_of_resources(&error) {
                    core.shared.metrics.drops.of(Drop::DescriptorLimit).inc();
                }
                tracing::error!(%error, "can't accept connections; trying again");
                self.queue.add(index);
                self.queue.pause(core.now());
                Accept::Nothing
            }
        }
    }

    /// Begins the handshake of an accepted connection. A connection that is not admitted is reset.
    pub(crate) fn admit(
        &self,
        context: &FlowContext,
        core: &mut Core,
        index: usize,
        socket: Socket,
        peer: Option<SocketAddr>,
    ) -> Option<Accepted> {
        let listener = &self.listeners[index];
        let counts_for = context.accounted_listener(index);
        let Some(start) = HandshakeStart::new(listener, counts_for, core, &socket, peer) else {
            socket.reset();
            return None;
        };
        let HandshakeStart { admission, handshake_place, handshake } = start;
        Some(Accepted {
            socket,
            handshake: handshake.with_credentials(context.credentials(index)),
            bytes: Vec::new(),
            client: peer,
            listener: index,
            group: context.classes(index).default_group(),
            follows_rtsp: false,
            handshake_place,
            admission,
            deadline: core.now() + context.limits.handshake_timeout,
            state: AcceptedState::Handshake,
            offers: 0,
            refused_by: ServerSet::default(),
        })
    }

    /// Closes all listeners for good.
    pub(crate) fn close(&mut self, core: &Core) {
        for listener in self.listeners.drain(..) {
            listener.close(core);
        }
        self.queue.clear();
    }
}

/// What an accepted connection gets before its handshake.
struct HandshakeStart {
    admission: Admission,
    handshake_place: Option<HandshakePlace>,
    handshake: Handshake,
}

impl HandshakeStart {
    /// `None` for a connection that is refused. Its flow counts for the listener `counts_for`.
    fn new(
        listener: &Listener,
        counts_for: Option<usize>,
        core: &mut Core,
        socket: &Socket,
        peer: Option<SocketAddr>,
    ) -> Option<Self> {
        if !listener.trusts(peer) {
            core.shared.metrics.drops.of(Drop::UntrustedProxy).inc();
            let (peer, listener) = (peer.map(field::display), listener.address.map(field::display));
            let advice = "add its network to trusted_proxies";
            tracing::warn!(peer, listener, advice, "PROXY header not accepted");
            return None;
        }
        let owner = FlowOwner {
            // Behind a proxy the PROXY header names the viewer.
            viewer: peer.filter(|_| listener.mode != Mode::ProxyProtocol).map(|peer| peer.ip()),
            listener: counts_for,
            client: None,
        };
        let mut trace = core.shared.begin_trace(None, core.now());
        let admitted = core.shared.admit_flow(&owner).inspect_err(|refusal| {
            if let Some(trace) = &mut trace {
                trace.finish(Some(Drop::from(*refusal).as_str()), core.now());
            }
            log_refusal(core, peer, *refusal);
        });
        let mut admission = admitted.ok()?;
        admission.trace = trace;
        admission.begin_step(SetupStep::Accept, core.now());
        let place = |peer| core.shared.peers.begin_handshake(peer, None, core.now());
        let Ok(handshake_place) = peer.map(place).transpose() else {
            // Not logged: a flood would fill the log too.
            core.shared.metrics.drops.of(Drop::PeerHandshakes).inc();
            return None;
        };
        match begin_handshake(listener, socket) {
            Ok(handshake) => Some(Self { admission, handshake_place, handshake }),
            Err(error) => {
                tracing::warn!(peer = peer.map(field::display), %error, "connection refused");
                core.shared.metrics.flows_finished.of(FlowFailure::Protocol.into()).inc();
                None
            }
        }
    }
}

fn begin_handshake(
    listener: &Listener,
    socket: &Socket,
) -> Result<Handshake, OriginalDestinationError> {
    match socket {
        Socket::Tcp(tcp) => {
            // Without it the flow works, with more delay.
            let _ = SockRef::from(tcp.stream()).set_tcp_nodelay(true);
            Handshake::begin(&listener.mode, tcp.stream(), listener.address)
        }
        Socket::Unix(unix) => {
            // TCP sockets inherit it from their listener, Unix sockets don't.
            let _ = SockRef::from(unix).set_out_of_band_inline(true);
            Handshake::begin(&listener.mode, unix, listener.address)
        }
    }
}
