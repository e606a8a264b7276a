use serde::{Deserialize, Serialize};

use super::Bbr;
use crate::bbr::between;
use crate::{Controller, ControllerConfig, PathStart, Time};

/// Settings of BBR version 1; also its factory.
///
/// The defaults are those of draft-cardwell-iccrg-bbr-congestion-control-00 and of Linux 4.10,
/// against which the papers compare. `docs/cc/bbr.md` has what each costs at its extremes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BbrConfig {
    /// Paces below the estimated bandwidth by so much, 0 to 50 per cent, so that an estimate that
    /// is right does not keep a queue standing. Linux 4.10 has it by leaving link headers out.
    #[serde(deserialize_with = "between::<_, 0, 50>")]
    pub pacing_margin_percent: u64,
    /// The highest delivery rate of so many round trips is the bandwidth (Section 4.1.2.1: a
    /// gain cycle and two more), 1 to 1000.
    #[serde(deserialize_with = "between::<_, 1, 1000>")]
    pub bandwidth_rounds: u64,
    /// The RTT is measured anew when its minimum is older than this (Section 4.1.3), 100 ms to
    /// an hour.
    #[serde(deserialize_with = "between::<_, 100, 3_600_000>")]
    pub min_rtt_window_ms: u64,
    /// How long it is measured, with four packets in flight (Section 4.3.5), 0 to 10 s.
    #[serde(deserialize_with = "between::<_, 0, 10_000>")]
    pub probe_rtt_ms: u64,
    /// Whether the window allows for acknowledgements that come in bunches (Linux 5.1).
    pub ack_aggregation: bool,
    /// Whether a token bucket that drops a fifth of the packets is recognised and its rate
    /// kept to for 48 round trips (Linux 4.9 and later; not in the draft).
    pub policer_detection: bool,
}

impl Default for BbrConfig {
    fn default() -> Self {
        Self {
            pacing_margin_percent: 1,
            bandwidth_rounds: 10,
            min_rtt_window_ms: 10_000,
            probe_rtt_ms: 200,
            ack_aggregation: false,
            policer_detection: true,
        }
    }
}

impl ControllerConfig for BbrConfig {
    fn name(&self) -> &'static str {
        "bbr"
    }

    fn build(&self, now: Time, start: &PathStart) -> Box<dyn Controller> {
        Box::new(Bbr::new(*self, now, start))
    }
}
