//! Scenarios in the simulator.

mod external;
mod mcc;
mod setup;

use anyhow::Result;
use millrace_sim::{FlowSample, LinkSample, Observer, PacketDelivered, run_supervised};

use crate::measure::{RunRecord, SAMPLE_S, figures};
use crate::results::series::InUse;
use crate::runner::{NotDone, RunRequest, RunResult, ScenarioDriver};
use crate::scenario::{Driver, FlowGroup, Rate, Scenario};
use crate::traces::Traces;

use external::{ExternalControllers, ExternalFailure};
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
        let externals = ExternalControllers::new(scenario, request.directory);
        let setup = setup(scenario, request.seed, &self.traces, &externals)?;
        let mut record = RunRecord::new(setup.flows.len(), request.with_series);
        if let Some(epoch_s) = scenario.measure.epoch_s {
            record = record.with_epochs(epoch_s, scenario.warmup_s);
        }
        let (offered, external_failure) = (OfferedLoad::of(scenario), externals.failure());
        let mut observer = RecordObserver { record, offered, external_failure };
        let mut mcc = MccSupervisor::new(scenario)?;
        let outcome = run_supervised(&setup, &mut observer, &mut mcc)
            .map_err(|error| NotDone::Failed(error.to_string()))?;
        if let Some(failure) = mcc.failure() {
            return Err(NotDone::Failed(format!("rules: {failure}")));
        }
        if let Some(failure) = observer.external_failure.get() {
            return Err(NotDone::Failed(failure.clone()));
        }
        if observer.offered.is_flood() {
            let problem = format!(
                "its flows send more than {MAX_OFFERED_LOAD} times what the link carries; the run was ended"
            );
            return Err(NotDone::Skipped(problem));
        }
        let record = observer.record;
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
struct RecordObserver {
    record: RunRecord,
    offered: OfferedLoad,
    external_failure: ExternalFailure,
}

impl Observer for RecordObserver {
    fn is_satisfied(&self) -> bool {
        self.offered.is_flood() || self.external_failure.get().is_some()
    }

    fn sample(&mut self, at: millrace_cc::Time, link: &LinkSample, flows: &[FlowSample]) {
        self.offered.add(link, flows);
        self.record.sample(at.as_secs_f64(), link, flows.iter().map(Into::into));
    }

    fn delivered(&mut self, packet: &PacketDelivered) {
        self.record.delivered(packet);
    }
}

/// A run whose flows have sent so many times what the link could carry has lost nearly all of it, and what is left of it
/// would take hours.
const MAX_OFFERED_LOAD: f64 = 100.0;
/// Before so many packets bursts at the start and outages of a recorded link are no flood.
const MIN_FLOOD_PACKETS: u64 = 1_000_000;

/// What flows have sent, and what the link could have carried.
struct OfferedLoad {
    packet_bytes: u64,
    sent_packets: u64,
    capacity_bytes: f64,
}

impl OfferedLoad {
    fn of(scenario: &Scenario) -> Self {
        Self { packet_bytes: scenario.sim.packet_bytes, sent_packets: 0, capacity_bytes: 0.0 }
    }

    fn add(&mut self, link: &LinkSample, flows: &[FlowSample]) {
        self.sent_packets += flows.iter().map(|flow| flow.sent_packets).sum::<u64>();
        self.capacity_bytes += link.capacity.mbps() * 1e6 / 8.0 * SAMPLE_S;
    }

    fn is_flood(&self) -> bool {
        let sent_bytes = self.sent_packets as f64 * self.packet_bytes as f64;
        self.sent_packets > MIN_FLOOD_PACKETS && sent_bytes > MAX_OFFERED_LOAD * self.capacity_bytes
    }
}

#[cfg(test)]
mod mcc_tests;
#[cfg(test)]
mod tests;
