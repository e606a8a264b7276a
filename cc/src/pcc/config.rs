use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::utility::Utility;

/// How start-up finds the first rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StartUpKind {
    /// Twice the rate for an interval, then wait for its result: a doubling takes two round
    /// trips (Vivace, Section 4).
    Doubling,
    /// By acknowledgements: the window grows to 2.25 times in a round trip. Not in the papers.
    Pipelined,
}

/// Filter for noise in RTTs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoiseFilter {
    /// Thresholds alone: `gradient_filter` and `gradient_errors`.
    None,
    /// The thresholds, and no more than the least RTTs of the halves of an interval show: bursts of delay, as of hosts
    /// whose processors are busy, are no queue. Not in the papers.
    Floors,
    /// The filters of Proteus (SIGCOMM '20, Section 5) instead of the thresholds: for bursts of
    /// acknowledgements, by each interval's regression error, by the trend of six intervals, and
    /// by a majority of three pairs of probes.
    Proteus,
}

/// How outcomes determine the next rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Steps {
    /// In proportion to the utility's gradient (Vivace, Section 4).
    Gradient,
    /// Of fixed size (PCC, NSDI '15, Section 3.2).
    Fixed,
}

/// Settings of a member of the family; also its factory.
///
/// A member consists of a [`Utility`] and these settings. Each setting can be given by its name.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PccConfig {
    /// Name in configurations and results.
    #[serde(skip)]
    pub name: &'static str,
    /// The objective. Its fields are set by their own names, too.
    pub utility: Utility,
    /// How outcomes determine the next rate.
    pub steps: Steps,
    /// Shortest and longest interval in round trips; each is drawn from that range. Longer intervals
    /// measure better and react later.
    pub interval_round_trips: [f64; 2],
    /// epsilon: distance of probes above and below the central rate, as a share of it. Larger probes
    /// stand out from noise and cost more where the rate is right.
    pub probe_step: f64,
    /// theta_0: change of rate in Mbit/s for a gradient of one. Larger is faster and less steady.
    pub conversion_factor: f64,
    /// omega_0: largest first change, as a share of the rate.
    pub boundary_start: f64,
    /// delta: increase of the boundary for each further change beyond it.
    pub boundary_step: f64,
    /// Largest increase of the rate in one decision, as a share of the rate; the paper has none.
    pub max_boundary: Option<f64>,
    /// Largest decrease of the rate in one decision, as a share of the rate; the paper has none.
    pub max_boundary_down: Option<f64>,
    /// The same where the RTT alone asks for the decrease; without it `max_boundary_down`.
    pub max_boundary_down_by_rtt: Option<f64>,
    /// Least change, as a share of the rate; the paper has zero. On a fast idle path the gradient
    /// alone changes the rate by less than 0.1 % a decision.
    pub min_change: f64,
    /// With a standing queue the boundary of increases is, at first, so many packets a round trip in place of
    /// `boundary_start`: the same for all flows that share the queue. The paper has a share of the rate.
    pub queued_increase_packets: Option<f64>,
    /// Least decrease with a standing queue, as a share of the rate. The paper has zero.
    pub queued_min_decrease: f64,
    /// `loss_errors` with a standing queue; without it the same.
    pub queued_loss_errors: Option<f64>,
    /// Least change in Mbit/s, also beyond the boundary. The paper has zero.
    pub min_change_mbps: f64,
    /// Least distance of probes from the central rate, in Mbit/s. The paper has zero.
    pub min_probe_mbps: f64,
    /// Whether a change of direction needs two pairs of probes that agree, and a step in the same direction one
    /// pair. The paper has one pair for every step.
    pub agreeing_pairs: bool,
    /// The intervals of a round count with the loss rate of the whole round where that is at most this. The paper has
    /// zero.
    pub pooled_loss: f64,
    /// RTT gradients smaller than this count as zero, s/s (Section 4.3, Table 1).
    /// A larger value tolerates more jitter, a smaller one finds queues earlier.
    pub gradient_filter: f64,
    /// RTT gradients smaller than this many of their standard errors count as zero. The paper has 0.
    pub gradient_errors: f64,
    /// RTT gradients are cut to multiples of this, s/s. The paper has 0, which cuts nothing.
    pub gradient_quantum: f64,
    /// Differences in loss between two probes smaller than this many of their standard errors count
    /// as random. The paper has 0.
    pub loss_errors: f64,
    /// Whether a pair whose faster probe lost less is measured again (Section 4.3).
    pub double_check: bool,
    /// Least loss rate of a round for that check; it then also needs a difference of more than two packets. The paper
    /// has zero, and no such difference.
    pub double_check_loss: f64,
    /// An interval that lost more than this share shows that the path became slower: the rate
    /// falls immediately to the delivery rate. The paper has none.
    pub fall_at_loss: Option<f64>,
    /// An interval that lost more than this share halves the rate. The paper has none.
    pub halve_at_loss: Option<f64>,
    /// Factor of the rate after an interval in which the application ran out of data, and which lost more than
    /// `fall_at_loss`; it stays at 1.25 times the mean of what is sent. The papers have none.
    pub burst_decrease: Option<f64>,
    /// Whether an interval without feedback for T_timeout halves the rate (Section 4.3, Table 1).
    pub interval_timeout: bool,
    /// Spread of each gap between packets around its mean, as a share of the mean. Evenly spaced
    /// flows stay synchronised, and the same flow then always meets the full buffer. The paper has 0.
    pub gap_spread: f64,
    /// Filter for noise in RTTs.
    pub noise_filter: NoiseFilter,
    /// Whether the window of a member that is not latency-sensitive is that of latency-sensitive ones.
    pub base_rtt_window: bool,
    /// For how many seconds an overflow of the buffer bounds the bytes in flight by what it left; 0 for never.
    pub loss_window_s: f64,
    /// Packets by which that bound grows in a round trip.
    pub loss_window_growth: f64,
    /// The window covers one and a half times the base RTT and this
    /// many milliseconds, at the rate in force. A smaller value bounds the queue of a link that slows
    /// down, and limits the rate where it varies much or the path becomes longer. Not in the papers,
    /// which have no window.
    pub queue_headroom_ms: f64,
    /// Whether packet trains at twice the rate probe the available capacity after each pause of a
    /// round trip. Not in the papers, whose senders never pause.
    pub bandwidth_probe: bool,
    /// The rate to start with, 10^6 bit/s; without it the initial window in a round trip.
    pub initial_rate_mbps: Option<f64>,
    /// Most packets of the initial window, whatever the sender's is.
    pub initial_window_packets: Option<u64>,
    /// How start-up finds the first rate. The two settings below apply to `doubling` only.
    pub start_up: StartUpKind,
    /// Whether start-up ignores the first 50 losses and gradients below 0.2 (Section 5.2.1).
    pub initial_ignorance: bool,
    /// Whether start-up ends at the delivery rate rather than at half of the rate that was too
    /// high. One interval at half the rate comes first, for the queue to drain.
    pub start_from_delivered: bool,
}

impl PccConfig {
    /// Largest change of one decision, as a share of the rate.
    pub(super) fn largest_change(&self, up: bool) -> f64 {
        let largest = if up { self.max_boundary } else { self.max_boundary_down };
        largest.unwrap_or(f64::INFINITY)
    }

    /// Largest decrease that no loss asks for, as a share of the rate.
    pub(super) fn largest_change_by_rtt(&self) -> f64 {
        self.max_boundary_down_by_rtt.unwrap_or(self.largest_change(false))
    }

    pub(super) fn queue_headroom(&self) -> Duration {
        Duration::from_secs_f64(self.queue_headroom_ms / 1e3)
    }

    /// Why these settings are invalid; `None` if they are valid.
    pub(super) fn fault(&self) -> Option<&'static str> {
        let [shortest, longest] = self.interval_round_trips;
        if !(shortest > 0.0 && longest >= shortest && longest <= 10.0) {
            return Some("interval_round_trips must be two numbers above 0 to 10, in order");
        }
        if !(self.probe_step > 0.0 && self.probe_step <= 0.5) {
            return Some("probe_step must be above 0 and at most 0.5");
        }
        if !(0.0..=0.9).contains(&self.gap_spread) {
            return Some("gap_spread must be 0 to 0.9");
        }
        if self.burst_decrease.is_some_and(|factor| !(0.0..1.0).contains(&factor)) {
            return Some("burst_decrease must be 0 to below 1");
        }
        if !(0.0..=60_000.0).contains(&self.queue_headroom_ms) {
            return Some("queue_headroom_ms must be 0 to 60000");
        }
        if self.initial_rate_mbps.is_some_and(|rate| !(0.02..=100_000.0).contains(&rate)) {
            return Some("initial_rate_mbps must be 0.02 to 100000");
        }
        if self.initial_window_packets == Some(0) {
            return Some("initial_window_packets must be at least 1");
        }
        let rest = [
            self.min_change_mbps,
            self.min_probe_mbps,
            self.pooled_loss,
            self.gradient_quantum,
            self.double_check_loss,
            self.halve_at_loss.unwrap_or_default(),
            self.conversion_factor,
            self.boundary_start,
            self.boundary_step,
            self.largest_change(true),
            self.largest_change(false),
            self.largest_change_by_rtt(),
            self.min_change,
            self.queued_min_decrease,
            self.queued_loss_errors.unwrap_or_default(),
            self.queued_increase_packets.unwrap_or_default(),
            self.loss_window_s,
            self.loss_window_growth,
            self.gradient_filter,
            self.gradient_errors,
            self.loss_errors,
        ];
        if rest.iter().any(|value| value.is_nan() || *value < 0.0) {
            return Some("no setting can be below 0");
        }
        self.utility.fault()
    }
}
