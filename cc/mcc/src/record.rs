use std::time::Duration;

use millrace_cc::{PathModel, Time};

use crate::{Class, Player};

/// A time in nanoseconds. [`Duration`] has twice the size, and of records the pipe moves as much from core
/// to core as they are large.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nanos(u64);

impl Nanos {
    /// Whether it is none at all.
    pub fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// For whoever counts with it.
    pub fn get(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// How many.
    pub(crate) fn count(self) -> u64 {
        self.0
    }
}

impl From<Duration> for Nanos {
    /// Of more than 584 years those.
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// What an agent says of a connection with one acknowledgement or loss (MCC, Section 3.2.1).
///
/// It is a state and not a difference: one that found no room in the pipe costs nothing but freshness.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record {
    /// Which connection.
    pub connection: u64,
    /// When.
    pub now: Time,
    /// Smallest RTT so far; zero before the first sample, as of the others.
    pub min_rtt: Nanos,
    /// Largest RTT so far.
    pub max_rtt: Nanos,
    /// The last sample.
    pub latest_rtt: Nanos,
    /// Smoothed (RFC 9002, Section 5.3).
    pub smoothed_rtt: Nanos,
    /// Its mean deviation.
    pub rtt_variation: Nanos,
    /// Last round trip's delivery rate, in bit/s.
    pub delivery_bps: u64,
    /// The highest of the last ten seconds.
    pub max_delivery_bps: u64,
    /// The highest ever.
    pub peak_delivery_bps: u64,
    /// Share of packets lost over about the last ten events.
    pub loss_short: f32,
    /// Share of packets marked ECN-CE, as recent.
    pub ecn_ce: f32,
    /// Congestion window in force.
    pub window_bytes: u64,
    /// Acknowledged so far.
    pub delivered_bytes: u64,
    /// Declared lost so far.
    pub lost_bytes: u64,
    /// How often the path has become another one.
    pub path_changes: u32,
    /// Its smallest RTT by that of the one before; 0 where there was none.
    pub rtt_ratio: f32,
}

impl Record {
    /// Of what is known of a path at `now`.
    pub fn new(connection: u64, now: Time, path: &PathModel) -> Self {
        Self {
            connection,
            now,
            min_rtt: path.min_rtt.unwrap_or_default().into(),
            max_rtt: path.max_rtt.into(),
            latest_rtt: path.latest_rtt.into(),
            smoothed_rtt: path.smoothed_rtt.into(),
            rtt_variation: path.rtt_variation.into(),
            delivery_bps: path.delivery_rate.bits_per_s(),
            max_delivery_bps: path.max_delivery_rate.bits_per_s(),
            peak_delivery_bps: path.peak_delivery_rate.bits_per_s(),
            loss_short: path.loss_short as f32,
            ecn_ce: path.ecn_ce as f32,
            window_bytes: path.window_bytes,
            delivered_bytes: path.delivered_bytes,
            lost_bytes: path.lost_bytes,
            path_changes: path.changes,
            rtt_ratio: path.rtt_ratio as f32,
        }
    }
}

/// What goes up the pipe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum News {
    /// A connection begins.
    Opened {
        /// Which.
        connection: u64,
        /// When.
        now: Time,
        /// What it carries.
        class: Class,
        /// Which of the candidates drives it.
        algorithm: u16,
    },
    /// Packets were acknowledged or declared lost.
    Acked(Record),
    /// A player said something of itself (CTA-5004).
    Player {
        /// Which connection carries it.
        connection: u64,
        /// When.
        now: Time,
        /// What it said.
        player: Player,
    },
    /// Somebody else has changed the algorithm, or pinned it: the rules leave a pinned one alone.
    Set {
        /// Which connection.
        connection: u64,
        /// When.
        now: Time,
        /// Which of the candidates drives it now.
        algorithm: u16,
        /// Until further news.
        pinned: bool,
    },
    /// A connection ends.
    Closed {
        /// Which.
        connection: u64,
    },
}

/// What comes back: another algorithm for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Which connection.
    pub connection: u64,
    /// Which of the candidates.
    pub algorithm: u16,
    /// Even if it drives already: the path is a new one.
    pub anew: bool,
}
