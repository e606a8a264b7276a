use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use millrace_cc::Time;
use serde::Serialize;

use crate::connection::SelectorConnection;
use crate::episode::EpisodeEnd;
use crate::record::Nanos;
use crate::rules::{Choice, SelectionRules};
use crate::{ConnectionRecord, Episode, PathUpdate, RuleInput, SwitchRequest};

/// Maximum number of connections. Further connections keep their algorithm.
const MAX_CONNECTIONS: usize = 65_536;
/// A connection without updates for this long is removed: its [`PathUpdate::Closed`] may have been dropped.
const REMOVE_AFTER: Duration = Duration::from_secs(120);
/// Interval of the search for such connections.
const REMOVAL_INTERVAL: Duration = Duration::from_secs(30);
/// Bounds of the interval between batches, a tenth of the modal RTT (MCC, Section 4.1.1). The paper gives no bounds;
/// below 2 ms, wake-ups cost more than fresher updates gain.
const MIN_INTERVAL: Duration = Duration::from_millis(2);
const MAX_INTERVAL: Duration = Duration::from_millis(50);
/// Buckets of the RTT histogram: two per doubling, the first up to 0.39 ms (3 * 2^17 ns), the last from 13 s.
const BUCKETS: usize = 32;
const FIRST_BUCKET_BITS: u32 = 18;

/// Maximum number of episodes that wait for [`Selector::take_episodes`].
const MAX_EPISODES: usize = 65_536;

/// Settings of a Selector.
#[derive(Clone, Debug)]
pub struct SelectorSettings {
    /// Names of the algorithms to choose from. Requests and updates give the index in this list.
    pub algorithms: Vec<String>,
    /// Minimum time between two switches of a connection.
    pub min_dwell: Duration,
    /// Time for which the rules must return another algorithm without interruption. It does not apply up to the
    /// first evaluation with an RTT sample, nor after a path change to a longer RTT.
    pub hold_down: Duration,
    /// Minimum interval between two evaluations of a connection.
    pub evaluation_interval: Duration,
    /// Whether episodes are recorded, for [`Selector::take_episodes`].
    pub keeps_episodes: bool,
}

impl SelectorSettings {
    /// Settings with the default times.
    #[must_use]
    pub fn new(algorithms: Vec<String>) -> Self {
        Self {
            algorithms,
            min_dwell: Duration::from_secs(5),
            hold_down: Duration::from_secs(1),
            evaluation_interval: Duration::from_millis(250),
            keeps_episodes: false,
        }
    }
}

/// Counters of a Selector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SelectorCounts {
    /// Evaluations of the rules.
    pub evaluations: u64,
    /// Evaluations that failed; the connection keeps its algorithm then.
    pub evaluation_errors: u64,
    /// Switch requests sent.
    pub switch_requests: u64,
    /// Switch requests that did not fit into the queue and are sent again later.
    pub postponed_requests: u64,
    /// Updates of connections above the maximum number of connections.
    pub connections_rejected: u64,
    /// Episodes that were dropped because too many waited.
    pub episodes_dropped: u64,
}

/// The choice of the rules for a connection, and their input.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explained {
    /// Input of the rules.
    pub input: RuleInput,
    /// Choice of the rules; `None` keeps the algorithm in use.
    pub choice: Option<Choice>,
    /// Failure of the rules, if any.
    pub problem: Option<String>,
}

/// Keeps the state of one worker's connections and evaluates the rules (MCC, Section 3.1). Callers pass the time.
#[derive(Debug)]
pub struct Selector<R> {
    rules: R,
    settings: SelectorSettings,
    connections: HashMap<u64, SelectorConnection>,
    /// Connections with updates that are due for evaluation.
    listed: Vec<u64>,
    /// Evaluated connections with the time of the evaluation, in the order in which they become due again.
    waiting: VecDeque<(u64, Time)>,
    rtts: [u32; BUCKETS],
    last_removal: Option<Time>,
    counts: SelectorCounts,
    /// The failure of the rules that was reported last.
    reported: Option<String>,
    episodes: Vec<Episode>,
}

impl<R: SelectionRules> Selector<R> {
    /// Creates a Selector without connections.
    pub fn new(rules: R, settings: SelectorSettings) -> Self {
        Self {
            rules,
            settings,
            connections: HashMap::new(),
            listed: Vec::new(),
            waiting: VecDeque::new(),
            rtts: [0; BUCKETS],
            last_removal: None,
            counts: SelectorCounts::default(),
            reported: None,
            episodes: Vec::new(),
        }
    }

    /// The counters.
    pub fn counts(&self) -> SelectorCounts {
        self.counts
    }

    /// Number of connections.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Replaces the rules and keeps the state of the connections.
    pub fn replace_rules(&mut self, rules: R) {
        self.rules = rules;
        self.reported = None;
        self.listed = self.connections.keys().copied().collect();
        for state in self.connections.values_mut() {
            (state.evaluated, state.wanted, state.is_listed) = (None, None, true);
        }
    }

    /// Ingests an update of the agent.
    pub fn ingest(&mut self, update: PathUpdate) {
        match update {
            PathUpdate::Opened { connection, now, class, algorithm } => {
                // For a known connection the update only sets the class.
                let algorithm =
                    self.connections.get(&connection).map_or(algorithm, |state| state.algorithm);
                self.with(
                    connection,
                    |state| (state.class, state.algorithm) = (class, algorithm),
                    now,
                );
            }
            PathUpdate::Acked(record) => {
                let mut ended = None;
                let ingest = |state: &mut SelectorConnection| ended = state.ingest(record);
                let is_known = self.with(record.connection, ingest, record.now);
                self.keep(ended);
                if is_known && self.settings.keeps_episodes {
                    self.track_episode(record);
                }
                if is_known && !record.latest_rtt.is_zero() {
                    self.count_rtt(record.latest_rtt);
                }
            }
            PathUpdate::Player { connection, now, player } => {
                self.with(connection, |state| state.ingest_player(now, player), now);
            }
            PathUpdate::Set { connection, now, algorithm, pinned } => {
                let mut ended = None;
                let set = |state: &mut SelectorConnection| {
                    if algorithm != state.algorithm {
                        ended = state.end_episode(EpisodeEnd::Switch);
                    }
                    state.switch(algorithm, now);
                    state.pinned = pinned;
                };
                self.with(connection, set, now);
                self.keep(ended);
            }
            PathUpdate::Closed { connection } => {
                let closed = self.connections.remove(&connection);
                self.keep(closed.and_then(|mut state| state.end_episode(EpisodeEnd::Closed)));
            }
        }
    }

    fn track_episode(&mut self, record: ConnectionRecord) {
        let Self { connections, settings, .. } = self;
        let Some(state) = connections.get_mut(&record.connection) else { return };
        let ended = state.track_episode(record.connection, record, |index| settings.name(index));
        self.keep(ended);
    }

    fn keep(&mut self, episode: Option<Episode>) {
        let Some(episode) = episode else { return };
        if self.episodes.len() < MAX_EPISODES {
            self.episodes.push(episode);
        } else {
            self.counts.episodes_dropped += 1;
        }
    }

    /// Closes all connections.
    pub fn end(&mut self) {
        for (_, mut state) in std::mem::take(&mut self.connections) {
            self.keep(state.end_episode(EpisodeEnd::Closed));
        }
    }

    /// Takes the episodes that have ended since the last call.
    pub fn take_episodes(&mut self) -> Vec<Episode> {
        std::mem::take(&mut self.episodes)
    }

    /// Applies `change` to a connection and lists it as due. Returns false if there is no room for the connection.
    fn with(
        &mut self,
        connection: u64,
        change: impl FnOnce(&mut SelectorConnection),
        now: Time,
    ) -> bool {
        let is_full = self.connections.len() >= MAX_CONNECTIONS;
        let state = match self.connections.entry(connection) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if is_full => {
                self.counts.connections_rejected += 1;
                return false;
            }
            // `Opened` was dropped, or an earlier Selector received it. Connections begin with the first algorithm.
            Entry::Vacant(new) => {
                new.insert(SelectorConnection::new(crate::Class::default(), 0, now))
            }
        };
        change(state);
        state.has_update = true;
        // A connection that was evaluated becomes due again by `waiting`.
        if state.evaluated.is_none() && !state.is_listed {
            state.is_listed = true;
            self.listed.push(connection);
        }
        true
    }

    fn count_rtt(&mut self, rtt: Nanos) {
        let bucket = bucket(rtt.count());
        self.rtts[bucket] += 1;
        // Old samples lose weight, and the counters can't overflow.
        if self.rtts[bucket] >= 1 << 20 {
            self.rtts.iter_mut().for_each(|count| *count /= 2);
        }
    }

    /// Time between two batches of updates: a tenth of the modal RTT.
    pub fn interval(&self) -> Duration {
        let modal = (0..BUCKETS).max_by_key(|bucket| self.rtts[*bucket]);
        let Some(modal) = modal.filter(|bucket| self.rtts[*bucket] > 0) else {
            return MAX_INTERVAL;
        };
        let rtt = Duration::from_nanos(lower_bound_ns(modal));
        (rtt / 10).clamp(MIN_INTERVAL, MAX_INTERVAL)
    }

    /// Evaluates the rules for the connections with updates. `try_send` takes a request and returns whether it had
    /// room for it. `report` takes the failures of the rules, a repeated one only once.
    pub fn evaluate(
        &mut self,
        now: Time,
        mut try_send: impl FnMut(SwitchRequest) -> bool,
        mut report: impl FnMut(&str),
    ) {
        let mut ended = Vec::new();
        for connection in self.due(now) {
            let Some(state) = self.connections.get_mut(&connection) else { continue };
            (state.is_listed, state.has_update, state.evaluated) = (false, false, None);
            if state.pinned {
                continue;
            }
            state.evaluated = Some(now);
            self.waiting.push_back((connection, now));
            let input = state.rule_input(connection, self.settings.name(state.algorithm), now);
            self.counts.evaluations += 1;
            let wanted = match self.rules.select(&input).map(|choice| self.settings.index(choice)) {
                Ok(Ok(wanted)) => wanted,
                Ok(Err(problem)) | Err(problem) => {
                    self.counts.evaluation_errors += 1;
                    if self.reported.as_ref() != Some(&problem) {
                        report(&problem);
                        self.reported = Some(problem);
                    }
                    None
                }
            };
            let (to, is_new_path) = match state.confirm(wanted, &self.settings, now) {
                Some(to) => (to, state.is_new_path),
                None => continue,
            };
            if try_send(SwitchRequest { connection, algorithm: to, is_new_path }) {
                self.counts.switch_requests += 1;
                ended.extend(state.end_episode(EpisodeEnd::Switch));
                state.switch(to, now);
            } else {
                self.counts.postponed_requests += 1;
                state.evaluated = None;
                state.is_listed = true;
                self.listed.push(connection);
            }
        }
        ended.into_iter().for_each(|episode| self.keep(Some(episode)));
        self.remove_silent(now);
    }

    /// Takes the connections that are due for evaluation.
    fn due(&mut self, now: Time) -> Vec<u64> {
        let mut due = std::mem::take(&mut self.listed);
        while let Some(&(connection, evaluated)) = self.waiting.front()
            && now - evaluated >= self.settings.evaluation_interval
        {
            self.waiting.pop_front();
            let state = self.connections.get_mut(&connection);
            let Some(state) = state.filter(|state| state.evaluated == Some(evaluated)) else {
                continue;
            };
            if state.has_update {
                due.push(connection);
            } else {
                state.evaluated = None;
            }
        }
        due
    }

    fn remove_silent(&mut self, now: Time) {
        if self.last_removal.is_none_or(|last| now - last >= REMOVAL_INTERVAL) {
            self.last_removal = Some(now);
            let is_silent =
                |_: &u64, state: &mut SelectorConnection| now - state.last_update() >= REMOVE_AFTER;
            let silent: Vec<_> = self.connections.extract_if(is_silent).collect();
            for (_, mut state) in silent {
                self.keep(state.end_episode(EpisodeEnd::Closed));
            }
        }
    }

    /// Input of the rules for a connection at `now`.
    pub fn rule_input(&self, connection: u64, now: Time) -> Option<RuleInput> {
        let state = self.connections.get(&connection)?;
        Some(state.rule_input(connection, self.settings.name(state.algorithm), now))
    }

    /// Evaluates the rules for a connection without switching it.
    pub fn explain(&mut self, connection: u64, now: Time) -> Option<Explained> {
        let input = self.rule_input(connection, now)?;
        let choice = self.rules.select(&input);
        let (choice, problem) = match choice {
            Ok(choice) => (choice, None),
            Err(problem) => (None, Some(problem)),
        };
        Some(Explained { input, choice, problem })
    }
}

/// Bucket of an RTT: by the position of its highest bit, and by the bit below.
fn bucket(nanos: u64) -> usize {
    let nanos = nanos.max(1 << FIRST_BUCKET_BITS);
    let bits = nanos.ilog2();
    let upper_half = nanos >> (bits - 1) & 1;
    let bucket = 2 * (bits - FIRST_BUCKET_BITS) as usize + upper_half as usize;
    bucket.min(BUCKETS - 1)
}

/// Smallest RTT of a bucket, in nanoseconds.
fn lower_bound_ns(bucket: usize) -> u64 {
    let doubled = 1 << (FIRST_BUCKET_BITS as usize + bucket / 2);
    doubled + (bucket as u64 % 2) * doubled / 2
}

impl SelectorSettings {
    /// Name of an algorithm; empty if the index is out of range.
    fn name(&self, index: u16) -> &str {
        self.algorithms.get(usize::from(index)).map_or("", String::as_str)
    }

    /// Index of the chosen algorithm; `None` if the rules keep the algorithm in use.
    fn index(&self, choice: Option<Choice>) -> Result<Option<u16>, String> {
        let Some(choice) = choice else { return Ok(None) };
        let index = self.algorithms.iter().position(|name| *name == choice.algorithm);
        let index = index.and_then(|index| u16::try_from(index).ok());
        index.map(Some).ok_or_else(|| {
            let all = self.algorithms.join(", ");
            format!("the rules chose {:?}; there are {all}", choice.algorithm)
        })
    }
}

impl SelectorConnection {
    /// Applies hold-down and minimum dwell time to the choice of the rules. Returns the algorithm to switch to.
    fn confirm(
        &mut self,
        wanted: Option<u16>,
        settings: &SelectorSettings,
        now: Time,
    ) -> Option<u16> {
        let begins = self.begins();
        if self.is_new_path {
            // As for a new connection. The algorithm in use restarts too: its state belongs to the path before.
            return Some(wanted.unwrap_or(self.algorithm));
        }
        let Some(to) = wanted.filter(|to| *to != self.algorithm) else {
            self.wanted = None;
            return None;
        };
        if begins {
            return Some(to);
        }
        let since = match self.wanted {
            Some((same, since)) if same == to => since,
            _ => now,
        };
        self.wanted = Some((to, since));
        let confirmed = !self.has_path() || now - since >= settings.hold_down;
        let dwelt = self.since_switch(now).is_none_or(|since| since >= settings.min_dwell);
        (confirmed && dwelt).then_some(to)
    }
}

#[cfg(test)]
mod tests;
