//! Scenarios in the simulator.

mod mcc;
mod setup;

use anyhow::Result;
use millrace_sim::{FlowSample, LinkSample, Observer, run_supervised};

use crate::measure::{Record, figures};
use crate::results::series::InUse;
use crate::runner::{Driver, NotDone, Ran, Request};
use crate::scenario::{Group, Rate, Scenario};
use crate::traces::Traces;

use mcc::Mcc;
pub use mcc::NAME as MCC;
pub use setup::{course, setup};

/// Runs scenarios in virtual time.
#[derive(Debug)]
pub struct Simulator {
    /// Recorded links.
    pub traces: Traces,
}

impl Driver for Simulator {
    const NAME: &'static str = "sim";

    fn run(&self, request: &Request<'_>) -> Result<Result<Ran, NotDone>> {
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
    fn simulate(&self, request: &Request<'_>) -> Result<Ran, NotDone> {
        let scenario = request.scenario;
        let setup = setup(scenario, request.seed, &self.traces)?;
        let mut observer = Watcher(Record::new(setup.flows.len(), request.with_series));
        let mut mcc = Mcc::new(scenario)?;
        let outcome = run_supervised(&setup, &mut observer, &mut mcc)
            .map_err(|error| NotDone::Failed(error.to_string()))?;
        if let Some(failure) = mcc.failure() {
            return Err(NotDone::Failed(format!("rules: {failure}")));
        }
        let record = observer.0;
        let figures = figures(scenario, &outcome, &record);
        Ok(Ran { figures, rows: record.rows, in_use: in_use(scenario, mcc), ..Ran::default() })
    }
}

/// The algorithms that each flow has in turn.
fn in_use(scenario: &Scenario, mcc: Mcc) -> Vec<InUse> {
    let of = |group: &Group| {
        let later =
            group.change.iter().filter_map(|change| Some((change.at_s, change.cc.clone()?)));
        let all: InUse = std::iter::once((0.0, group.cc.clone())).chain(later).collect();
        vec![all; usize::try_from(group.count).unwrap_or(0)]
    };
    let told = scenario.groups.iter().flat_map(of);
    let either =
        |(told, selected): (InUse, InUse)| if selected.is_empty() { told } else { selected };
    told.zip(mcc.in_use()).map(either).collect()
}

struct Watcher(Record);

impl Observer for Watcher {
    fn sample(&mut self, at: millrace_cc::Time, link: &LinkSample, flows: &[FlowSample]) {
        self.0.sample(at.as_secs_f64(), link, flows.iter().map(Into::into));
    }
}

#[cfg(test)]
mod tests;
