//! A worker's part of MCC: it says what happens on the connections whose algorithm is selected, and does
//! what their Selector orders (MCC, Section 3.2.1).
//!
//! The paper's agent writes a record with each acknowledgement. This one does so after all packets that
//! a turn of the loop has received: a record is the state of a path and not a difference.

use std::collections::HashMap;
use std::time::Instant;

use millrace_cc::registry::Algorithm;
use millrace_cc::{PathModel, Time};
use millrace_config::Class;
use millrace_mcc::pipe::AgentEnd;
use millrace_mcc::{News, Order, Player, Record};
use millrace_wire::cmcd::PlayerReport;

use crate::conn::ConnId;
use crate::core::Core;

/// What drives a connection that is not among the candidates: set by hand.
const NO_CANDIDATE: u16 = u16::MAX;

/// See the module. Connections are known to the Selector by their serial number.
#[derive(Debug)]
pub struct Agent {
    pipes: AgentEnd,
    candidates: Vec<Algorithm>,
    /// Where time begins for the Selector too.
    epoch: Instant,
    /// Whether connections are watched too whose algorithm is not selected, for the telemetry.
    watches_all: bool,
    /// Of the connections that are watched.
    slots: HashMap<u64, usize>,
}

/// What the Selector has been told of a connection.
#[derive(Debug)]
pub(crate) struct Watched {
    class: Class,
    /// Whether the rules select.
    pub(crate) is_selected: bool,
    /// Of its path: acknowledged and lost bytes.
    told_bytes: u64,
    /// Its beginning or class has found no room in the pipe yet.
    class_untold: bool,
    /// The same of an algorithm that the Selector has not chosen.
    algorithm_untold: bool,
}

impl Watched {
    pub(crate) fn new(class: Class, is_selected: bool) -> Self {
        let algorithm_untold = !is_selected;
        Self { class, is_selected, told_bytes: 0, class_untold: true, algorithm_untold }
    }

    /// The next flow is of this kind.
    pub(crate) fn set(&mut self, class: Class, is_selected: bool) {
        self.class_untold |= class != self.class;
        self.algorithm_untold |= is_selected != self.is_selected;
        (self.class, self.is_selected) = (class, is_selected);
    }

    pub(crate) fn is_untold(&self) -> bool {
        self.class_untold || self.algorithm_untold
    }

    pub(crate) fn algorithm_was_set(&mut self) {
        self.algorithm_untold = true;
    }
}

impl Agent {
    /// At the worker's ends of the pipes. The Selector's time began at `epoch`.
    pub fn new(pipes: AgentEnd, candidates: Vec<Algorithm>, epoch: Instant) -> Self {
        Self { pipes, candidates, epoch, watches_all: false, slots: HashMap::new() }
    }

    /// Watches connections too whose algorithm is not selected.
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

    fn place(&self, algorithm: &Algorithm) -> u16 {
        let same = |it: &Algorithm| it.settings() == algorithm.settings();
        let place = self.candidates.iter().position(same);
        place.and_then(|place| u16::try_from(place).ok()).unwrap_or(NO_CANDIDATE)
    }

    /// Says what is not known yet of a connection.
    pub(crate) fn introduce(
        &mut self,
        id: ConnId,
        watched: &mut Watched,
        algorithm: &Algorithm,
        pinned: bool,
        now: Instant,
    ) {
        self.slots.insert(id.serial, id.slot);
        let (connection, now, place) = (id.serial, self.time(now), self.place(algorithm));
        if watched.class_untold {
            let class = watched.class;
            let opened = News::Opened { connection, now, class, algorithm: place };
            watched.class_untold = !self.pipes.tell(opened);
        }
        if watched.algorithm_untold && !watched.class_untold {
            // Rules leave alone what they don't select.
            let pinned = pinned || !watched.is_selected;
            let set = News::Set { connection, now, algorithm: place, pinned };
            watched.algorithm_untold = !self.pipes.tell(set);
        }
    }

    /// Says what the path is like, if anything has come back from it since.
    pub(crate) fn hear(
        &mut self,
        id: ConnId,
        watched: &mut Watched,
        path: &PathModel,
        now: Instant,
    ) {
        let bytes = path.delivered_bytes + path.lost_bytes;
        if bytes != watched.told_bytes {
            watched.told_bytes = bytes;
            let record = Record::new(id.serial, self.time(now), path);
            self.pipes.tell(News::Acked(record));
        }
    }

    fn hear_player(&mut self, id: ConnId, report: &PlayerReport, now: Instant) {
        let player = Player {
            buffer_s: report.buffer_ms.map(|ms| ms as f64 / 1e3),
            bitrate_kbps: report.bitrate_kbps.map(|kbps| kbps as f64),
            top_bitrate_kbps: report.top_bitrate_kbps.map(|kbps| kbps as f64),
            starved: report.starved,
            age_s: 0.0,
        };
        self.pipes.tell(News::Player { connection: id.serial, now: self.time(now), player });
    }

    /// Says that it is of no interest any more.
    pub(crate) fn forget(&mut self, id: ConnId) {
        if self.slots.remove(&id.serial).is_some() {
            // Without room the Selector forgets it by itself.
            self.pipes.tell(News::Closed { connection: id.serial });
        }
    }

    /// The next order, with the slot of its connection and the algorithm.
    fn order(&mut self) -> Option<(usize, Algorithm, Order)> {
        while let Some(order) = self.pipes.order() {
            let slot = self.slots.get(&order.connection);
            let algorithm = self.candidates.get(usize::from(order.algorithm));
            if let (Some(slot), Some(algorithm)) = (slot, algorithm) {
                return Some((*slot, algorithm.clone(), order));
            }
        }
        None
    }
}

impl Core {
    /// Tells the Selector what a player has said of itself, if it has.
    pub(crate) fn tell_selector_of_player(&mut self, flow_slot: usize) {
        let (Some(agent), Some(flow)) = (&mut self.agent, self.flows.get_mut(flow_slot)) else {
            return;
        };
        let watched =
            self.conns.get(flow.conn.slot).is_some_and(|conn| conn.control.watched.is_some());
        if let Some(report) = flow.player_news().filter(|_| watched) {
            agent.hear_player(flow.conn, &report, self.now);
        }
    }

    /// Does what the Selector has ordered meanwhile.
    pub(crate) fn obey_selector(&mut self) {
        while let Some((slot, algorithm, order)) = self.agent.as_mut().and_then(Agent::order) {
            let conn = self.conns.get_mut(slot);
            if let Some(conn) = conn.filter(|conn| conn.id.serial == order.connection)
                && conn.follow(&algorithm, order.anew, self.now)
            {
                self.counters.selected.add(1);
                // Another window may let more be sent now.
                self.mark_dirty(slot);
            }
        }
    }
}
