use std::time::Duration;

use millrace_cc::Time;
use parquet_derive::ParquetRecordWriter;

use crate::{ConnectionRecord, Player, RuleInput};

/// Maximum duration of an episode: long enough that the queue left by the episode before hardly counts, short
/// enough to follow a path that changes every 20 s.
const MAX_DURATION: Duration = Duration::from_secs(10);
/// Shortest gap between two records that counts as a pause of the sender, if it also exceeds two round trips.
const MIN_PAUSE: Duration = Duration::from_millis(100);

/// A period of a connection under one algorithm: the state of the path at its beginning, and the outcome. A row
/// of the telemetry, without payload and addresses.
///
/// Rates are in Mbit/s (10^6 bit/s), shares from 0 to 1. Columns that begin with `player_` hold the player's own
/// reports (CTA-5004), and null without any.
#[derive(Clone, Debug, Default, PartialEq, ParquetRecordWriter)]
pub struct Episode {
    /// End of the episode, in milliseconds of Unix time; virtual time in the simulator.
    pub ended_ms: i64,
    /// Identity of the path; null outside the simulator.
    pub path: Option<String>,
    /// Number of the connection in its process.
    pub connection: i64,
    /// Traffic class of the connection: `rtsp`, `dash` or `bulk`.
    pub class: String,
    /// Algorithm of the episode.
    pub algorithm: String,
    /// Algorithm before the episode, under which the initial state was observed.
    pub before: String,
    /// Why the episode ended: `time`, `switch`, `path` (path change) or `closed`.
    pub end: String,
    /// Initial state: age of the connection.
    pub age_s: f64,
    /// Initial state: age of the path, counted from the last path change.
    pub path_age_s: f64,
    /// Initial state: smallest RTT of the path.
    pub min_rtt_ms: f64,
    /// Initial state: smallest RTT of the last ten seconds.
    pub recent_min_rtt_ms: f64,
    /// Initial state: largest RTT of the last ten seconds.
    pub recent_max_rtt_ms: f64,
    /// Initial state: smoothed RTT.
    pub smoothed_rtt_ms: f64,
    /// Initial state: mean deviation of the RTT.
    pub rtt_variation_ms: f64,
    /// Initial state: delivery rate of the last round trip.
    pub delivery_mbps: f64,
    /// Initial state: mean delivery rate of the last ten seconds, pauses included.
    pub mean_delivery_mbps: f64,
    /// Initial state: highest delivery rate of the last ten seconds.
    pub max_delivery_mbps: f64,
    /// Initial state: share of bytes lost over the last ten seconds.
    pub loss: f64,
    /// Initial state: share of packets lost over about ten events.
    pub loss_short: f64,
    /// Initial state: share of packets marked ECN-CE.
    pub ecn_ce: f64,
    /// Initial state: congestion window.
    pub window_bytes: f64,
    /// Initial state: bytes acknowledged since the connection was opened.
    pub delivered_bytes: f64,
    /// Duration of the episode.
    pub lasted_s: f64,
    /// Duration without pauses of the sender.
    pub active_s: f64,
    /// Delivery rate over `active_s`.
    pub rate_mbps: f64,
    /// Share of bytes lost.
    pub lost: f64,
    /// Mean RTT over time.
    pub mean_rtt_ms: f64,
    /// Largest RTT.
    pub largest_rtt_ms: f64,
    /// Media in the player's buffer at the beginning.
    pub player_buffer_s: Option<f64>,
    /// Media in the player's buffer at the end.
    pub player_buffer_end_s: Option<f64>,
    /// Bitrate requested at the end.
    pub player_bitrate_kbps: Option<f64>,
    /// Highest bitrate that the player may request.
    pub player_top_bitrate_kbps: Option<f64>,
    /// Whether the buffer ran empty during the episode.
    pub player_starved: Option<bool>,
}

/// Why an episode ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EpisodeEnd {
    Time,
    Switch,
    Path,
    Closed,
}

/// The current episode of a connection.
#[derive(Debug)]
pub(crate) struct OpenEpisode {
    input: RuleInput,
    before: String,
    began: Time,
    first: ConnectionRecord,
    last: ConnectionRecord,
    active: Duration,
    active_bytes: u64,
    /// Integral of the latest RTT over time.
    rtt_seconds: f64,
    largest_rtt: Duration,
    starved: Option<bool>,
}

impl OpenEpisode {
    /// Begins with the rule input at that time. `before` was the algorithm until then.
    pub(crate) fn new(input: RuleInput, before: String, record: ConnectionRecord) -> Self {
        Self {
            began: record.now,
            starved: input.player.map(|_| false),
            input,
            before,
            first: record,
            last: record,
            active: Duration::ZERO,
            active_bytes: 0,
            rtt_seconds: 0.0,
            largest_rtt: record.latest_rtt.get(),
        }
    }

    pub(crate) fn ingest(&mut self, record: ConnectionRecord) {
        let gap = record.now - self.last.now;
        if gap <= MIN_PAUSE.max(2 * record.smoothed_rtt.get()) {
            self.active += gap;
            self.active_bytes += record.delivered_bytes - self.last.delivered_bytes;
            self.rtt_seconds += gap.as_secs_f64() * record.latest_rtt.get().as_secs_f64();
        }
        self.largest_rtt = self.largest_rtt.max(record.latest_rtt.get());
        self.last = record;
    }

    pub(crate) fn ingest_player(&mut self, player: &Player) {
        self.starved = Some(self.starved.unwrap_or(false) || player.starved);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.last.now - self.began >= MAX_DURATION
    }

    /// The completed episode; `None` if nothing was delivered.
    pub(crate) fn close(self, end: EpisodeEnd, player: Option<Player>) -> Option<Episode> {
        let Self { input, before, began, first, last, largest_rtt, starved, .. } = self;
        if self.active_bytes == 0 || self.active.is_zero() {
            return None;
        }
        let active_s = self.active.as_secs_f64();
        let delivered = last.delivered_bytes - first.delivered_bytes;
        // A late packet reverts its loss.
        let lost = last.lost_bytes.saturating_sub(first.lost_bytes);
        let end = match end {
            EpisodeEnd::Time => "time",
            EpisodeEnd::Switch => "switch",
            EpisodeEnd::Path => "path",
            EpisodeEnd::Closed => "closed",
        };
        Some(Episode {
            ended_ms: i64::try_from(last.now.as_nanos() / 1_000_000).unwrap_or(i64::MAX),
            path: None,
            connection: i64::try_from(input.connection).unwrap_or(i64::MAX),
            class: input.class.as_str().to_owned(),
            algorithm: input.algorithm,
            before,
            end: end.to_owned(),
            age_s: input.age_s,
            path_age_s: input.path_age_s,
            min_rtt_ms: input.min_rtt_ms,
            recent_min_rtt_ms: input.recent_min_rtt_ms,
            recent_max_rtt_ms: input.recent_max_rtt_ms,
            smoothed_rtt_ms: input.smoothed_rtt_ms,
            rtt_variation_ms: input.rtt_variation_ms,
            delivery_mbps: input.delivery_mbps,
            mean_delivery_mbps: input.mean_delivery_mbps,
            max_delivery_mbps: input.max_delivery_mbps,
            loss: input.loss,
            loss_short: input.loss_short,
            ecn_ce: input.ecn_ce,
            window_bytes: input.window_bytes,
            delivered_bytes: input.delivered_bytes,
            lasted_s: (last.now - began).as_secs_f64(),
            active_s,
            rate_mbps: self.active_bytes as f64 * 8e-6 / active_s,
            lost: lost as f64 / (lost + delivered) as f64,
            mean_rtt_ms: self.rtt_seconds / active_s * 1e3,
            largest_rtt_ms: largest_rtt.as_secs_f64() * 1e3,
            player_buffer_s: input.player.and_then(|it| it.buffer_s),
            player_buffer_end_s: player.and_then(|it| it.buffer_s),
            player_bitrate_kbps: player.and_then(|it| it.bitrate_kbps),
            player_top_bitrate_kbps: player.and_then(|it| it.top_bitrate_kbps),
            player_starved: starved,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(ms: u64, delivered_bytes: u64, lost_bytes: u64, rtt_ms: u64) -> ConnectionRecord {
        let at = Time::from_nanos(ms * 1_000_000);
        let empty = ConnectionRecord::new(7, at, &millrace_cc::PathModel::default());
        let latest_rtt = Duration::from_millis(rtt_ms).into();
        ConnectionRecord { latest_rtt, delivered_bytes, lost_bytes, ..empty }
    }

    #[test]
    fn rate_excludes_pauses() {
        let input = RuleInput { algorithm: "bbr".to_owned(), ..RuleInput::default() };
        let mut open = OpenEpisode::new(input, "cubic".to_owned(), record(1000, 0, 0, 20));
        open.ingest(record(1100, 100_000, 0, 20));
        // A pause of five seconds, and the round trip after it.
        open.ingest(record(6100, 102_000, 0, 90));
        open.ingest(record(6200, 182_000, 18_000, 40));
        assert!(!open.is_over());
        let episode = open.close(EpisodeEnd::Switch, None).unwrap();
        assert_eq!((episode.lasted_s, episode.active_s), (5.2, 0.2));
        assert!((episode.rate_mbps - 7.2).abs() < 1e-9, "{}", episode.rate_mbps);
        assert!((episode.lost - 0.09).abs() < 1e-9, "{}", episode.lost);
        assert!((episode.mean_rtt_ms - 30.0).abs() < 1e-9, "{}", episode.mean_rtt_ms);
        assert_eq!(episode.largest_rtt_ms, 90.0);
        assert_eq!((episode.before.as_str(), episode.algorithm.as_str()), ("cubic", "bbr"));
        assert_eq!((episode.end.as_str(), episode.player_starved), ("switch", None));
    }

    #[test]
    fn episode_without_active_time_is_discarded() {
        let mut open = OpenEpisode::new(RuleInput::default(), String::new(), record(0, 5, 0, 20));
        open.ingest(record(5000, 1000, 0, 20));
        assert_eq!(open.close(EpisodeEnd::Closed, None), None);
    }

    #[test]
    fn episode_ends_after_ten_seconds_and_includes_player_reports() {
        let mut open = OpenEpisode::new(RuleInput::default(), String::new(), record(0, 0, 0, 20));
        open.ingest(record(9999, 1, 0, 20));
        assert!(!open.is_over());
        open.ingest(record(10_000, 2, 0, 20));
        assert!(open.is_over());
        let starving = Player { starved: true, buffer_s: Some(0.5), ..Player::default() };
        open.ingest_player(&starving);
        open.ingest_player(&Player { starved: false, ..starving });
        let episode = open.close(EpisodeEnd::Time, Some(starving)).unwrap();
        assert_eq!((episode.player_starved, episode.player_buffer_end_s), (Some(true), Some(0.5)));
        assert_eq!((episode.lasted_s, episode.end.as_str()), (10.0, "time"));
    }
}
