//! The UDP flows of a worker.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use millrace_tunnel::admitted::Admitted;
use millrace_tunnel::conn_id::ConnId;
use millrace_tunnel::datagrams::{DatagramsId, LocalSocket, Queue};
use millrace_tunnel::event_loop::Core;
use millrace_tunnel::rtsp::Medium;
use millrace_tunnel::udp::RecvBuffers;
use millrace_wire::Destination;
use mio::Token;

use super::listener::UdpListener;
use crate::intercept::DatagramBuffer;

/// Distinguishes the tokens of UDP listeners from others.
pub const KEY_BIT: u64 = 1 << 47;

/// Bytes per flow that may wait for the response: the first packets of most protocols.
pub(crate) const WAITING_BYTES: usize = 16 << 10;
/// How long the datagrams of a refused flow are dropped before it is requested again: the sender does not learn of
/// the refusal, and must not cause a request with each datagram.
pub(crate) const REFUSED_FOR: Duration = Duration::from_secs(1);

/// Parameters of a UDP flow to open.
#[derive(Debug)]
pub struct UdpOpen {
    /// Destination of the flow.
    pub destination: Destination,
    /// Where the flow's datagrams to the client go. If it is a socket of the flow's own, its datagrams
    /// come from there too; otherwise from `ClientRole::send_udp`.
    pub socket: LocalSocket,
    /// Address of the client.
    pub client: SocketAddr,
    /// Number of its connection group.
    pub group: usize,
    /// The medium that it carries, if an RTSP flow has set it up. It uses the connection of that RTSP flow.
    pub medium: Option<Medium>,
    /// Where its datagrams come from, if a listener takes them.
    pub source: Option<UdpSource>,
}

/// What the datagrams of one flow at a listener have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UdpSource {
    /// Number of the listener.
    pub listener: usize,
    /// Address of the client.
    pub client: SocketAddr,
    /// The original destination of intercepted datagrams; `None` where all datagrams of the listener have the same.
    pub destination: Option<SocketAddr>,
}

#[derive(Debug)]
pub(crate) enum Stage {
    /// Waits for a connection that can take the request.
    Waiting,
    /// The request has been sent.
    Requested { conn: ConnId, stream: u64 },
    /// The flow is established.
    Open(DatagramsId),
    /// The flow has been refused; its datagrams are dropped until the deadline.
    Refused,
}

#[derive(Debug)]
pub(crate) struct UdpFlow {
    pub(crate) stage: Stage,
    pub(crate) destination: Destination,
    pub(crate) client: SocketAddr,
    pub(crate) group: usize,
    /// Until it is established or refused.
    pub(crate) socket: Option<LocalSocket>,
    /// Until it is established. A refused flow keeps its place among the unanswered ones, which bounds
    /// their number.
    pub(crate) admission: Option<Admitted>,
    /// Until the flow is established or refused.
    pub(crate) medium: Option<Medium>,
    /// Where its datagrams come from, if a listener takes them.
    pub(crate) source: Option<UdpSource>,
    pub(crate) queue: Queue,
    /// When the current stage times out.
    pub(crate) deadline: Instant,
}

/// All UDP flows of a worker.
#[derive(Default)]
pub struct UdpFlows {
    pub(crate) listeners: Vec<UdpListener>,
    pub(crate) flows: HashMap<u64, UdpFlow>,
    pub(crate) by_source: HashMap<UdpSource, u64>,
    pub(crate) buffers: Option<RecvBuffers>,
    pub(crate) intercepted: Option<DatagramBuffer>,
    /// Whether a server without CONNECT-UDP has been logged.
    pub(crate) failure_logged: bool,
    pub(crate) draining: bool,
}

impl UdpFlows {
    /// Takes flows at these listeners from [`UdpFlows::start`] on.
    pub fn new(listeners: Vec<UdpListener>) -> Self {
        Self { listeners, ..Self::default() }
    }

    /// Registers the listeners with the event loop.
    ///
    /// # Errors
    /// A socket can't be registered.
    pub fn start(&mut self, core: &Core) -> io::Result<()> {
        for (index, listener) in self.listeners.iter_mut().enumerate() {
            let token: Token = Core::role_token((KEY_BIT | index as u64) as usize);
            listener.register(core.registry(), token)?;
        }
        Ok(())
    }

    /// Says whether a server is usable.
    pub fn on_servers(&mut self, usable: bool) {
        for listener in &mut self.listeners {
            listener.on_servers(usable);
        }
    }

    /// Number of flows that are not established yet.
    pub fn pending(&self) -> usize {
        let pending = |it: &&UdpFlow| matches!(it.stage, Stage::Waiting | Stage::Requested { .. });
        self.flows.values().filter(pending).count()
    }

    /// Tunnel connections on which a request waits for its response.
    pub fn requested(&self) -> impl Iterator<Item = ConnId> {
        self.flows.values().filter_map(|it| match it.stage {
            Stage::Requested { conn, .. } => Some(conn),
            _ => None,
        })
    }

    /// Number of listeners that take datagrams.
    pub fn listener_count(&self) -> usize {
        self.listeners.len()
    }

    /// Whether `key` is that of a UDP flow.
    pub fn has(&self, key: u64) -> bool {
        self.flows.contains_key(&key)
    }

    /// Takes no new flows from now on.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// When there is something to do without an event.
    pub fn next_deadline(&self) -> Option<Instant> {
        // Datagrams that wait in a socket are read at once.
        self.listeners.iter().any(|listener| listener.readable).then(Instant::now)
    }

    pub(crate) fn remove(&mut self, key: u64) {
        if let Some(flow) = self.flows.remove(&key)
            && let Some(source) = flow.source
        {
            self.by_source.remove(&source);
        }
    }
}
