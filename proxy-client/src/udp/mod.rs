//! UDP through the tunnel: flows, and the listeners of mode `udp`, at which each source address is
//! one.
//!
//! A flow is asked for by CONNECT-UDP (RFC 9298) when its first datagram comes. Until the answer is
//! there, a few datagrams wait. Whoever has a socket of his own can have a flow for it too, with
//! [`ClientRole::open_udp`].

mod doors;
mod flows;
mod media;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use millrace_tunnel::conn::ConnId;
use millrace_tunnel::datagrams::{DatagramsId, Near, Queue};
use millrace_tunnel::flow_admission::Admitted;
use millrace_tunnel::rtsp::Medium;
use millrace_tunnel::udp::RecvBuffers;
use millrace_wire::Destination;

pub use doors::UdpDoor;

#[cfg(doc)]
use crate::role::ClientRole;

/// Tells the tokens of UDP listeners from others.
pub const KEY_BIT: u64 = 1 << 47;

/// Bytes that may wait for the answer, for each flow: the first packets of most protocols.
const WAITING_BYTES: usize = 16 << 10;
/// How long the datagrams of a flow that was refused are dropped before it is asked for again: a
/// sender that does not hear of it must not make a request of each.
const REFUSED_FOR: Duration = Duration::from_secs(1);

/// A UDP flow that is wanted.
#[derive(Debug)]
pub struct UdpOpen {
    /// Where to.
    pub destination: Destination,
    /// Where what comes back goes, and where datagrams come from if it is a socket of the flow's
    /// own; else [`ClientRole::send_udp`] brings them.
    pub near: Near,
    /// For whom.
    pub client: SocketAddr,
    /// The number of its lane.
    pub lane: usize,
    /// The medium that it carries, if an RTSP flow has set it up: it has to be on the connection of
    /// that one.
    pub medium: Option<Medium>,
    /// The listener at which its client is, if there is one.
    pub door: Option<usize>,
}

#[derive(Debug)]
enum Stage {
    /// Waits for a connection that can take the request.
    Waiting,
    /// The request is on its way.
    Requested { conn: ConnId, stream: u64 },
    /// It runs.
    Open(DatagramsId),
    /// It can't be had now.
    Refused,
}

#[derive(Debug)]
struct UdpFlow {
    stage: Stage,
    destination: Destination,
    client: SocketAddr,
    lane: usize,
    /// Until it runs, or is refused.
    near: Option<Near>,
    /// Until it runs. One that was refused keeps its place among the unanswered ones, which bounds
    /// how many there are.
    admission: Option<Admitted>,
    /// For as long as the flow may be asked for.
    medium: Option<Medium>,
    /// The listener at which its client is, if there is one.
    door: Option<usize>,
    queue: Queue,
    /// When patience ends.
    deadline: Instant,
}

/// All UDP flows of a worker.
#[derive(Default)]
pub struct UdpFlows {
    doors: Vec<UdpDoor>,
    flows: HashMap<u64, UdpFlow>,
    by_source: HashMap<(usize, SocketAddr), u64>,
    buffers: Option<RecvBuffers>,
    /// A server without CONNECT-UDP has been complained about.
    complained: bool,
    draining: bool,
}

impl UdpFlows {
    /// Flows that have not begun yet.
    pub fn pending(&self) -> usize {
        let pending = |it: &&UdpFlow| matches!(it.stage, Stage::Waiting | Stage::Requested { .. });
        self.flows.values().filter(pending).count()
    }

    /// Connections on which a request waits for its answer.
    pub fn requested(&self) -> impl Iterator<Item = ConnId> {
        self.flows.values().filter_map(|it| match it.stage {
            Stage::Requested { conn, .. } => Some(conn),
            _ => None,
        })
    }

    /// Listeners of mode `udp`.
    pub fn doors(&self) -> usize {
        self.doors.len()
    }

    /// Whether `key` is that of a flow here.
    pub fn has(&self, key: u64) -> bool {
        self.flows.contains_key(&key)
    }

    /// No new flows from now on.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// When there is something to do without an event.
    pub fn next_deadline(&self) -> Option<Instant> {
        // What was left in a socket is read at once.
        self.doors.iter().any(|door| door.readable).then(Instant::now)
    }

    fn remove(&mut self, key: u64) {
        if let Some(flow) = self.flows.remove(&key)
            && let Some(door) = flow.door
        {
            self.by_source.remove(&(door, flow.client));
        }
    }
}
