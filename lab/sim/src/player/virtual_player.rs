use std::sync::Arc;
use std::time::Duration;

use millrace_cc::rate_cap::PlayerNeeds;

use super::abandonment::DownloadProgress;
use super::delays::{APPEND_DELAY, CONNECT_DELAY, MANIFEST_DELAY};
use super::download::{Resource, ResourceDownload};
use super::outcome::{PlayerOutcome, PlayerSample};
use super::playback::PlaybackClock;
use super::reported_needs::reported_needs;
use super::rung_choice::RungChoice;
use super::rung_selector::RungSelector;
use super::setup::PlayerSetup;
use super::throughput::ThroughputEstimate;

/// Bytes of a response's head: nginx's, with CORS.
const HEAD_BYTES: u64 = 320;
/// Rate for which the first rung is chosen (dash.js 5.2.1, `AbrController.js`, `DEFAULT_VIDEO_BITRATE`).
const INITIAL_KBPS: f64 = 1000.0;
/// Time between looks at a full buffer (`core/Settings.js` there, `scheduling.defaultTimeout`).
const FULL_BUFFER_INTERVAL: Duration = Duration::from_millis(500);
/// A segment that comes faster is taken for a cached one (`core/Settings.js` there, `cacheLoadThresholds.video`).
const CACHED_BELOW: Duration = Duration::from_millis(10);
/// A request ends after this time (`fragmentRequestTimeout` there), and is repeated later
/// (`retryIntervals.MediaSegment`). dash.js gives up after three repetitions, this player does not.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// What a player asks of its origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlayerAction {
    /// A response of so many bytes, head included.
    Request { number: u64, bytes: u64, needs: PlayerNeeds },
    /// No more of this response.
    Cancel { number: u64 },
}

#[derive(Clone, Copy, Debug)]
enum PlayerPhase {
    /// Asks for this next.
    Delayed {
        until: Duration,
        resource: Resource,
    },
    Fetching(ResourceDownload),
    /// Adds what has come to its buffer.
    Appending {
        until: Duration,
        resource: Resource,
    },
    /// Looks again whether there is room in the buffer.
    Full {
        until: Duration,
    },
}

/// A player in virtual time: one request at a time, as dash.js 5.2.1 makes them. Times are since the play request.
#[derive(Clone, Debug)]
pub(crate) struct VirtualPlayer {
    setup: Arc<PlayerSetup>,
    phase: PlayerPhase,
    playback: PlaybackClock,
    estimate: ThroughputEstimate,
    selector: RungSelector,
    rung: usize,
    /// The rung of the initialisation segment that was added last, and those that have come.
    initialised: Option<usize>,
    known_inits: u64,
    /// Whether the rules are asked before the next request.
    asks_rules: bool,
    /// Delay of the next request for a segment.
    load_delay: Duration,
    next_index: u64,
    requests: u64,
    actions: Vec<PlayerAction>,
    totals: FetchTotals,
}

/// What a session has fetched.
#[derive(Clone, Copy, Debug, Default)]
struct FetchTotals {
    segments: u64,
    abandoned: u64,
    body_bytes: u64,
}

impl VirtualPlayer {
    /// Makes its play request at time zero.
    pub(crate) fn new(setup: Arc<PlayerSetup>) -> Self {
        Self {
            phase: PlayerPhase::Delayed { until: CONNECT_DELAY, resource: Resource::Connection },
            playback: PlaybackClock::new(&setup.ladder),
            estimate: ThroughputEstimate::default(),
            selector: RungSelector::new(&setup),
            rung: setup.ladder.best_within(INITIAL_KBPS),
            initialised: None,
            known_inits: 0,
            asks_rules: true,
            load_delay: Duration::ZERO,
            next_index: 0,
            requests: 0,
            actions: Vec::new(),
            totals: FetchTotals::default(),
            setup,
        }
    }

    /// When it has something to do, if nothing comes before.
    pub(crate) fn next_wake(&self) -> Duration {
        match &self.phase {
            PlayerPhase::Delayed { until, .. }
            | PlayerPhase::Appending { until, .. }
            | PlayerPhase::Full { until } => *until,
            PlayerPhase::Fetching(download) => {
                let timeout = download.requested + REQUEST_TIMEOUT;
                download.next_event().map_or(timeout, |at| at.min(timeout))
            }
        }
    }

    /// The actions since the last call, in their order.
    pub(crate) fn take_actions(&mut self) -> std::vec::Drain<'_, PlayerAction> {
        self.actions.drain(..)
    }

    /// So much of the response `number` has come in order, head included.
    pub(crate) fn on_bytes(&mut self, now: Duration, number: u64, bytes: u64) {
        let PlayerPhase::Fetching(download) = &mut self.phase else { return };
        if download.number != number {
            return;
        }
        // An event that was due before these bytes does not have them.
        if download.next_event().is_some_and(|at| at <= now) {
            self.on_progress(now);
        }
        let PlayerPhase::Fetching(download) = &mut self.phase else { return };
        if download.number == number {
            download.receive(bytes.saturating_sub(HEAD_BYTES));
            self.on_progress(now);
        }
    }

    /// Does what is due.
    pub(crate) fn advance_to(&mut self, now: Duration) {
        while self.next_wake() <= now {
            match self.phase {
                PlayerPhase::Delayed { resource, .. } => self.request(now, resource),
                PlayerPhase::Appending { resource, .. } => self.append(now, resource),
                PlayerPhase::Full { .. } => self.schedule(now),
                PlayerPhase::Fetching(download) if now >= download.requested + REQUEST_TIMEOUT => {
                    self.give_up(&download);
                    let until = now + RETRY_INTERVAL;
                    self.phase = PlayerPhase::Delayed { until, resource: download.resource };
                }
                PlayerPhase::Fetching(_) => self.on_progress(now),
            }
        }
    }

    fn level_s(&mut self, now: Duration) -> f64 {
        self.playback.advance_to(now);
        self.playback.level().as_secs_f64()
    }

    fn request(&mut self, now: Duration, resource: Resource) {
        let ladder = &self.setup.ladder;
        let body_bytes = match resource {
            // An answer to the first packet.
            Resource::Connection => 1,
            Resource::Manifest => ladder.manifest_bytes,
            Resource::Init { rung } => ladder.rungs[rung].init_bytes,
            Resource::Segment { index, rung } => ladder.segment_bytes(rung, index),
        };
        let needs = self.needs(now, resource);
        self.requests += 1;
        let number = self.requests;
        self.actions.push(PlayerAction::Request { number, bytes: HEAD_BYTES + body_bytes, needs });
        self.phase =
            PlayerPhase::Fetching(ResourceDownload::new(resource, number, now, body_bytes));
    }

    /// What dash.js says with a request (CMCD). Only requests for segments have what a cap needs.
    fn needs(&mut self, now: Duration, resource: Resource) -> PlayerNeeds {
        let Resource::Segment { rung, .. } = resource else { return PlayerNeeds::default() };
        self.playback.advance_to(now);
        reported_needs(
            &self.setup.ladder,
            rung,
            self.playback.level(),
            !self.playback.has_started(),
        )
    }

    /// Ends a download that is not complete. What it measured counts.
    fn give_up(&mut self, download: &ResourceDownload) {
        self.actions.push(PlayerAction::Cancel { number: download.number });
        self.totals.body_bytes += download.received_bytes();
        self.measure(download, None);
    }

    /// A progress event, if one is due.
    fn on_progress(&mut self, now: Duration) {
        let PlayerPhase::Fetching(download) = &mut self.phase else { return };
        if !download.fire_event(now) {
            return;
        }
        let download = *download;
        if download.is_complete() {
            self.complete(now, &download);
        } else if self.selector.may_abandon() {
            self.consider_abandoning(now, &download);
        }
    }

    fn measure(&mut self, download: &ResourceDownload, finished: Option<Duration>) {
        let is_segment = matches!(download.resource, Resource::Segment { .. });
        let is_cached = finished.is_some_and(|at| at - download.requested < CACHED_BELOW);
        if let Some((bytes, ms)) = download.measured().filter(|_| is_segment && !is_cached) {
            self.estimate.add(bytes, ms);
        }
    }

    fn complete(&mut self, now: Duration, download: &ResourceDownload) {
        self.totals.body_bytes += download.body_bytes;
        self.measure(download, Some(now));
        let resource = download.resource;
        self.phase = match resource {
            Resource::Connection => {
                PlayerPhase::Delayed { until: now, resource: Resource::Manifest }
            }
            Resource::Manifest => PlayerPhase::Full { until: now + MANIFEST_DELAY },
            Resource::Init { .. } => PlayerPhase::Appending { until: now + APPEND_DELAY, resource },
            Resource::Segment { index, rung } => {
                self.totals.segments += 1;
                let level_s = self.level_s(now);
                self.selector.on_level(level_s);
                let times_s = [download.requested, now].map(|at| at.as_secs_f64());
                self.selector.on_segment(index, rung, times_s, level_s);
                PlayerPhase::Appending { until: now + APPEND_DELAY, resource }
            }
        };
    }

    fn consider_abandoning(&mut self, now: Duration, download: &ResourceDownload) {
        let Resource::Segment { index, rung } = download.resource else { return };
        let Some((since_first_bytes, since_first_ms)) = download.measured() else { return };
        let level_s = self.level_s(now);
        if level_s > self.setup.buffer_target.as_secs_f64() {
            return;
        }
        let progress = DownloadProgress {
            index,
            rung,
            events: download.events(),
            loaded_bytes: download.received_bytes(),
            total_bytes: download.body_bytes,
            since_first_ms,
            since_first_bytes,
        };
        let instead = self.selector.abandonment.rung_instead(&self.setup.ladder, &progress);
        if let Some(rung) = instead {
            self.give_up(download);
            self.totals.abandoned += 1;
            self.selector.on_abandoned(index, rung, now.as_secs_f64(), level_s);
            self.rung = rung;
            self.next_index = index;
            self.asks_rules = false;
            self.schedule(now);
        }
    }

    fn append(&mut self, now: Duration, resource: Resource) {
        match resource {
            Resource::Init { rung } => {
                self.initialised = Some(rung);
                self.known_inits |= 1 << rung;
            }
            Resource::Segment { index, rung } => {
                let before_s = self.level_s(now);
                self.selector.on_level(before_s);
                self.playback.append(index, rung);
                let level_s = self.level_s(now);
                self.selector.on_level(level_s);
            }
            Resource::Connection | Resource::Manifest => {}
        }
        self.schedule(now);
    }

    /// Chooses the next request, or waits.
    fn schedule(&mut self, now: Duration) {
        let level_s = self.level_s(now);
        self.selector.on_level(level_s);
        if self.initialised.is_some() && !self.has_room(level_s) {
            self.phase = PlayerPhase::Full { until: now + FULL_BUFFER_INTERVAL };
            return;
        }
        if std::mem::replace(&mut self.asks_rules, false) {
            let choice = RungChoice {
                now_s: now.as_secs_f64(),
                level_s,
                current: self.rung,
                ladder: &self.setup.ladder,
                estimate: &self.estimate,
            };
            let (rung, delay) = self.selector.choose(&choice);
            self.load_delay = delay;
            if let Some(rung) = rung {
                self.go_to(rung, now);
            }
        }
        let rung = self.rung;
        if self.initialised != Some(rung) && self.known_inits & (1 << rung) == 0 {
            self.request(now, Resource::Init { rung });
            return;
        }
        self.initialised = Some(rung);
        self.asks_rules = true;
        let resource = Resource::Segment { index: self.next_index, rung };
        self.next_index += 1;
        let delay = std::mem::take(&mut self.load_delay);
        if delay.is_zero() {
            self.request(now, resource);
        } else {
            self.phase = PlayerPhase::Delayed { until: now + delay, resource };
        }
    }

    fn has_room(&self, level_s: f64) -> bool {
        let (target_s, segment_s) =
            (self.setup.buffer_target.as_secs_f64(), self.setup.ladder.segment_s());
        level_s + if target_s <= segment_s { 0.0 } else { segment_s } < target_s
    }

    /// Goes to another rung. With fast switch, what is buffered of lower rungs is fetched again from the segment on the
    /// screen on: `StreamProcessor.js` of dash.js 5.2.1 adds 1.5 lengths of a segment of the representation that
    /// `AbrController.js` names, where `fragmentDuration` is `null`, hence nothing.
    fn go_to(&mut self, rung: usize, now: Duration) {
        self.rung = rung;
        // Before the first frame dash.js begins with the first segment again, as in all sessions that were looked at.
        if !self.playback.has_started() {
            self.next_index = 0;
            return;
        }
        let (index, buffered) = self.playback.segment_at(self.playback.position());
        let is_blocked = self.selector.abandonment.blocks_higher_rungs(now.as_secs_f64());
        let is_up = buffered.is_some_and(|buffered| buffered < rung);
        if self.setup.fast_switch && is_up && !is_blocked {
            self.next_index = index;
        }
    }

    /// Since the play request.
    pub(crate) fn sample(&mut self, now: Duration) -> PlayerSample {
        self.playback.advance_to(now);
        self.playback.sample()
    }

    /// The figures of the session, if it ends now.
    pub(crate) fn outcome(&self, now: Duration) -> PlayerOutcome {
        let mut playback = self.playback.clone();
        playback.advance_to(now);
        let FetchTotals { segments, abandoned, body_bytes } = self.totals;
        let under_way = match &self.phase {
            PlayerPhase::Fetching(download) => download.received_bytes(),
            _ => 0,
        };
        PlayerOutcome {
            segments,
            abandoned,
            body_bytes: body_bytes + under_way,
            ..playback.outcome()
        }
    }
}

#[cfg(test)]
#[path = "virtual_player_tests.rs"]
mod tests;
