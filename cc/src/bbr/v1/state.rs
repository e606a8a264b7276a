use super::probe_bw::ProbeBw;
use super::probe_rtt::ProbeRtt;
use super::{Bbr, drain, probe_bw, probe_rtt, startup};
use crate::bbr::gain::Gain;

/// What the flow is doing, with what belongs to that alone (Section 3.4).
#[derive(Clone, Copy, Debug)]
pub(super) enum State {
    Startup,
    Drain,
    ProbeBw(ProbeBw),
    ProbeRtt(ProbeRtt),
}

impl State {
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
            Self::Startup => startup::GAIN,
            Self::Drain => drain::PACING_GAIN,
            Self::ProbeBw(cycle) => cycle.pacing_gain(),
            Self::ProbeRtt(_) => probe_rtt::GAIN,
        }
    }

    pub(super) fn window_gain(&self) -> Gain {
        match self {
            // Drain empties the queue by pacing; cutting the window too would starve it.
            Self::Startup | Self::Drain => startup::GAIN,
            Self::ProbeBw(_) => probe_bw::WINDOW_GAIN,
            Self::ProbeRtt(_) => probe_rtt::GAIN,
        }
    }

    /// The arrows of Figure 1 in Section 3.4.1, and two that it leaves out: a gain cycle that
    /// begins anew, and a flow that takes over a path that is known.
    fn may_become(&self, next: &Self) -> bool {
        match self {
            Self::Startup => !matches!(next, Self::Startup),
            Self::Drain | Self::ProbeBw(_) => matches!(next, Self::ProbeBw(_) | Self::ProbeRtt(_)),
            Self::ProbeRtt(_) => matches!(next, Self::ProbeBw(_) | Self::Startup),
        }
    }
}

impl Bbr {
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
    use crate::Time;

    fn all() -> [State; 4] {
        let cycle = ProbeBw::new(Time::ZERO, 0);
        [State::Startup, State::Drain, State::ProbeBw(cycle), State::ProbeRtt(ProbeRtt::default())]
    }

    #[test]
    fn only_the_arrows_of_the_figure_are_legal() {
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
