use super::drain::Drain;
use super::probe_rtt::ProbeRtt;
use super::{Bbr3, drain, probe_bw, probe_rtt, startup};
use crate::bbr::gain::Gain;

/// What the flow is doing, with what belongs to that alone ("State Machine Overview").
#[derive(Clone, Copy, Debug)]
pub(super) enum State {
    Startup,
    Drain(Drain),
    /// ProbeBW_DOWN.
    Down,
    /// ProbeBW_CRUISE.
    Cruise,
    /// ProbeBW_REFILL.
    Refill,
    /// ProbeBW_UP.
    Up,
    ProbeRtt(ProbeRtt),
}

impl State {
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

    /// IsProbingBW(): losses then mean that the probe was too much, not that the path changed.
    pub(super) fn is_accelerating(&self) -> bool {
        matches!(self, Self::Startup | Self::Refill | Self::Up)
    }

    /// "Summary of Control Behavior in the State Machine", Pacing Gain.
    pub(super) fn pacing_gain(&self) -> Gain {
        match self {
            Self::Startup => startup::PACING_GAIN,
            Self::Drain(_) => drain::PACING_GAIN,
            Self::Down => probe_bw::DOWN_PACING_GAIN,
            Self::Up => probe_bw::UP_PACING_GAIN,
            Self::Cruise | Self::Refill | Self::ProbeRtt(_) => Gain::ONE,
        }
    }

    /// The same, Cwnd Gain.
    pub(super) fn window_gain(&self) -> Gain {
        match self {
            Self::Up => probe_bw::UP_WINDOW_GAIN,
            Self::ProbeRtt(_) => probe_rtt::WINDOW_GAIN,
            _ => startup::WINDOW_GAIN,
        }
    }

    /// "State Transition Diagram"; any state leads to `Refill` or `Drain` when a known path is taken over,
    /// and back to `Startup` when the losses that ended it were mistaken.
    fn may_become(&self, next: &Self) -> bool {
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

impl Bbr3 {
    /// The only way from one state to the next.
    pub(super) fn transition_to(&mut self, next: State) {
        let (from, to) = (self.state.name(), next.name());
        assert!(self.state.may_become(&next), "{from} does not lead to {to}");
        self.state = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> [State; 7] {
        let (drain, probe_rtt) = (State::Drain(Drain::default()), ProbeRtt::default());
        [
            State::Startup,
            drain,
            State::Down,
            State::Cruise,
            State::Refill,
            State::Up,
            State::ProbeRtt(probe_rtt),
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
