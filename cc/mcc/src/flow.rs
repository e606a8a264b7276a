use std::time::Duration;

use millrace_cc::Time;

use crate::episode::{End, Open};
use crate::window::Window;
use crate::{Class, Episode, Facts, Player, Record};

/// What the Selector knows of a connection.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) class: Class,
    /// Which of the candidates drives it.
    pub(crate) algorithm: u16,
    /// The rules leave it alone.
    pub(crate) pinned: bool,
    opened: Time,
    switched: Option<Time>,
    switches: u64,
    last: Option<Record>,
    heard: Time,
    player: Option<(Time, Player)>,
    /// What drove it before.
    before: Option<u16>,
    episode: Option<Open>,
    window: Window,
    /// When it got the path that it has.
    path_since: Time,
    /// The path has become a longer one, and nobody has started anew on it yet.
    pub(crate) is_new_path: bool,
    /// The rules have been asked since its first round trip is known.
    has_begun: bool,
    /// When the rules were asked last.
    pub(crate) asked: Option<Time>,
    /// Something new has been heard since.
    pub(crate) has_news: bool,
    /// It is on the list of those that are to be asked about at once.
    pub(crate) is_listed: bool,
    /// What the rules want, and since when.
    pub(crate) wanted: Option<(u16, Time)>,
}

impl Flow {
    pub(crate) fn new(class: Class, algorithm: u16, now: Time) -> Self {
        Self {
            class,
            algorithm,
            pinned: false,
            opened: now,
            switched: None,
            switches: 0,
            last: None,
            heard: now,
            player: None,
            before: None,
            episode: None,
            window: Window::default(),
            path_since: now,
            is_new_path: false,
            has_begun: false,
            asked: None,
            has_news: false,
            is_listed: false,
            wanted: None,
        }
    }

    /// Takes in a record; the episode that ends because the path has become another one.
    pub(crate) fn hear(&mut self, record: Record) -> Option<Episode> {
        let mut over = None;
        // Of changes before the first record nothing is known: they may be long ago.
        if self.last.is_some_and(|last| last.path_changes != record.path_changes) {
            over = self.end_episode(End::Path);
            self.window = Window::default();
            self.path_since = record.now;
            self.is_new_path = record.rtt_ratio > 1.0;
            // What was wanted was for another path.
            (self.asked, self.wanted) = (None, None);
        }
        self.window.hear(&record);
        self.heard = record.now;
        self.last = Some(record);
        over
    }

    pub(crate) fn hear_player(&mut self, now: Time, player: Player) {
        self.heard = self.heard.max(now);
        self.player = Some((now, player));
        if let Some(episode) = &mut self.episode {
            episode.hear_player(&player);
        }
    }

    pub(crate) fn heard(&self) -> Time {
        self.heard
    }

    pub(crate) fn latest_rtt(&self) -> Option<Duration> {
        self.last.map(|record| record.latest_rtt.get()).filter(|rtt| !rtt.is_zero())
    }

    /// Whether anything is known of its path.
    pub(crate) fn has_path(&self) -> bool {
        self.latest_rtt().is_some()
    }

    /// Whether anything is known of its path, for the first time that this is asked.
    pub(crate) fn begins(&mut self) -> bool {
        let begins = !self.has_begun && self.has_path();
        self.has_begun |= begins;
        begins
    }

    /// Since the last change, if there was one.
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

    /// Goes on with the episode, or begins one; the one that is over with it. To be called after
    /// [`Flow::hear`]; `name` is that of a candidate.
    pub(crate) fn follow<'a>(
        &mut self,
        connection: u64,
        record: Record,
        name: impl Fn(u16) -> &'a str,
    ) -> Option<Episode> {
        if let Some(episode) = &mut self.episode {
            episode.hear(record);
            if !episode.is_over() {
                return None;
            }
        } else if !self.has_path() {
            return None;
        }
        let over = self.end_episode(End::Time);
        let before = self.before.take().unwrap_or(self.algorithm);
        let facts = self.facts(connection, name(self.algorithm), record.now);
        self.episode = Some(Open::new(facts, name(before).to_owned(), record));
        over
    }

    /// The episode, which is over.
    pub(crate) fn end_episode(&mut self, end: End) -> Option<Episode> {
        let player = self.player.map(|(_, player)| player);
        self.episode.take().and_then(|episode| episode.close(end, player))
    }

    pub(crate) fn facts(&self, connection: u64, name: &str, now: Time) -> Facts {
        let mut facts = Facts {
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
            ..Facts::default()
        };
        if let Some(record) = &self.last {
            let ms = |rtt: Duration| rtt.as_secs_f64() * 1e3;
            let recent = self.window.recent(record);
            let mbps = |bps: u64| bps as f64 / 1e6;
            facts.rtt_ratio = f64::from(record.rtt_ratio);
            facts.min_rtt_ms = ms(record.min_rtt.get());
            facts.max_rtt_ms = ms(record.max_rtt.get());
            facts.recent_min_rtt_ms = ms(recent.min_rtt);
            facts.recent_max_rtt_ms = ms(recent.max_rtt);
            facts.latest_rtt_ms = ms(record.latest_rtt.get());
            facts.smoothed_rtt_ms = ms(record.smoothed_rtt.get());
            facts.rtt_variation_ms = ms(record.rtt_variation.get());
            facts.delivery_mbps = mbps(record.delivery_bps);
            facts.mean_delivery_mbps = recent.delivery_mbps;
            facts.max_delivery_mbps = mbps(record.max_delivery_bps);
            facts.peak_delivery_mbps = mbps(record.peak_delivery_bps);
            facts.loss = recent.loss;
            facts.loss_short = f64::from(record.loss_short);
            facts.ecn_ce = f64::from(record.ecn_ce);
            facts.window_bytes = record.window_bytes as f64;
            facts.delivered_bytes = record.delivered_bytes as f64;
        }
        facts
    }
}
