//! States with their own data, and their gains.

use crate::Time;
use crate::bbr::common::ProbeRttProgress;
use crate::bbr::gain::Gain;

/// 2/ln(2), the least gain that doubles the rate in a round trip (BBRHighGain, Section 4.3.2.1), as the
/// ratio of Linux.
pub(super) const STARTUP_GAIN: Gain = Gain::new(2885, 1000);
/// The inverse of startup's gain: a queue that was built in a round trip drains in one (Section 4.3.3).
const DRAIN_PACING_GAIN: Gain = STARTUP_GAIN.inverse();
/// Twice the bandwidth-delay product, so that delayed acknowledgements do not stall the flow
/// (Section 4.2.3.1).
const PROBE_BW_WINDOW_GAIN: Gain = Gain::new(2, 1);
/// A phase lasts about a minimum RTT (Section 4.3.4.1).
pub(super) const CYCLE: [Gain; 8] = [
    Gain::new(5, 4),
    Gain::new(3, 4),
    Gain::ONE,
    Gain::ONE,
    Gain::ONE,
    Gain::ONE,
    Gain::ONE,
    Gain::ONE,
];
/// Gain of ProbeRTT (Section 4.3.5).
const PROBE_RTT_GAIN: Gain = Gain::ONE;

/// The states with their own data (Section 3.4).
#[derive(Clone, Copy, Debug)]
pub(super) enum BbrState {
    Startup,
    Drain,
    ProbeBw(ProbeBw),
    ProbeRtt(ProbeRttProgress),
}

/// Position in the gain cycle.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProbeBw {
    pub(super) phase: usize,
    pub(super) since: Time,
}

impl ProbeBw {
    pub(super) fn new(now: Time, phase: usize) -> Self {
        Self { phase: phase % CYCLE.len(), since: now }
    }

    pub(super) fn pacing_gain(&self) -> Gain {
        CYCLE[self.phase]
    }
}

impl BbrState {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Drain => "drain",
            Self::ProbeBw(_) => "probe_bw",
            Self::ProbeRtt(_) => "probe_rtt",
        }
    }

    pub(super) fn pacing_gain(&self) -> Gain {
        match self {
            Self::Startup => STARTUP_GAIN,
            Self::Drain => DRAIN_PACING_GAIN,
            Self::ProbeBw(cycle) => cycle.pacing_gain(),
            Self::ProbeRtt(_) => PROBE_RTT_GAIN,
        }
    }

    pub(super) fn window_gain(&self) -> Gain {
        match self {
            // Drain empties the queue by pacing; cutting the window too would starve it.
            Self::Startup | Self::Drain => STARTUP_GAIN,
            Self::ProbeBw(_) => PROBE_BW_WINDOW_GAIN,
            Self::ProbeRtt(_) => PROBE_RTT_GAIN,
        }
    }

    /// The transitions of Figure 1 in Section 3.4.1, and two more: a gain cycle that starts again,
    /// and a warm start.
    pub(super) fn may_become(&self, next: &Self) -> bool {
        match self {
            Self::Startup => !matches!(next, Self::Startup),
            Self::Drain | Self::ProbeBw(_) => matches!(next, Self::ProbeBw(_) | Self::ProbeRtt(_)),
            Self::ProbeRtt(_) => matches!(next, Self::ProbeBw(_) | Self::Startup),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> [BbrState; 4] {
        let cycle = ProbeBw::new(Time::ZERO, 0);
        [
            BbrState::Startup,
            BbrState::Drain,
            BbrState::ProbeBw(cycle),
            BbrState::ProbeRtt(ProbeRttProgress::default()),
        ]
    }

    #[test]
    fn only_the_transitions_of_the_figure_are_legal() {
        let legal: Vec<_> = all()
            .iter()
            .flat_map(|from| all().map(|to| (from.name(), to.name(), from.may_become(&to))))
            .filter(|(_, _, legal)| *legal)
            .map(|(from, to, _)| (from, to))
            .collect();
        assert_eq!(
            legal,
            [
                ("startup", "drain"),
                ("startup", "probe_bw"),
                ("startup", "probe_rtt"),
                ("drain", "probe_bw"),
                ("drain", "probe_rtt"),
                ("probe_bw", "probe_bw"),
                ("probe_bw", "probe_rtt"),
                ("probe_rtt", "startup"),
                ("probe_rtt", "probe_bw"),
            ]
        );
    }

    #[test]
    fn gains_are_those_of_the_draft() {
        let gains = all().map(|state| (state.pacing_gain().as_f64(), state.window_gain().as_f64()));
        // 2/ln(2) = 2.885, its inverse, the probing phase, and one.
        assert_eq!(gains, [(2.885, 2.885), (1000.0 / 2885.0, 2.885), (1.25, 2.0), (1.0, 1.0)]);
    }
}
