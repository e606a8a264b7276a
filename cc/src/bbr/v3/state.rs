//! States with their own data, and their gains.

use crate::bbr::common::ProbeRttProgress;
use crate::bbr::gain::Gain;

/// BBR.StartupPacingGain, 4 ln(2).
pub(super) const STARTUP_PACING_GAIN: Gain = Gain::new(277, 100);
/// BBR.DefaultCwndGain.
pub(super) const WINDOW_GAIN: Gain = Gain::new(2, 1);
/// BBR.DrainPacingGain.
const DRAIN_PACING_GAIN: Gain = Gain::new(1, 2);
// Gains of ProbeBW_DOWN and ProbeBW_UP ("Summary of Control Behavior in the State Machine").
const DOWN_PACING_GAIN: Gain = Gain::new(9, 10);
const UP_PACING_GAIN: Gain = Gain::new(5, 4);
const UP_WINDOW_GAIN: Gain = Gain::new(9, 4);
/// BBR.ProbeRTTCwndGain.
pub(super) const PROBE_RTT_WINDOW_GAIN: Gain = Gain::new(1, 2);

/// The states with their own data ("State Machine Overview").
#[derive(Clone, Copy, Debug)]
pub(super) enum Bbr3State {
    Startup,
    Drain(DrainStart),
    /// ProbeBW_DOWN.
    Down,
    /// ProbeBW_CRUISE.
    Cruise,
    /// ProbeBW_REFILL.
    Refill,
    /// ProbeBW_UP.
    Up,
    ProbeRtt(ProbeRttProgress),
}

/// Start of the drain.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DrainStart {
    pub(super) start_round: u64,
}

impl Bbr3State {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Drain(_) => "drain",
            Self::Down => "probe_bw_down",
            Self::Cruise => "probe_bw_cruise",
            Self::Refill => "probe_bw_refill",
            Self::Up => "probe_bw_up",
            Self::ProbeRtt(_) => "probe_rtt",
        }
    }

    /// IsInAProbeBWState().
    pub(super) fn is_probe_bw(&self) -> bool {
        matches!(self, Self::Down | Self::Cruise | Self::Refill | Self::Up)
    }

    /// IsProbingBW(): losses then mean that the probe was too high, not that the path changed.
    pub(super) fn is_accelerating(&self) -> bool {
        matches!(self, Self::Startup | Self::Refill | Self::Up)
    }

    /// "Summary of Control Behavior in the State Machine", Pacing Gain.
    pub(super) fn pacing_gain(&self) -> Gain {
        match self {
            Self::Startup => STARTUP_PACING_GAIN,
            Self::Drain(_) => DRAIN_PACING_GAIN,
            Self::Down => DOWN_PACING_GAIN,
            Self::Up => UP_PACING_GAIN,
            Self::Cruise | Self::Refill | Self::ProbeRtt(_) => Gain::ONE,
        }
    }

    /// "Summary of Control Behavior in the State Machine", Cwnd Gain.
    pub(super) fn window_gain(&self) -> Gain {
        match self {
            Self::Up => UP_WINDOW_GAIN,
            Self::ProbeRtt(_) => PROBE_RTT_WINDOW_GAIN,
            _ => WINDOW_GAIN,
        }
    }

    /// "State Transition Diagram". A warm start leads from any state to `Refill` or `Drain`, and spurious
    /// losses lead back to the `Startup` that they ended.
    pub(super) fn may_become(&self, next: &Self) -> bool {
        match next {
            Self::Startup => !matches!(self, Self::Startup),
            Self::Drain(_) => true,
            Self::Down => matches!(self, Self::Drain(_) | Self::Up | Self::ProbeRtt(_)),
            Self::Cruise => matches!(self, Self::Down),
            Self::Refill => true,
            Self::Up => matches!(self, Self::Refill),
            Self::ProbeRtt(_) => !matches!(self, Self::ProbeRtt(_)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> [Bbr3State; 7] {
        let (drain, probe_rtt) =
            (Bbr3State::Drain(DrainStart::default()), ProbeRttProgress::default());
        [
            Bbr3State::Startup,
            drain,
            Bbr3State::Down,
            Bbr3State::Cruise,
            Bbr3State::Refill,
            Bbr3State::Up,
            Bbr3State::ProbeRtt(probe_rtt),
        ]
    }

    #[test]
    fn gains_are_those_of_the_table() {
        let gains = all().map(|state| (state.pacing_gain().as_f64(), state.window_gain().as_f64()));
        let table =
            [(2.77, 2.0), (0.5, 2.0), (0.9, 2.0), (1.0, 2.0), (1.0, 2.0), (1.25, 2.25), (1.0, 0.5)];
        assert_eq!(gains, table);
    }

    #[test]
    fn the_cycle_has_one_direction() {
        let [_, _, down, cruise, refill, up, _] = all();
        let legal = [(&down, &cruise), (&cruise, &refill), (&refill, &up), (&up, &down)];
        assert!(legal.iter().all(|(from, to)| from.may_become(to) && !to.may_become(from)
            || to.name() == "probe_bw_refill"
            || from.name() == "probe_bw_refill"));
        assert!(!cruise.may_become(&up) && !cruise.may_become(&down) && !down.may_become(&up));
    }
}
