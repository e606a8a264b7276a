use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::bbr::common::between;
use crate::bbr::gain::Gain;

/// Settings of BBR version 3; also its factory.
///
/// The defaults are those of draft-ietf-ccwg-bbr (Section "Core Algorithm Design Parameters" and
/// the following). `docs/research/cc/bbr.md` has measurements of smaller and larger values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Bbr3Config {
    /// BBR.PacingMarginPercent: margin of the pacing rate below the estimated bandwidth, 0 to 50 per cent.
    #[serde(deserialize_with = "between::<_, 0, 50>")]
    pub pacing_margin_percent: u64,
    /// BBR.LossThresh: loss rate above which a probe was too high, 1 to 500 per thousand.
    #[serde(deserialize_with = "between::<_, 1, 500>")]
    pub loss_threshold_permille: u64,
    /// BBR.Beta: least share of the bounds that remains after a round trip with losses, 10 to 100 per cent.
    #[serde(deserialize_with = "between::<_, 10, 100>")]
    pub beta_percent: u64,
    /// BBR.Headroom: share of the long-term bound that is left to other flows, 0 to 90 per cent.
    #[serde(deserialize_with = "between::<_, 0, 90>")]
    pub headroom_percent: u64,
    /// Least time between two probes for bandwidth (T_bbr), 100 ms to 100 s. Up to half as much
    /// again is added at random.
    #[serde(deserialize_with = "between::<_, 100, 100_000>")]
    pub probe_wait_ms: u64,
    /// Most round trips between two probes (T_reno), 1 to 1000.
    #[serde(deserialize_with = "between::<_, 1, 1000>")]
    pub probe_wait_rounds: u64,
    /// BBR.ProbeRTTInterval: time without a smaller RTT after which the RTT is measured, 100 ms to an hour.
    #[serde(deserialize_with = "between::<_, 100, 3_600_000>")]
    pub probe_rtt_interval_ms: u64,
    /// BBR.ProbeRTTDuration, 0 to 10 s.
    #[serde(deserialize_with = "between::<_, 0, 10_000>")]
    pub probe_rtt_ms: u64,
    /// BBR.MinRTTFilterLen: time after which a minimum expires, 100 ms to an hour.
    #[serde(deserialize_with = "between::<_, 100, 3_600_000>")]
    pub min_rtt_window_ms: u64,
    /// BBRStartupFullLossCnt: gaps in a round trip that end startup, 1 to 1000.
    #[serde(deserialize_with = "between::<_, 1, 1000>")]
    pub startup_loss_ranges: u64,
}

impl Default for Bbr3Config {
    fn default() -> Self {
        Self {
            pacing_margin_percent: 1,
            loss_threshold_permille: 20,
            beta_percent: 70,
            headroom_percent: 15,
            probe_wait_ms: 2000,
            probe_wait_rounds: 63,
            probe_rtt_interval_ms: 5000,
            probe_rtt_ms: 200,
            min_rtt_window_ms: 10_000,
            startup_loss_ranges: 6,
        }
    }
}

impl Bbr3Config {
    pub(super) fn margin(&self) -> Gain {
        Gain::new(100 - self.pacing_margin_percent as u32, 100)
    }

    pub(super) fn loss_threshold(&self) -> Gain {
        Gain::new(self.loss_threshold_permille as u32, 1000)
    }

    pub(super) fn beta(&self) -> Gain {
        Gain::new(self.beta_percent as u32, 100)
    }

    pub(super) fn headroom(&self) -> Gain {
        Gain::new(self.headroom_percent as u32, 100)
    }

    pub(super) fn probe_rtt_interval(&self) -> Duration {
        Duration::from_millis(self.probe_rtt_interval_ms)
    }

    pub(super) fn min_rtt_window(&self) -> Duration {
        Duration::from_millis(self.min_rtt_window_ms)
    }
}
