//! Scenarios in the simulator.

mod mcc;
mod setup;

use anyhow::Result;
use millrace_sim::{FlowSample, LinkSample, Observer, run_supervised};

use crate::measure::{RunRecord, figures};
use crate::results::series::InUse;
use crate::runner::{NotDone, RunRequest, RunResult, ScenarioDriver};
use crate::scenario::{Driver, FlowGroup, Rate, Scenario};
use crate::traces::Traces;

use mcc::MccSupervisor;
pub use mcc::NAME as MCC;
pub use setup::{link_setup, setup};

/// Runs scenarios in virtual time.
#[derive(Debug)]
pub struct Simulator {
    /// Recorded links.
    pub traces: Traces,
}

impl ScenarioDriver for Simulator {
    const NAME: &'static str = Driver::Simulator.name();

    fn run(&self, request: &RunRequest<'_>) -> Result<Result<RunResult, NotDone>> {
        Ok(self.simulate(request))
    }

    /// About 10^6 bits.
    fn weight(&self, scenario: &Scenario) -> u64 {
        let redrawn = scenario.link.random_change.as_ref().and_then(|change| change.rate_mbps);
        let rate_mbps = match (&scenario.link.rate, redrawn) {
            (_, Some([low, high])) => (low + high) / 2.0,
            (Rate::Constant { rate_mbps }, None) => *rate_mbps,
            (Rate::Trace { .. }, None) => 5.0,
        };
        (rate_mbps * scenario.duration_s).ceil() as u64
    }
}

impl Simulator {
    fn simulate(&self, request: &RunRequest<'_>) -> Result<RunResult, NotDone> {
        let scenario = request.scenario;
        let setup = setup(scenario, request.seed, &self.traces)?;
        let mut observer = RecordObserver(RunRecord::new(setup.flows.len(), request.with_series));
        let mut mcc = MccSupervisor::new(scenario)?;
        let outcome = run_supervised(&setup, &mut observer, &mut mcc)
            .map_err(|error| NotDone::Failed(error.to_string()))?;
        if let Some(failure) = mcc.failure() {
            return Err(NotDone::Failed(format!("rules: {failure}")));
        }
        let record = observer.0;
        let figures = figures(scenario, &outcome, &record);
        let in_use = in_use(scenario, mcc);
        Ok(RunResult { figures, rows: record.rows, in_use, ..RunResult::default() })
    }
}

/// The algorithms that each flow has in turn.
fn in_use(scenario: &Scenario, mcc: MccSupervisor) -> Vec<InUse> {
    let of = |group: &FlowGroup| {
        let later =
            group.change.iter().filter_map(|change| Some((change.at_s, change.cc.clone()?)));
        let all: InUse = std::iter::once((0.0, group.cc.clone())).chain(later).collect();
        vec![all; usize::try_from(group.count).unwrap_or(0)]
    };
    let named = scenario.groups.iter().flat_map(of);
    let either =
        |(named, selected): (InUse, InUse)| if selected.is_empty() { named } else { selected };
    named.zip(mcc.in_use()).map(either).collect()
}

/// Passes the samples of the simulator to the record.
struct RecordObserver(RunRecord);

impl Observer for RecordObserver {
    fn sample(&mut self, at: millrace_cc::Time, link: &LinkSample, flows: &[FlowSample]) {
        self.0.sample(at.as_secs_f64(), link, flows.iter().map(Into::into));
    }
}

#[cfg(test)]
mod tests;
