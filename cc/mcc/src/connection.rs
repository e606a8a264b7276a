use std::time::Duration;

use millrace_cc::Time;

use crate::episode::{EpisodeEnd, OpenEpisode};
use crate::window::Window;
use crate::{Class, ConnectionRecord, Episode, Player, RuleInput};

/// The Selector's state of a connection.
#[derive(Debug)]
pub(crate) struct SelectorConnection {
    pub(crate) class: Class,
    /// Index of the algorithm in use.
    pub(crate) algorithm: u16,
    /// The rules must not change the algorithm.
    pub(crate) pinned: bool,
    opened: Time,
    switched: Option<Time>,
    switches: u64,
    last: Option<ConnectionRecord>,
    last_update: Time,
    player: Option<(Time, Player)>,
    /// Index of the algorithm before the last switch, until an episode has recorded it.
    before: Option<u16>,
    episode: Option<OpenEpisode>,
    window: Window,
    /// Time of the last path change, or of the connection's opening.
    path_since: Time,
    /// The RTT has grown with the last path change, and no algorithm has restarted on the new path yet.
    pub(crate) is_new_path: bool,
    /// The rules have been evaluated with an RTT sample.
    has_begun: bool,
    /// Time of the last evaluation of the rules.
    pub(crate) evaluated: Option<Time>,
    /// An update has arrived since the last evaluation.
    pub(crate) has_update: bool,
    /// The connection is in the list of those that are due for evaluation.
    pub(crate) is_listed: bool,
    /// Index of the algorithm that the rules want, and since when they want it.
    pub(crate) wanted: Option<(u16, Time)>,
}

impl SelectorConnection {
    pub(crate) fn new(class: Class, algorithm: u16, now: Time) -> Self {
        Self {
            class,
            algorithm,
            pinned: false,
            opened: now,
            switched: None,
            switches: 0,
            last: None,
            last_update: now,
            player: None,
            before: None,
            episode: None,
            window: Window::default(),
            path_since: now,
            is_new_path: false,
            has_begun: false,
            evaluated: None,
            has_update: false,
            is_listed: false,
            wanted: None,
        }
    }

    /// Ingests a record. Returns the episode that ends by a path change.
    pub(crate) fn ingest(&mut self, record: ConnectionRecord) -> Option<Episode> {
        let mut over = None;
        // Path changes before the first record may be long ago.
        if self.last.is_some_and(|last| last.path_changes != record.path_changes) {
            over = self.end_episode(EpisodeEnd::Path);
            self.window = Window::default();
            self.path_since = record.now;
            self.is_new_path = record.rtt_ratio > 1.0;
            // The rules wanted that for the path before.
            (self.evaluated, self.wanted) = (None, None);
        }
        self.window.ingest(&record);
        self.last_update = record.now;
        self.last = Some(record);
        over
    }

    pub(crate) fn ingest_player(&mut self, now: Time, player: Player) {
        self.last_update = self.last_update.max(now);
        self.player = Some((now, player));
        if let Some(episode) = &mut self.episode {
            episode.ingest_player(&player);
        }
    }

    pub(crate) fn last_update(&self) -> Time {
        self.last_update
    }

    pub(crate) fn latest_rtt(&self) -> Option<Duration> {
        self.last.map(|record| record.latest_rtt.get()).filter(|rtt| !rtt.is_zero())
    }

    /// Whether there is an RTT sample of the path.
    pub(crate) fn has_path(&self) -> bool {
        self.latest_rtt().is_some()
    }

    /// Returns true once: on the first call with an RTT sample.
    pub(crate) fn begins(&mut self) -> bool {
        let begins = !self.has_begun && self.has_path();
        self.has_begun |= begins;
        begins
    }

    /// Time since the last switch, if there was any.
    pub(crate) fn since_switch(&self, now: Time) -> Option<Duration> {
        self.switched.map(|at| now - at)
    }

    pub(crate) fn switch(&mut self, to: u16, now: Time) {
        (self.wanted, self.is_new_path) = (None, false);
        if to != self.algorithm {
            self.before = Some(self.algorithm);
            self.algorithm = to;
            self.switched = Some(now);
            self.switches += 1;
        }
    }

    /// Continues the episode or begins the next one. Returns an episode that is complete. Call it after
    /// [`SelectorConnection::ingest`]; `name` maps the index of an algorithm to its name.
    pub(crate) fn track_episode<'a>(
        &mut self,
        connection: u64,
        record: ConnectionRecord,
        name: impl Fn(u16) -> &'a str,
    ) -> Option<Episode> {
        if let Some(episode) = &mut self.episode {
            episode.ingest(record);
            if !episode.is_over() {
                return None;
            }
        } else if !self.has_path() {
            return None;
        }
        let over = self.end_episode(EpisodeEnd::Time);
        let before = self.before.take().unwrap_or(self.algorithm);
        let input = self.rule_input(connection, name(self.algorithm), record.now);
        self.episode = Some(OpenEpisode::new(input, name(before).to_owned(), record));
        over
    }

    /// Ends the episode, if there is any, and returns it.
    pub(crate) fn end_episode(&mut self, end: EpisodeEnd) -> Option<Episode> {
        let player = self.player.map(|(_, player)| player);
        self.episode.take().and_then(|episode| episode.close(end, player))
    }

    pub(crate) fn rule_input(&self, connection: u64, name: &str, now: Time) -> RuleInput {
        let mut input = RuleInput {
            connection,
            class: self.class,
            algorithm: name.to_owned(),
            age_s: (now - self.opened).as_secs_f64(),
            path_age_s: (now - self.path_since).as_secs_f64(),
            since_switch_s: (now - self.switched.unwrap_or(self.opened)).as_secs_f64(),
            switches: self.switches,
            player: self.player.map(|(at, player)| Player {
                age_s: player.age_s + (now - at).as_secs_f64(),
                ..player
            }),
            ..RuleInput::default()
        };
        if let Some(record) = &self.last {
            let ms = |rtt: Duration| rtt.as_secs_f64() * 1e3;
            let recent = self.window.recent(record);
            let mbps = |bps: u64| bps as f64 / 1e6;
            input.rtt_ratio = f64::from(record.rtt_ratio);
            input.min_rtt_ms = ms(record.min_rtt.get());
            input.max_rtt_ms = ms(record.max_rtt.get());
            input.recent_min_rtt_ms = ms(recent.min_rtt);
            input.recent_max_rtt_ms = ms(recent.max_rtt);
            input.latest_rtt_ms = ms(record.latest_rtt.get());
            input.smoothed_rtt_ms = ms(record.smoothed_rtt.get());
            input.rtt_variation_ms = ms(record.rtt_variation.get());
            input.delivery_mbps = mbps(record.delivery_bps);
            input.mean_delivery_mbps = recent.delivery_mbps;
            input.max_delivery_mbps = mbps(record.max_delivery_bps);
            input.peak_delivery_mbps = mbps(record.peak_delivery_bps);
            input.loss = recent.loss;
            input.loss_short = f64::from(record.loss_short);
            input.ecn_ce = f64::from(record.ecn_ce);
            input.window_bytes = record.window_bytes as f64;
            input.delivered_bytes = record.delivered_bytes as f64;
        }
        input
    }
}
