//! The worker's part of MCC: reports the state of managed connections to the Selector, and receives its switch requests
//! (MCC, Section 3.2.1).
//!
//! The paper's agent writes a record per acknowledgement. This agent writes one after all packets of an iteration of
//! the event loop: a record is the state of a path and not a difference.

use std::collections::HashMap;
use std::time::Instant;

use millrace_cc::registry::Algorithm;
use millrace_cc::{PathModel, Time};
use millrace_config::Class;
use millrace_mcc::queue::AgentEnd;
use millrace_mcc::{ConnectionRecord, PathUpdate, Player, SwitchRequest};
use millrace_wire::cmcd::PlayerReport;

use crate::conn_id::ConnId;

/// Index of an algorithm that is not among those of `[mcc]`: it was set manually.
const UNLISTED_ALGORITHM: u16 = u16::MAX;

/// A worker's agent. The Selector identifies connections by their serial number.
#[derive(Debug)]
pub struct Agent {
    queues: AgentEnd,
    algorithms: Vec<Algorithm>,
    /// Origin of the times in updates.
    epoch: Instant,
    /// Whether unmanaged connections are watched too, for the telemetry.
    watches_all: bool,
    /// Slots of the watched connections, by serial number.
    slots: HashMap<u64, usize>,
}

/// What has been reported to the Selector of a connection, and what is still to be reported.
#[derive(Debug)]
pub(crate) struct ReportedState {
    class: Class,
    /// Whether the rules select the algorithm.
    pub(crate) managed: bool,
    /// Acknowledged and lost bytes of the last record.
    reported_bytes: u64,
    /// The class has not been sent to the Selector yet.
    class_pending: bool,
    /// An algorithm that the Selector has not chosen has not been sent to the Selector yet.
    algorithm_pending: bool,
}

impl ReportedState {
    pub(crate) fn new(class: Class, managed: bool) -> Self {
        let algorithm_pending = !managed;
        Self { class, managed, reported_bytes: 0, class_pending: true, algorithm_pending }
    }

    /// Sets the properties of the connection's next flow.
    pub(crate) fn set(&mut self, class: Class, managed: bool) {
        self.class_pending |= class != self.class;
        self.algorithm_pending |= managed != self.managed;
        (self.class, self.managed) = (class, managed);
    }

    pub(crate) fn has_pending_updates(&self) -> bool {
        self.class_pending || self.algorithm_pending
    }

    pub(crate) fn algorithm_was_set(&mut self) {
        self.algorithm_pending = true;
    }
}

impl Agent {
    /// Creates an agent with the worker's ends of the queues. The Selector's time begins at `epoch`.
    pub fn new(queues: AgentEnd, algorithms: Vec<Algorithm>, epoch: Instant) -> Self {
        Self { queues, algorithms, epoch, watches_all: false, slots: HashMap::new() }
    }

    /// Sets whether unmanaged connections are watched too.
    #[must_use]
    pub fn watching_all(self, watches_all: bool) -> Self {
        Self { watches_all, ..self }
    }

    pub(crate) fn watches_all(&self) -> bool {
        self.watches_all
    }

    fn time(&self, now: Instant) -> Time {
        Time::ZERO + now.saturating_duration_since(self.epoch)
    }

    fn index(&self, algorithm: &Algorithm) -> u16 {
        let same = |it: &Algorithm| it.settings() == algorithm.settings();
        let index = self.algorithms.iter().position(same);
        index.and_then(|index| u16::try_from(index).ok()).unwrap_or(UNLISTED_ALGORITHM)
    }

    /// Sends the pending class and algorithm of a connection.
    pub(crate) fn send_pending(
        &mut self,
        id: ConnId,
        watched: &mut ReportedState,
        algorithm: &Algorithm,
        pinned: bool,
        now: Instant,
    ) {
        self.slots.insert(id.serial, id.slot);
        let (connection, now, index) = (id.serial, self.time(now), self.index(algorithm));
        if watched.class_pending {
            let class = watched.class;
            let opened = PathUpdate::Opened { connection, now, class, algorithm: index };
            watched.class_pending = !self.queues.try_send(opened);
        }
        if watched.algorithm_pending && !watched.class_pending {
            // The rules must not change an unmanaged connection.
            let pinned = pinned || !watched.managed;
            let set = PathUpdate::Set { connection, now, algorithm: index, pinned };
            watched.algorithm_pending = !self.queues.try_send(set);
        }
    }

    /// Sends a record of the path if packets were acknowledged or lost since the last record.
    pub(crate) fn report_path(
        &mut self,
        id: ConnId,
        watched: &mut ReportedState,
        path: &PathModel,
        now: Instant,
    ) {
        let bytes = path.delivered_bytes + path.lost_bytes;
        if bytes != watched.reported_bytes {
            watched.reported_bytes = bytes;
            let record = ConnectionRecord::new(id.serial, self.time(now), path);
            self.queues.try_send(PathUpdate::Acked(record));
        }
    }

    pub(crate) fn report_player(&mut self, id: ConnId, report: &PlayerReport, now: Instant) {
        let player = Player {
            buffer_s: report.buffer_ms.map(|ms| ms as f64 / 1e3),
            bitrate_kbps: report.bitrate_kbps.map(|kbps| kbps as f64),
            top_bitrate_kbps: report.top_bitrate_kbps.map(|kbps| kbps as f64),
            starved: report.starved,
            age_s: 0.0,
        };
        let (connection, now) = (id.serial, self.time(now));
        self.queues.try_send(PathUpdate::Player { connection, now, player });
    }

    /// Stops watching a connection.
    pub(crate) fn forget(&mut self, id: ConnId) {
        if self.slots.remove(&id.serial).is_some() {
            // If the update is dropped, the Selector removes the connection after a timeout.
            self.queues.try_send(PathUpdate::Closed { connection: id.serial });
        }
    }

    /// Receives the next switch request, with the slot of its connection and the algorithm.
    pub(crate) fn next_request(&mut self) -> Option<(usize, Algorithm, SwitchRequest)> {
        while let Some(request) = self.queues.next_request() {
            let slot = self.slots.get(&request.connection);
            let algorithm = self.algorithms.get(usize::from(request.algorithm));
            if let (Some(slot), Some(algorithm)) = (slot, algorithm) {
                return Some((*slot, algorithm.clone(), request));
            }
        }
        None
    }
}
