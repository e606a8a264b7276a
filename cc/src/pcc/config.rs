use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::controller::Pcc;
use super::restart::Restart;
use super::utility::Utility;
use crate::{Controller, ControllerConfig, PathStart, Time};

/// How a rate is found before there is one to learn from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StartUpKind {
    /// Twice the rate for an interval, then wait for its result: a doubling takes two round
    /// trips (Vivace, Section 4).
    Doubling,
    /// Twice what acknowledgements show to be delivered: a doubling a round trip. Beyond the
    /// papers, for paths with a long RTT.
    Pipelined,
}

/// What keeps noise in RTTs from deciding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoiseFilter {
    /// Thresholds alone: `gradient_filter` and `gradient_errors`.
    None,
    /// Those of Proteus (SIGCOMM '20, Section 5) in their place: a filter of acknowledgements
    /// that come in bursts, each interval's regression error, the trend of six intervals, and
    /// a majority of three pairs of probes.
    Proteus,
}

/// How outcomes become rates.
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
/// A member is a [`Utility`] and these; every one of them can be set by its name.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PccConfig {
    /// Name in configurations and results.
    #[serde(skip)]
    pub name: &'static str,
    /// What is to be maximised. Its fields are set by their own names, too.
    pub utility: Utility,
    /// How outcomes become rates.
    pub steps: Steps,
    /// Shortest and longest interval in round trips; each is drawn from between. Longer measures
    /// better and reacts later.
    pub interval_round_trips: [f64; 2],
    /// epsilon: probes go this far above and below the central rate, as a share of it. Larger
    /// tells more in noise and costs more where the rate is right.
    pub probe_step: f64,
    /// theta_0: change of rate in Mbit/s for a gradient of one. Larger is faster and less steady.
    pub conversion_factor: f64,
    /// omega_0: largest first change, as a share of the rate.
    pub boundary_start: f64,
    /// delta: what one more change beyond the boundary adds to it.
    pub boundary_step: f64,
    /// Largest change of rate in one decision, as a share of the rate; none is the paper.
    pub max_boundary: Option<f64>,
    /// The same for changes downwards.
    pub max_boundary_down: Option<f64>,
    /// Least change, as a share of the rate; zero is the paper. The gradient of an idle path is
    /// 0.57 at 100 Mbit/s and 0.45 at 1 Gbit/s: 0.05 % a decision would take minutes.
    pub min_change: f64,
    /// RTT gradients smaller than this are taken for zero, s/s (Section 4.3, Table 1).
    /// Larger bears more jitter, smaller finds queues earlier.
    pub gradient_filter: f64,
    /// RTT gradients smaller than this many of their standard errors are taken for zero. 0 is
    /// the paper.
    pub gradient_errors: f64,
    /// Differences in loss between two probes smaller than this many of their standard errors
    /// are taken for chance. 0 is the paper.
    pub loss_errors: f64,
    /// Whether a pair whose faster probe lost less is measured again (Section 4.3).
    pub double_check: bool,
    /// An interval that lost more than this share shows a path that has become slower: the rate
    /// falls at once to what was delivered. None is the paper.
    pub fall_at_loss: Option<f64>,
    /// Each gap between packets is drawn from this share of it around its mean. Packets at equal
    /// distances keep step with those of other flows, and then it is always the same flow that
    /// finds the buffer full. Zero is the paper.
    pub gap_spread: f64,
    /// What keeps noise in RTTs from deciding.
    pub noise_filter: NoiseFilter,
    /// Of those who mind latency: the window covers one and a half of the least round trip and so
    /// many milliseconds, at the rate in force. Less bounds the queue of a link that slows down,
    /// and holds back where its rate varies much or its path becomes longer. Beyond the papers,
    /// which have no window.
    pub queue_slack_ms: f64,
    /// Whether a train of packets at twice the rate asks after each rest of a round trip what the
    /// path carries by now. Beyond the papers, whose senders never rest.
    pub restart: bool,
    /// How the first rate is found. The two settings below are of the first kind only.
    pub start_up: StartUpKind,
    /// Whether start-up ignores the first 50 losses and gradients below 0.2 (Section 5.2.1).
    pub initial_ignorance: bool,
    /// Whether start-up ends at what the path delivered rather than at half of what was too
    /// much. One interval at the half comes first, for the queue to drain.
    pub start_from_delivered: bool,
}

impl PccConfig {
    /// Most that one decision may change, as a share of the rate.
    pub(super) fn largest_change(&self, up: bool) -> f64 {
        let largest = if up { self.max_boundary } else { self.max_boundary_down };
        largest.unwrap_or(f64::INFINITY)
    }

    pub(super) fn queue_slack(&self) -> Duration {
        Duration::from_secs_f64(self.queue_slack_ms / 1e3)
    }

    /// Why these settings can't be, if so.
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
        if !(0.0..=60_000.0).contains(&self.queue_slack_ms) {
            return Some("queue_slack_ms must be 0 to 60000");
        }
        let rest = [
            self.conversion_factor,
            self.boundary_start,
            self.boundary_step,
            self.largest_change(true),
            self.largest_change(false),
            self.min_change,
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

impl ControllerConfig for PccConfig {
    fn name(&self) -> &'static str {
        self.name
    }

    fn build(&self, _now: Time, start: &PathStart) -> Box<dyn Controller> {
        let pcc = Pcc::new(*self, start);
        if self.restart { Box::new(Restart::new(pcc)) } else { Box::new(pcc) }
    }
}
