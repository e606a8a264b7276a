//! The UDP flows of a worker.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use millrace_tunnel::admitted::Admitted;
use millrace_tunnel::conn_id::ConnId;
use millrace_tunnel::datagrams::{DatagramsId, LocalSocket, Queue, UdpContent};
use millrace_tunnel::rtsp::Medium;
use millrace_wire::Destination;

/// Bytes per flow that may wait for the response: the first packets of most protocols.
pub(super) const MAX_WAITING_BYTES: usize = 16 << 10;
/// How long the datagrams of a refused flow are dropped before it is requested again: the sender does not learn of
/// the refusal, and must not cause a request with each datagram.
pub(super) const REFUSAL_HOLD_DOWN: Duration = Duration::from_secs(1);

/// Parameters of a UDP flow to open.
#[derive(Debug)]
pub(crate) struct UdpOpen {
    /// Destination of the flow.
    pub(crate) destination: Destination,
    /// Where the flow's datagrams to the client go. If it is a socket of the flow's own, its datagrams
    /// come from there too; otherwise from [`UdpFlows::send`].
    pub(crate) socket: LocalSocket,
    /// Address of the client.
    pub(crate) client: SocketAddr,
    /// Number of its connection group.
    pub(crate) group: usize,
    /// The medium that it carries, if an RTSP flow has set it up. It uses the connection of that RTSP flow.
    pub(crate) medium: Option<Medium>,
    /// What it carries.
    pub(crate) content: UdpContent,
    /// Where its datagrams come from, if a listener takes them.
    pub(crate) source: Option<UdpSource>,
}

/// What the datagrams of one flow at a listener have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct UdpSource {
    /// Number of the listener.
    pub(crate) listener: usize,
    /// Address of the client.
    pub(crate) client: SocketAddr,
    /// The original destination of intercepted datagrams; `None` where all datagrams of the listener have the same.
    pub(crate) destination: Option<SocketAddr>,
}

#[derive(Debug)]
pub(crate) enum UdpFlowState {
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
pub(crate) struct InterceptedUdpFlow {
    pub(crate) state: UdpFlowState,
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
    pub(crate) content: UdpContent,
    /// Where its datagrams come from, if a listener takes them.
    pub(crate) source: Option<UdpSource>,
    pub(crate) queue: Queue,
    /// When the current state times out.
    pub(crate) deadline: Instant,
}

/// All UDP flows of a worker.
#[derive(Debug, Default)]
pub(crate) struct UdpFlows {
    pub(super) flows: HashMap<u64, InterceptedUdpFlow>,
    /// The keys of the flows whose datagrams a listener takes.
    by_source: HashMap<UdpSource, u64>,
    /// Whether a server without CONNECT-UDP has been logged.
    pub(super) failure_logged: bool,
    pub(super) draining: bool,
}

impl UdpFlows {
    /// Number of flows that are not established yet.
    pub(crate) fn pending(&self) -> usize {
        let pending = |it: &&InterceptedUdpFlow| {
            matches!(it.state, UdpFlowState::Waiting | UdpFlowState::Requested { .. })
        };
        self.flows.values().filter(pending).count()
    }

    /// Tunnel connections on which a request waits for its response.
    pub(crate) fn requested(&self) -> impl Iterator<Item = ConnId> {
        self.flows.values().filter_map(|it| match it.state {
            UdpFlowState::Requested { conn, .. } => Some(conn),
            _ => None,
        })
    }

    /// Whether `key` is that of a UDP flow.
    pub(crate) fn has(&self, key: u64) -> bool {
        self.flows.contains_key(&key)
    }

    /// The key of the flow whose datagrams come from `source`.
    pub(crate) fn of_source(&self, source: &UdpSource) -> Option<u64> {
        self.by_source.get(source).copied()
    }

    /// Takes no new flows from now on.
    pub(crate) fn drain(&mut self) {
        self.draining = true;
    }

    pub(super) fn insert(&mut self, key: u64, flow: InterceptedUdpFlow) {
        if let Some(source) = flow.source {
            self.by_source.insert(source, key);
        }
        self.flows.insert(key, flow);
    }

    pub(super) fn remove(&mut self, key: u64) {
        if let Some(flow) = self.flows.remove(&key)
            && let Some(source) = flow.source
        {
            self.by_source.remove(&source);
        }
    }
}
