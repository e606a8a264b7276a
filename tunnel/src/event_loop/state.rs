//! The parts of a worker's state, by what they are for.

use std::collections::{HashMap, VecDeque};

use mio::Registry;

use crate::datagrams::{DatagramRun, Unanswered};
use crate::deadlines::Deadlines;
use crate::memory::EvictionLog;
use crate::misdelivered::Inbox;
use crate::outbox::Outbox;
use crate::path_mtu::PathMtuBudget;
use crate::rtsp::AllReserved;
use crate::tunnel_event::TunnelEvent;
use crate::udp::{RecvBuffers, UdpPort};

/// Most that is read from a socket or a stream at a time.
pub(crate) const SCRATCH_BYTES: usize = 256 << 10;

/// The tunnel's sockets, and where sockets are registered.
pub(crate) struct LoopSockets {
    pub(crate) registry: Registry,
    pub(crate) ports: Vec<UdpPort>,
    /// What is about to leave each port.
    pub(crate) outboxes: Vec<Outbox>,
}

/// What a worker does next.
#[derive(Default)]
pub(crate) struct PendingWork {
    /// Slots of connections that are to be driven.
    pub(crate) drive: VecDeque<usize>,
    /// When connections have something to do by themselves.
    pub(crate) deadlines: Deadlines,
    /// When UDP flows no longer wait for missing packets.
    pub(crate) held_packets: Deadlines,
    /// When flows with a capped rate may go on.
    pub(crate) capped_flows: Deadlines,
    /// For the role.
    pub(crate) events: VecDeque<TunnelEvent>,
    /// Streams were read outside of [`super::core::Core::handle_streams`].
    pub(crate) needs_h3_poll: bool,
}

/// Which connection and which worker a datagram is for.
pub(crate) struct Routes {
    /// Slots of connections.
    pub(crate) by_cid: HashMap<Vec<u8>, usize>,
    /// This worker's index, the first byte of its connection IDs.
    pub(crate) worker: u8,
    /// How many workers share the addresses of the ports; 0 where none does.
    pub(crate) sharing_workers: usize,
    /// Datagrams that came to other workers.
    pub(crate) misdelivered: Inbox,
}

/// Buffers that all connections of a worker use in turn.
pub(crate) struct LoopBuffers {
    pub(crate) scratch: Vec<u8>,
    /// For the sockets of UDP flows; the kernel gives it memory once there are some.
    pub(crate) udp_receive: RecvBuffers,
    /// Received datagrams that are about to leave together.
    pub(crate) run: DatagramRun,
}

impl LoopBuffers {
    pub(crate) fn new() -> Self {
        Self {
            scratch: vec![0; SCRATCH_BYTES],
            udp_receive: RecvBuffers::default(),
            run: DatagramRun::default(),
        }
    }
}

/// What a worker grants to peers.
pub(crate) struct WorkerAdmission {
    /// Whether new connections are turned away, because the process is about to end.
    pub(crate) refusing: bool,
    /// A refusal has been logged since the last tick, which bounds the log in a flood.
    pub(crate) refusal_logged: bool,
    /// Clients that were told since the last tick why they are refused.
    pub(crate) refusals_told: usize,
    pub(crate) path_mtu_budget: PathMtuBudget,
    /// UDP flows without a reply so far, those of the role included.
    pub(crate) unanswered: Unanswered,
    /// Ports for media of RTSP connections, at a server.
    pub(crate) reserved: AllReserved,
}

impl WorkerAdmission {
    pub(crate) fn new(unanswered: Unanswered) -> Self {
        Self {
            refusing: false,
            refusal_logged: false,
            refusals_told: 0,
            path_mtu_budget: PathMtuBudget::default(),
            unanswered,
            reserved: AllReserved::new(),
        }
    }
}

/// What a worker does about memory.
pub(crate) struct WorkerMemory {
    /// How large streams' windows may become.
    pub(crate) window_limit: u64,
    /// Evictions above the cap of the process.
    pub(crate) process_evictions: EvictionLog,
    /// Evictions above the limit of one client.
    pub(crate) client_evictions: EvictionLog,
}

impl Default for WorkerMemory {
    fn default() -> Self {
        Self {
            window_limit: u64::MAX,
            process_evictions: EvictionLog::default(),
            client_evictions: EvictionLog::default(),
        }
    }
}
