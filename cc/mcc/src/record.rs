use std::time::Duration;

use millrace_cc::{PathModel, Time};

use crate::{Class, Player};

/// A time in nanoseconds. [`Duration`] has twice the size, and the queue moves each record from core to core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nanos(u64);

impl Nanos {
    /// Whether the time is zero.
    pub fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The time as a [`Duration`].
    pub fn get(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// Number of nanoseconds.
    pub(crate) fn count(self) -> u64 {
        self.0
    }
}

impl From<Duration> for Nanos {
    /// Saturates at 584 years.
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// State of a connection after an acknowledgement or loss (MCC, Section 3.2.1).
///
/// A record is a state and not a difference: a dropped record costs only freshness.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConnectionRecord {
    /// Number of the connection.
    pub connection: u64,
    /// Time of the record.
    pub now: Time,
    /// Smallest RTT of the path; like all RTTs, zero before the first sample.
    pub min_rtt: Nanos,
    /// Largest RTT of the path.
    pub max_rtt: Nanos,
    /// Latest RTT sample.
    pub latest_rtt: Nanos,
    /// Smoothed RTT (RFC 9002, Section 5.3).
    pub smoothed_rtt: Nanos,
    /// Mean deviation of the RTT.
    pub rtt_variation: Nanos,
    /// Delivery rate of the last round trip, in bit/s.
    pub delivery_bps: u64,
    /// Highest delivery rate of the last ten seconds.
    pub max_delivery_bps: u64,
    /// Highest delivery rate since the connection was opened.
    pub peak_delivery_bps: u64,
    /// Share of packets lost over about the last ten events.
    pub loss_short: f32,
    /// Share of packets marked ECN-CE, a recent average.
    pub ecn_ce: f32,
    /// Congestion window.
    pub window_bytes: u64,
    /// Bytes acknowledged so far.
    pub delivered_bytes: u64,
    /// Bytes declared lost so far.
    pub lost_bytes: u64,
    /// Number of path changes.
    pub path_changes: u32,
    /// Smallest RTT of the path divided by that of the path before; 0 without a path change.
    pub rtt_ratio: f32,
}

impl ConnectionRecord {
    /// Takes the state of `path` at `now`.
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
            path_changes: path.path_changes,
            rtt_ratio: path.rtt_ratio as f32,
        }
    }
}

/// An update from the agent to its Selector.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PathUpdate {
    /// A connection was opened, or its class has changed.
    Opened {
        /// Number of the connection.
        connection: u64,
        /// Time of the update.
        now: Time,
        /// Traffic class that the connection carries.
        class: Class,
        /// Index of the algorithm in use.
        algorithm: u16,
    },
    /// Packets were acknowledged or declared lost.
    Acked(ConnectionRecord),
    /// A player reported its state (CTA-5004).
    Player {
        /// Number of the connection that carries the player's flow.
        connection: u64,
        /// Time of the report.
        now: Time,
        /// The report.
        player: Player,
    },
    /// The algorithm was changed or pinned by other means than the rules.
    Set {
        /// Number of the connection.
        connection: u64,
        /// Time of the change.
        now: Time,
        /// Index of the algorithm in use.
        algorithm: u16,
        /// Whether the rules must not change the algorithm, until the next update of this kind.
        pinned: bool,
    },
    /// A connection was closed.
    Closed {
        /// Number of the connection.
        connection: u64,
    },
}

/// A request from the Selector to the agent: switch a connection to an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchRequest {
    /// Number of the connection.
    pub connection: u64,
    /// Index of the algorithm.
    pub algorithm: u16,
    /// Whether the path is new: then the algorithm restarts even if it is already in use.
    pub is_new_path: bool,
}
