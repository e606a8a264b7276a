use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use millrace_cc::Time;
use serde::Serialize;

use crate::episode::End;
use crate::flow::Flow;
use crate::record::Nanos;
use crate::rules::{Choice, Rules};
use crate::{Episode, Facts, News, Order, Record};

/// Connections that are known at once; of more nothing is kept, and they stay as they are.
const MAX_CONNECTIONS: usize = 65_536;
/// A connection of which nothing is heard for so long is forgotten: that it was closed may have found no
/// room in the pipe.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(120);
/// How often those are looked for.
const FORGET_EVERY: Duration = Duration::from_secs(30);
/// Between the shortest and the longest, batches are read every tenth of the modal RTT (MCC, Section
/// 4.1.1). The paper gives no bounds. Below, waking up costs more than the news are worth.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(2);
const LONGEST_INTERVAL: Duration = Duration::from_millis(50);
/// Buckets of the modal RTT: two per doubling, the first up to 0.39 ms (3 * 2^17 ns), the last from 13 s.
const BUCKETS: usize = 32;
const FIRST_BUCKET_BITS: u32 = 18;

/// Episodes that are kept for whoever takes them.
const MAX_EPISODES: usize = 65_536;

/// How a Selector treats what the rules say.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Names of the algorithms that there are to choose from; orders give their places.
    pub candidates: Vec<String>,
    /// An algorithm stays for so long at least.
    pub dwell: Duration,
    /// The rules must want another one for so long, without a break. Nothing of it counts until they have
    /// been asked with the path's first RTT sample, nor when the path has become another one: what a
    /// connection begins with needs no second thought.
    pub confirm: Duration,
    /// The rules are asked about a connection so often at most.
    pub ask_every: Duration,
    /// What comes of each algorithm is kept, for [`Selector::take_episodes`].
    pub keeps_episodes: bool,
}

impl Settings {
    /// The usual times.
    #[must_use]
    pub fn new(candidates: Vec<String>) -> Self {
        Self {
            candidates,
            dwell: Duration::from_secs(5),
            confirm: Duration::from_secs(1),
            ask_every: Duration::from_millis(250),
            keeps_episodes: false,
        }
    }
}

/// What a Selector has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Times the rules were asked.
    pub asked: u64,
    /// Of these, times they failed; the algorithm stays then.
    pub failed: u64,
    /// Orders given.
    pub ordered: u64,
    /// Orders that found no room, and were given again later.
    pub postponed: u64,
    /// Connections that found no room.
    pub too_many: u64,
    /// Episodes that nobody has taken in time.
    pub left_out: u64,
}

/// What rules make of a connection, and what of.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explained {
    /// What they are told.
    pub facts: Facts,
    /// What they choose; nothing leaves the connection as it is.
    pub choice: Option<Choice>,
    /// What is wrong with them, if anything.
    pub problem: Option<String>,
}

/// Keeps the state of one worker's connections and asks the rules (MCC, Section 3.1). Knows no clock.
#[derive(Debug)]
pub struct Selector<R> {
    rules: R,
    settings: Settings,
    flows: HashMap<u64, Flow>,
    /// Those of which something new has been heard, and that may be asked about at once.
    listed: Vec<u64>,
    /// The others that were asked about, and when: in that order they may be asked about again.
    waiting: VecDeque<(u64, Time)>,
    rtts: [u32; BUCKETS],
    forgot: Option<Time>,
    counts: Counts,
    /// The last failure of the rules that was told.
    told: Option<String>,
    episodes: Vec<Episode>,
}

impl<R: Rules> Selector<R> {
    /// Without connections.
    pub fn new(rules: R, settings: Settings) -> Self {
        Self {
            rules,
            settings,
            flows: HashMap::new(),
            listed: Vec::new(),
            waiting: VecDeque::new(),
            rtts: [0; BUCKETS],
            forgot: None,
            counts: Counts::default(),
            told: None,
            episodes: Vec::new(),
        }
    }

    /// What it has done so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// How many connections it knows.
    pub fn connections(&self) -> usize {
        self.flows.len()
    }

    /// Other rules from now on; what is known of the connections stays.
    pub fn replace_rules(&mut self, rules: R) {
        self.rules = rules;
        self.told = None;
        self.listed = self.flows.keys().copied().collect();
        for flow in self.flows.values_mut() {
            (flow.asked, flow.wanted, flow.is_listed) = (None, None, true);
        }
    }

    /// Takes in what an agent says.
    pub fn hear(&mut self, news: News) {
        match news {
            News::Opened { connection, now, class, algorithm } => {
                // Of a connection that is known already it says the class, which came late.
                let algorithm =
                    self.flows.get(&connection).map_or(algorithm, |flow| flow.algorithm);
                self.with(
                    connection,
                    |flow| (flow.class, flow.algorithm) = (class, algorithm),
                    now,
                );
            }
            News::Acked(record) => {
                let mut over = None;
                let hear = |flow: &mut Flow| over = flow.hear(record);
                let counted = self.with(record.connection, hear, record.now);
                self.keep(over);
                if counted && self.settings.keeps_episodes {
                    self.follow(record);
                }
                if counted && !record.latest_rtt.is_zero() {
                    self.count_rtt(record.latest_rtt);
                }
            }
            News::Player { connection, now, player } => {
                self.with(connection, |flow| flow.hear_player(now, player), now);
            }
            News::Set { connection, now, algorithm, pinned } => {
                let mut over = None;
                let set = |flow: &mut Flow| {
                    if algorithm != flow.algorithm {
                        over = flow.end_episode(End::Switch);
                    }
                    flow.switch(algorithm, now);
                    flow.pinned = pinned;
                };
                self.with(connection, set, now);
                self.keep(over);
            }
            News::Closed { connection } => {
                let over = self.flows.remove(&connection);
                self.keep(over.and_then(|mut flow| flow.end_episode(End::Closed)));
            }
        }
    }

    fn follow(&mut self, record: Record) {
        let Self { flows, settings, .. } = self;
        let Some(flow) = flows.get_mut(&record.connection) else { return };
        let over = flow.follow(record.connection, record, |place| settings.name(place));
        self.keep(over);
    }

    fn keep(&mut self, episode: Option<Episode>) {
        let Some(episode) = episode else { return };
        if self.episodes.len() < MAX_EPISODES {
            self.episodes.push(episode);
        } else {
            self.counts.left_out += 1;
        }
    }

    /// All connections are over.
    pub fn end(&mut self) {
        for (_, mut flow) in std::mem::take(&mut self.flows) {
            self.keep(flow.end_episode(End::Closed));
        }
    }

    /// The episodes that are over since it was asked last.
    pub fn take_episodes(&mut self) -> Vec<Episode> {
        std::mem::take(&mut self.episodes)
    }

    /// Lets `change` loose on a connection and lists it; whether there was room for it.
    fn with(&mut self, connection: u64, change: impl FnOnce(&mut Flow), now: Time) -> bool {
        let is_full = self.flows.len() >= MAX_CONNECTIONS;
        let flow = match self.flows.entry(connection) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if is_full => {
                self.counts.too_many += 1;
                return false;
            }
            // Its beginning found no room in the pipe, or an earlier Selector heard of it: the first of
            // the candidates is the one that everything begins with.
            Entry::Vacant(new) => new.insert(Flow::new(crate::Class::default(), 0, now)),
        };
        change(flow);
        flow.has_news = true;
        // What has been asked about has its turn among those that wait.
        if flow.asked.is_none() && !flow.is_listed {
            flow.is_listed = true;
            self.listed.push(connection);
        }
        true
    }

    fn count_rtt(&mut self, rtt: Nanos) {
        let bucket = bucket(rtt.count());
        self.rtts[bucket] += 1;
        // Forgets by and by, and cannot overflow.
        if self.rtts[bucket] >= 1 << 20 {
            self.rtts.iter_mut().for_each(|count| *count /= 2);
        }
    }

    /// How long to let news gather: a tenth of the modal RTT.
    pub fn interval(&self) -> Duration {
        let modal = (0..BUCKETS).max_by_key(|bucket| self.rtts[*bucket]);
        let Some(modal) = modal.filter(|bucket| self.rtts[*bucket] > 0) else {
            return LONGEST_INTERVAL;
        };
        let rtt = Duration::from_nanos(least_in(modal));
        (rtt / 10).clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL)
    }

    /// Asks the rules about the connections of which there is news. `give` takes an order, and says
    /// whether it had room for it; `tell` hears of the rules' failures, of the same one only once.
    pub fn decide(
        &mut self,
        now: Time,
        mut give: impl FnMut(Order) -> bool,
        mut tell: impl FnMut(&str),
    ) {
        let mut over = Vec::new();
        for connection in self.due(now) {
            let Some(flow) = self.flows.get_mut(&connection) else { continue };
            (flow.is_listed, flow.has_news, flow.asked) = (false, false, None);
            if flow.pinned {
                continue;
            }
            flow.asked = Some(now);
            self.waiting.push_back((connection, now));
            let facts = flow.facts(connection, self.settings.name(flow.algorithm), now);
            self.counts.asked += 1;
            let wanted = match self.rules.select(&facts).map(|choice| self.settings.place(choice)) {
                Ok(Ok(wanted)) => wanted,
                Ok(Err(problem)) | Err(problem) => {
                    self.counts.failed += 1;
                    if self.told.as_ref() != Some(&problem) {
                        tell(&problem);
                        self.told = Some(problem);
                    }
                    None
                }
            };
            let (to, anew) = match flow.agreed(wanted, &self.settings, now) {
                Some(to) => (to, flow.is_new_path),
                None => continue,
            };
            if give(Order { connection, algorithm: to, anew }) {
                self.counts.ordered += 1;
                over.extend(flow.end_episode(End::Switch));
                flow.switch(to, now);
            } else {
                self.counts.postponed += 1;
                flow.asked = None;
                flow.is_listed = true;
                self.listed.push(connection);
            }
        }
        over.into_iter().for_each(|episode| self.keep(Some(episode)));
        self.forget(now);
    }

    /// Connections that are to be asked about now.
    fn due(&mut self, now: Time) -> Vec<u64> {
        let mut due = std::mem::take(&mut self.listed);
        while let Some(&(connection, asked)) = self.waiting.front()
            && now - asked >= self.settings.ask_every
        {
            self.waiting.pop_front();
            let flow = self.flows.get_mut(&connection);
            let Some(flow) = flow.filter(|flow| flow.asked == Some(asked)) else { continue };
            if flow.has_news {
                due.push(connection);
            } else {
                flow.asked = None;
            }
        }
        due
    }

    fn forget(&mut self, now: Time) {
        if self.forgot.is_none_or(|last| now - last >= FORGET_EVERY) {
            self.forgot = Some(now);
            let is_silent = |_: &u64, flow: &mut Flow| now - flow.heard() >= FORGOTTEN_AFTER;
            let silent: Vec<_> = self.flows.extract_if(is_silent).collect();
            for (_, mut flow) in silent {
                self.keep(flow.end_episode(End::Closed));
            }
        }
    }

    /// What rules would be told of a connection at `now`.
    pub fn facts(&self, connection: u64, now: Time) -> Option<Facts> {
        let flow = self.flows.get(&connection)?;
        Some(flow.facts(connection, self.settings.name(flow.algorithm), now))
    }

    /// What the rules make of that.
    pub fn explain(&mut self, connection: u64, now: Time) -> Option<Explained> {
        let facts = self.facts(connection, now)?;
        let choice = self.rules.select(&facts);
        let (choice, problem) = match choice {
            Ok(choice) => (choice, None),
            Err(problem) => (None, Some(problem)),
        };
        Some(Explained { facts, choice, problem })
    }
}

/// Which one holds an RTT: by the place of its first bit, and by the second one.
fn bucket(nanos: u64) -> usize {
    let nanos = nanos.max(1 << FIRST_BUCKET_BITS);
    let bits = nanos.ilog2();
    let upper_half = nanos >> (bits - 1) & 1;
    let bucket = 2 * (bits - FIRST_BUCKET_BITS) as usize + upper_half as usize;
    bucket.min(BUCKETS - 1)
}

/// The smallest RTT that it holds, in nanoseconds.
fn least_in(bucket: usize) -> u64 {
    let doubled = 1 << (FIRST_BUCKET_BITS as usize + bucket / 2);
    doubled + (bucket as u64 % 2) * doubled / 2
}

impl Settings {
    /// Of a candidate; nothing where an agent named one that there is not.
    fn name(&self, place: u16) -> &str {
        self.candidates.get(usize::from(place)).map_or("", String::as_str)
    }

    /// The place of what the rules chose; `None` if they leave it as it is.
    fn place(&self, choice: Option<Choice>) -> Result<Option<u16>, String> {
        let Some(choice) = choice else { return Ok(None) };
        let place = self.candidates.iter().position(|name| *name == choice.algorithm);
        let place = place.and_then(|place| u16::try_from(place).ok());
        place.map(Some).ok_or_else(|| {
            let all = self.candidates.join(", ");
            format!("the rules chose {:?}; there are {all}", choice.algorithm)
        })
    }
}

impl Flow {
    /// What is to be done about what the rules want: another algorithm, once they have wanted it for long
    /// enough and the one in force has had its time.
    fn agreed(&mut self, wanted: Option<u16>, settings: &Settings, now: Time) -> Option<u16> {
        let begins = self.begins();
        if self.is_new_path {
            // As at a connection's beginning. Whatever drives starts anew: what it knows is of another path.
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
        let confirmed = !self.has_path() || now - since >= settings.confirm;
        let dwelt = self.since_switch(now).is_none_or(|since| since >= settings.dwell);
        (confirmed && dwelt).then_some(to)
    }
}

#[cfg(test)]
mod tests;
