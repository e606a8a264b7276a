//! Scenarios in the simulator.

mod setup;

use anyhow::Result;
use millrace_sim::{FlowSample, LinkSample, Observer};

use crate::measure::{Record, figures};
use crate::runner::{Driver, NotDone, Ran, Request};
use crate::scenario::{Rate, Scenario};
use crate::traces::Traces;

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
        let outcome = millrace_sim::run(&setup, &mut observer)
            .map_err(|error| NotDone::Failed(error.to_string()))?;
        let record = observer.0;
        let figures = figures(scenario, &outcome, &record);
        Ok(Ran { figures, rows: record.rows, ..Ran::default() })
    }
}

struct Watcher(Record);

impl Observer for Watcher {
    fn sample(&mut self, at: millrace_cc::Time, link: &LinkSample, flows: &[FlowSample]) {
        self.0.sample(at.as_secs_f64(), link, flows.iter().map(Into::into));
    }
}

#[cfg(test)]
mod tests;
