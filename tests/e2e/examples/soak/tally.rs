//! What all clients and the origin have seen, and whether both ends of a flow agree.

use std::collections::HashMap;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::exchange::{Course, Ending};
use crate::windows::Windows;

/// Problems that are told; more are counted only.
const MAX_REPORTED_PROBLEMS: usize = 30;
/// A flow whose other end has said nothing for this long will not any more.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(300);

/// The end that reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Client,
    Origin,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    course: Course,
    started: Instant,
    ended: Instant,
}

struct Flow {
    listener: String,
    begun: Instant,
    at_origin: bool,
    client: Option<Seen>,
    origin: Option<Seen>,
}

/// Counts of the flows of a soak, and the problems found.
pub struct Tally {
    pub windows: Windows,
    start: Instant,
    flows: Mutex<HashMap<u64, Flow>>,
    opened: AtomicU64,
    whole: AtomicU64,
    client_resets: AtomicU64,
    origin_resets: AtomicU64,
    cut: AtomicU64,
    refused: AtomicU64,
    silent: AtomicU64,
    down_bytes: AtomicU64,
    up_bytes: AtomicU64,
    wrong: AtomicU64,
    told: Mutex<Vec<String>>,
    /// Connections that the origin holds.
    pub at_origin: AtomicUsize,
}

impl Tally {
    pub fn new() -> Self {
        Self {
            windows: Windows::default(),
            start: Instant::now(),
            flows: Mutex::default(),
            opened: AtomicU64::new(0),
            whole: AtomicU64::new(0),
            client_resets: AtomicU64::new(0),
            origin_resets: AtomicU64::new(0),
            cut: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            silent: AtomicU64::new(0),
            down_bytes: AtomicU64::new(0),
            up_bytes: AtomicU64::new(0),
            wrong: AtomicU64::new(0),
            told: Mutex::default(),
            at_origin: AtomicUsize::new(0),
        }
    }

    /// A client begins a flow at a listener.
    pub fn open(&self, id: u64, listener: String) {
        self.opened.fetch_add(1, Ordering::Relaxed);
        let flow =
            Flow { listener, begun: Instant::now(), at_origin: false, client: None, origin: None };
        self.flows.lock().unwrap().insert(id, flow);
    }

    /// The flow never came to be.
    pub fn refuse(&self, id: u64, started: Instant, why: &str) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        let listener =
            self.flows.lock().unwrap().remove(&id).map_or(String::new(), |flow| flow.listener);
        if !self.windows.excuse(started, Instant::now()) {
            self.wrong(format!("flow {id:x} by {listener}: refused ({why}) while all was well"));
        }
    }

    /// The client left without a word.
    pub fn leave_silently(&self, id: u64) {
        self.silent.fetch_add(1, Ordering::Relaxed);
        self.flows.lock().unwrap().remove(&id);
    }

    /// The origin has been told what to do with it.
    pub fn arrive(&self, id: u64) {
        if let Some(flow) = self.flows.lock().unwrap().get_mut(&id) {
            flow.at_origin = true;
        }
    }

    /// One end is done with a flow.
    pub fn end(&self, id: u64, side: Side, started: Instant, course: Result<Course, String>) {
        let course = match course {
            Ok(course) => course,
            Err(problem) => {
                let listener = self.flows.lock().unwrap().remove(&id).map(|flow| flow.listener);
                let listener = listener.unwrap_or_default();
                let ran = started.elapsed();
                return self
                    .wrong(format!("flow {id:x} by {listener}, {side:?}, {ran:.1?}: {problem}"));
            }
        };
        if side == Side::Client {
            self.down_bytes.fetch_add(course.received, Ordering::Relaxed);
        } else {
            self.up_bytes.fetch_add(course.received, Ordering::Relaxed);
        }
        let seen = Seen { course, started, ended: Instant::now() };
        let mut flows = self.flows.lock().unwrap();
        let Some(flow) = flows.get_mut(&id) else { return };
        match side {
            Side::Client => flow.client = Some(seen),
            Side::Origin => flow.origin = Some(seen),
        }
        // A flow that never got to the origin ends with its client.
        let alone = side == Side::Client && !flow.at_origin;
        let settled = alone && course.ending != Ending::Whole;
        if !(settled || flow.client.is_some() && flow.origin.is_some()) {
            return;
        }
        let flow = flows.remove(&id);
        drop(flows);
        if let Some(flow) = flow {
            self.settle(id, &flow);
        }
    }

    fn settle(&self, id: u64, flow: &Flow) {
        let of = |seen: &Option<Seen>| seen.map(|seen| seen.course.ending);
        let (client, origin) = (of(&flow.client), of(&flow.origin));
        let counter = match (client, origin) {
            (Some(Ending::Reset), _) => &self.client_resets,
            (_, Some(Ending::Reset)) => &self.origin_resets,
            (Some(Ending::Whole), Some(Ending::Whole)) => &self.whole,
            _ => &self.cut,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        for (this, other, name) in
            [(flow.client, flow.origin, "client"), (flow.origin, flow.client, "origin")]
        {
            let Some(this) = this else { continue };
            let reset_by_other = other.is_some_and(|other| other.course.ending == Ending::Reset);
            let said_end = other.is_some_and(|other| other.course.said_end);
            let tell = |what: &str| {
                let ran = this.ended - this.started;
                let (client, origin) = (flow.client, flow.origin);
                let (client, origin) = (client.map(|it| it.course), origin.map(|it| it.course));
                self.wrong(format!(
                    "flow {id:x} by {}: the {name} saw {what} after {ran:.1?}: {client:?}, \
                     {origin:?}",
                    flow.listener
                ));
            };
            match this.course.ending {
                Ending::Whole if reset_by_other && !said_end => {
                    tell("an orderly end that was a reset at the other side");
                }
                Ending::Cut(_)
                    if !reset_by_other && !self.windows.excuse(this.started, this.ended) =>
                {
                    tell("a cut while all was well");
                }
                _ => {}
            }
        }
    }

    /// Flows of which one end only has been heard for long, or at the end all of them.
    pub fn forget(&self, all: bool) {
        let mut flows = self.flows.lock().unwrap();
        let mut unended = Vec::new();
        flows.retain(|id, flow| {
            let old = |seen: &Seen| all || seen.ended.elapsed() > FORGOTTEN_AFTER;
            match (&flow.client, &flow.origin) {
                (Some(client), _) if old(client) => {
                    // The origin must have been there, for a whole flow.
                    if client.course.ending == Ending::Whole {
                        unended.push(format!(
                            "flow {id:x} by {}: no end at the origin",
                            flow.listener
                        ));
                    }
                    false
                }
                (_, Some(origin)) if old(origin) => false,
                (None, None) => !all && flow.begun.elapsed() < 2 * FORGOTTEN_AFTER,
                _ => true,
            }
        });
        drop(flows);
        unended.into_iter().for_each(|problem| self.wrong(problem));
    }

    /// Something that must never be.
    pub fn wrong(&self, problem: String) {
        self.wrong.fetch_add(1, Ordering::Relaxed);
        let mut told = self.told.lock().unwrap();
        if told.len() < MAX_REPORTED_PROBLEMS {
            println!("WRONG at {:.1} s: {problem}", self.start.elapsed().as_secs_f64());
            told.push(problem);
        }
    }

    /// Tells it all once more: at the end of a log it is found, also if the log's beginning is not kept.
    pub fn tell_wrongs(&self) {
        self.told.lock().unwrap().iter().for_each(|problem| println!("soak: wrong: {problem}"));
    }

    /// How much was.
    pub fn wrongs(&self) -> u64 {
        self.wrong.load(Ordering::Relaxed)
    }

    /// Too little to mean anything.
    pub fn judge_load(&self, seconds: u64, clients: usize) {
        let whole = self.whole.load(Ordering::Relaxed);
        // A fiftieth of what an idle machine of two cores does.
        let least = (seconds * clients as u64 / 250).max(1);
        if whole < least {
            self.wrong(format!("{whole} whole flows are no load; at least {least} are expected"));
        }
        if self.cut.load(Ordering::Relaxed) + self.refused.load(Ordering::Relaxed) > whole {
            self.wrong("more flows were cut or refused than came to their end".to_owned());
        }
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let of = |it: &AtomicU64| it.load(Ordering::Relaxed);
        json!({
            "flows_opened": of(&self.opened),
            "flows_whole": of(&self.whole),
            "flows_reset_by_client": of(&self.client_resets),
            "flows_reset_by_origin": of(&self.origin_resets),
            "flows_left_silently": of(&self.silent),
            "flows_cut_by_trouble": of(&self.cut),
            "flows_refused_in_trouble": of(&self.refused),
            "down_bytes": of(&self.down_bytes),
            "up_bytes": of(&self.up_bytes),
            "wrong": of(&self.wrong),
            "problems": *self.told.lock().unwrap(),
        })
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |it: &AtomicU64| it.load(Ordering::Relaxed);
        write!(
            f,
            "{} flows: {} whole, {} reset by the client, {} by the origin, {} cut, {} refused, {} \
             left silently; {} MB down, {} MB up; {} wrong",
            of(&self.opened),
            of(&self.whole),
            of(&self.client_resets),
            of(&self.origin_resets),
            of(&self.cut),
            of(&self.refused),
            of(&self.silent),
            of(&self.down_bytes) / 1_000_000,
            of(&self.up_bytes) / 1_000_000,
            of(&self.wrong)
        )
    }
}
