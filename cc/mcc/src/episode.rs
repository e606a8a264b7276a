use std::time::Duration;

use millrace_cc::Time;
use parquet_derive::ParquetRecordWriter;

use crate::{Facts, Player, Record};

/// An episode ends after so long. Long enough that what came of it is not what the one before left in the
/// queue, short enough that a path that changes every 20 s is seen to.
const LONGEST: Duration = Duration::from_secs(10);
/// Between two records of a connection that has data: more than this and than two round trips is a pause,
/// and does not count.
const PAUSE: Duration = Duration::from_millis(100);

/// A stretch of a connection's life under one algorithm: what its path looked like when it began, and what
/// came of it. A row of the telemetry; there is neither payload nor address in it.
///
/// Rates are in Mbit/s (10^6 bit/s), shares from 0 to 1. What begins with `player_` is what the player said
/// of itself (CTA-5004), and null where there is none.
#[derive(Clone, Debug, Default, PartialEq, ParquetRecordWriter)]
pub struct Episode {
    /// When it ended, in milliseconds of Unix time; in virtual time of the simulator's.
    pub ended_ms: i64,
    /// Which path it was, where somebody knows: of the simulator's only.
    pub path: Option<String>,
    /// Number of the connection in its process.
    pub connection: i64,
    /// What the connection carries: `rtsp`, `dash` or `bulk`.
    pub class: String,
    /// What drove it.
    pub algorithm: String,
    /// What had driven it before, under which the path looked as below.
    pub before: String,
    /// Why it ended: `time`, `switch`, `path` (it became another one) or `closed`.
    pub end: String,
    /// Age of the connection when it began.
    pub age_s: f64,
    /// Then: age of the path, which becomes another one when round trips change at once and for good.
    pub path_age_s: f64,
    /// Then: smallest round trip of that path.
    pub min_rtt_ms: f64,
    /// Then: smallest round trip of ten seconds.
    pub recent_min_rtt_ms: f64,
    /// Then: largest round trip of ten seconds.
    pub recent_max_rtt_ms: f64,
    /// Then: smoothed round trip.
    pub smoothed_rtt_ms: f64,
    /// Then: its mean deviation.
    pub rtt_variation_ms: f64,
    /// Then: delivery rate of the last round trip.
    pub delivery_mbps: f64,
    /// Then: delivery rate over ten seconds, pauses included.
    pub mean_delivery_mbps: f64,
    /// Then: the highest of ten seconds.
    pub max_delivery_mbps: f64,
    /// Then: bytes lost over ten seconds.
    pub loss: f64,
    /// Then: packets lost over about ten events.
    pub loss_short: f64,
    /// Then: packets marked ECN-CE.
    pub ecn_ce: f64,
    /// Then: congestion window.
    pub window_bytes: f64,
    /// Then: bytes acknowledged since the connection was opened.
    pub delivered_bytes: f64,
    /// Its time.
    pub lasted_s: f64,
    /// Its time less pauses of its sender.
    pub active_s: f64,
    /// Acknowledged in that time.
    pub rate_mbps: f64,
    /// Lost in it.
    pub lost: f64,
    /// Mean of the round trips in it, by time.
    pub mean_rtt_ms: f64,
    /// The largest of them.
    pub largest_rtt_ms: f64,
    /// Media in the player's buffer when it began.
    pub player_buffer_s: Option<f64>,
    /// The same when it ended.
    pub player_buffer_end_s: Option<f64>,
    /// Bitrate asked for when it ended.
    pub player_bitrate_kbps: Option<f64>,
    /// The highest that may be asked for.
    pub player_top_bitrate_kbps: Option<f64>,
    /// Whether the buffer ran empty in it.
    pub player_starved: Option<bool>,
}

/// Why an episode ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Time,
    Switch,
    Path,
    Closed,
}

/// An episode that goes on.
#[derive(Debug)]
pub(crate) struct Open {
    facts: Facts,
    before: String,
    began: Time,
    first: Record,
    last: Record,
    active: Duration,
    active_bytes: u64,
    /// Of round trips, each as long as it was the latest.
    rtt_seconds: f64,
    largest_rtt: Duration,
    starved: Option<bool>,
}

impl Open {
    /// Begins with what rules were told then. `before` drove until then.
    pub(crate) fn new(facts: Facts, before: String, record: Record) -> Self {
        Self {
            began: record.now,
            starved: facts.player.map(|_| false),
            facts,
            before,
            first: record,
            last: record,
            active: Duration::ZERO,
            active_bytes: 0,
            rtt_seconds: 0.0,
            largest_rtt: record.latest_rtt.get(),
        }
    }

    pub(crate) fn hear(&mut self, record: Record) {
        let gap = record.now - self.last.now;
        if gap <= PAUSE.max(2 * record.smoothed_rtt.get()) {
            self.active += gap;
            self.active_bytes += record.delivered_bytes - self.last.delivered_bytes;
            self.rtt_seconds += gap.as_secs_f64() * record.latest_rtt.get().as_secs_f64();
        }
        self.largest_rtt = self.largest_rtt.max(record.latest_rtt.get());
        self.last = record;
    }

    pub(crate) fn hear_player(&mut self, player: &Player) {
        self.starved = Some(self.starved.unwrap_or(false) || player.starved);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.last.now - self.began >= LONGEST
    }

    /// What has come of it; nothing where nothing was delivered.
    pub(crate) fn close(self, end: End, player: Option<Player>) -> Option<Episode> {
        let Self { facts, before, began, first, last, largest_rtt, starved, .. } = self;
        if self.active_bytes == 0 || self.active.is_zero() {
            return None;
        }
        let active_s = self.active.as_secs_f64();
        let delivered = last.delivered_bytes - first.delivered_bytes;
        // A late packet takes its loss back.
        let lost = last.lost_bytes.saturating_sub(first.lost_bytes);
        let end = match end {
            End::Time => "time",
            End::Switch => "switch",
            End::Path => "path",
            End::Closed => "closed",
        };
        Some(Episode {
            ended_ms: i64::try_from(last.now.as_nanos() / 1_000_000).unwrap_or(i64::MAX),
            path: None,
            connection: i64::try_from(facts.connection).unwrap_or(i64::MAX),
            class: facts.class.as_str().to_owned(),
            algorithm: facts.algorithm,
            before,
            end: end.to_owned(),
            age_s: facts.age_s,
            path_age_s: facts.path_age_s,
            min_rtt_ms: facts.min_rtt_ms,
            recent_min_rtt_ms: facts.recent_min_rtt_ms,
            recent_max_rtt_ms: facts.recent_max_rtt_ms,
            smoothed_rtt_ms: facts.smoothed_rtt_ms,
            rtt_variation_ms: facts.rtt_variation_ms,
            delivery_mbps: facts.delivery_mbps,
            mean_delivery_mbps: facts.mean_delivery_mbps,
            max_delivery_mbps: facts.max_delivery_mbps,
            loss: facts.loss,
            loss_short: facts.loss_short,
            ecn_ce: facts.ecn_ce,
            window_bytes: facts.window_bytes,
            delivered_bytes: facts.delivered_bytes,
            lasted_s: (last.now - began).as_secs_f64(),
            active_s,
            rate_mbps: self.active_bytes as f64 * 8e-6 / active_s,
            lost: lost as f64 / (lost + delivered) as f64,
            mean_rtt_ms: self.rtt_seconds / active_s * 1e3,
            largest_rtt_ms: largest_rtt.as_secs_f64() * 1e3,
            player_buffer_s: facts.player.and_then(|it| it.buffer_s),
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

    fn record(ms: u64, delivered_bytes: u64, lost_bytes: u64, rtt_ms: u64) -> Record {
        let at = Time::from_nanos(ms * 1_000_000);
        let of_none = Record::new(7, at, &millrace_cc::PathModel::default());
        let latest_rtt = Duration::from_millis(rtt_ms).into();
        Record { latest_rtt, delivered_bytes, lost_bytes, ..of_none }
    }

    #[test]
    fn rates_are_of_the_time_without_pauses() {
        let facts = Facts { algorithm: "bbr".to_owned(), ..Facts::default() };
        let mut open = Open::new(facts, "cubic".to_owned(), record(1000, 0, 0, 20));
        open.hear(record(1100, 100_000, 0, 20));
        // Nothing to send for five seconds, and the round trip that it takes to hear of what comes next.
        open.hear(record(6100, 102_000, 0, 90));
        open.hear(record(6200, 182_000, 18_000, 40));
        assert!(!open.is_over());
        let episode = open.close(End::Switch, None).unwrap();
        assert_eq!((episode.lasted_s, episode.active_s), (5.2, 0.2));
        assert!((episode.rate_mbps - 7.2).abs() < 1e-9, "{}", episode.rate_mbps);
        assert!((episode.lost - 0.09).abs() < 1e-9, "{}", episode.lost);
        assert!((episode.mean_rtt_ms - 30.0).abs() < 1e-9, "{}", episode.mean_rtt_ms);
        assert_eq!(episode.largest_rtt_ms, 90.0);
        assert_eq!((episode.before.as_str(), episode.algorithm.as_str()), ("cubic", "bbr"));
        assert_eq!((episode.end.as_str(), episode.player_starved), ("switch", None));
    }

    #[test]
    fn of_silence_nothing_is_kept() {
        let mut open = Open::new(Facts::default(), String::new(), record(0, 5, 0, 20));
        open.hear(record(5000, 1000, 0, 20));
        assert_eq!(open.close(End::Closed, None), None);
    }

    #[test]
    fn it_lasts_ten_seconds_and_hears_the_player() {
        let mut open = Open::new(Facts::default(), String::new(), record(0, 0, 0, 20));
        open.hear(record(9999, 1, 0, 20));
        assert!(!open.is_over());
        open.hear(record(10_000, 2, 0, 20));
        assert!(open.is_over());
        let starving = Player { starved: true, buffer_s: Some(0.5), ..Player::default() };
        open.hear_player(&starving);
        open.hear_player(&Player { starved: false, ..starving });
        let episode = open.close(End::Time, Some(starving)).unwrap();
        assert_eq!((episode.player_starved, episode.player_buffer_end_s), (Some(true), Some(0.5)));
        assert_eq!((episode.lasted_s, episode.end.as_str()), (10.0, "time"));
    }
}
