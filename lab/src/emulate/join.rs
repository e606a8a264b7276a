//! Joins the observations of the link, the ends and the players into the outcome of one run.

use std::time::Duration;

use millrace_cc::Bandwidth;
use millrace_sim::{DelayTally, Delays, SimulatedFlowTotals, SimulationOutcome};

use super::address_plan::{AddressPlan, FlowAddresses};
use super::counter::InterpolatedCounter;
use super::session::SessionResult;
use super::telemetry::{ConnectionTelemetry, Payload, SenderReading};
use super::traffic::Segment;
use crate::emulator::LinkTrace;
use crate::measure::{FlowPoint, RunRecord, SAMPLE_S};
use crate::results::series::{InUse, Screen};
use crate::scenario::Scenario;

/// Age up to which a reading belongs to a sample.
const MAX_READING_AGE_S: f64 = 0.5;

/// Excluded at either end where two counts of a flow are compared, as their readings are not of the same
/// moments.
const EXCLUDED_EDGE_S: f64 = 0.3;

/// Below this many bytes two counts are not compared.
const MIN_COMPARED_BYTES: f64 = 300_000.0;

/// All observations of a run.
#[derive(Debug)]
pub struct RunObservations<'a> {
    /// The scenario that ran.
    pub scenario: &'a Scenario,
    /// The addresses of its flows.
    pub address_plan: &'a AddressPlan,
    /// By the link.
    pub trace: &'a LinkTrace,
    /// By the ends, in the order of the connections.
    pub telemetry: Vec<ConnectionTelemetry>,
    /// By the receivers, in the order of the flows.
    pub payload: Vec<Vec<Payload>>,
    /// By the players, in the order of the flows.
    pub sessions: Vec<Option<SessionResult>>,
    /// By the receivers of on/off flows, in the order of the flows.
    pub segments: Vec<Vec<Segment>>,
}

/// Counts of one connection.
struct ConnectionReadings<'a> {
    received: InterpolatedCounter,
    retransmitted: InterpolatedCounter,
    delivered: InterpolatedCounter,
    sender: &'a [SenderReading],
}

impl RunObservations<'_> {
    /// The totals, in the simulator's form.
    pub fn outcome(&self) -> SimulationOutcome {
        let (connections, payload) = (self.connections(), self.payload());
        let flow = |flow| self.flow(flow, &connections, &payload);
        let flows = (0..self.address_plan.flows.len()).map(flow).collect();
        let simulated_packets = self.trace.link.arrived_packets;
        SimulationOutcome { link: self.trace.link.clone(), flows, simulated_packets }
    }

    /// The samples.
    pub fn record(&self, with_series: bool) -> RunRecord {
        let (connections, payload) = (self.connections(), self.payload());
        let mut record = RunRecord::new(self.address_plan.flows.len(), with_series);
        for (index, sample) in self.trace.samples.iter().enumerate() {
            let from_s = index as f64 * SAMPLE_S;
            let to_s = from_s + SAMPLE_S;
            let point = |flow: usize| {
                let addresses = &self.address_plan.flows[flow];
                let connection = &connections[addresses.connection];
                let share = &sample.flows[addresses.connection];
                let part = self.part(flow, &payload, from_s, to_s);
                let packets = |packets: u64| (packets as f64 * part).round() as u64;
                let reading = connection.fresh(to_s);
                let active = self.active(flow, 0.0);
                FlowPoint {
                    active: to_s > active.0 && from_s < active.1,
                    throughput_mbps: mbps(share.delivered_bytes as f64 * part, SAMPLE_S),
                    goodput_mbps: mbps(payload[flow].between(from_s, to_s), SAMPLE_S),
                    telemetry_mbps: reading
                        .map(|_| mbps(connection.received.between(from_s, to_s) * part, SAMPLE_S)),
                    sent_packets: packets(share.sent_packets),
                    lost_packets: packets(share.gone_packets),
                    rtt_ms: reading.and_then(|reading| reading.rtt_ms),
                    window_bytes: reading.and_then(|reading| reading.window_bytes),
                    pacing_mbps: reading.and_then(|reading| reading.pacing_mbps),
                    in_flight_bytes: None,
                    screen: self.screen(flow, from_s),
                }
            };
            record.sample(to_s, &sample.link, (0..self.address_plan.flows.len()).map(point));
        }
        record
    }

    /// The algorithms of each flow; for the kernel and for peers those of the scenario.
    pub fn in_use(&self) -> Vec<InUse> {
        let of = |addresses: &FlowAddresses| match &self.telemetry[addresses.connection].in_use {
            unknown if unknown.is_empty() => {
                vec![(0.0, self.scenario.groups[addresses.group].cc.clone())]
            }
            in_use => in_use.clone(),
        };
        self.address_plan.flows.iter().map(of).collect()
    }

    /// The relative difference between the byte counts of the ends and of the link, in the order of the
    /// connections; `None` where there is too little to compare.
    pub fn disagreement(&self) -> Vec<Option<f64>> {
        let compare = |(index, connection): (usize, ConnectionReadings<'_>)| {
            let of = &self.address_plan.connections[index];
            let first = *of.flows.first()?;
            let (from_s, to_s) = self.active(first, self.scenario.warmup_s);
            let from_s = connection.received.first_s()?.max(from_s) + EXCLUDED_EDGE_S;
            let to_s = connection.received.last_s()?.min(to_s) - EXCLUDED_EDGE_S;
            let link = connection.delivered.between(from_s, to_s);
            (to_s > from_s && link > MIN_COMPARED_BYTES)
                .then(|| connection.received.between(from_s, to_s) / link - 1.0)
        };
        self.connections().into_iter().enumerate().map(compare).collect()
    }

    fn screen(&self, flow: usize, at_s: f64) -> Screen {
        let into_s = at_s - self.address_plan.flows[flow].start_s;
        self.sessions[flow].as_ref().map_or_else(Screen::default, |session| session.screen(into_s))
    }

    fn payload(&self) -> Vec<InterpolatedCounter> {
        self.payload.iter().map(|it| counter_of(it)).collect()
    }

    fn connections(&self) -> Vec<ConnectionReadings<'_>> {
        let all = self.telemetry.iter().enumerate();
        all.map(|(index, telemetry)| self.connection(index, telemetry)).collect()
    }

    fn connection<'a>(
        &self,
        index: usize,
        telemetry: &'a ConnectionTelemetry,
    ) -> ConnectionReadings<'a> {
        let mut bytes = 0;
        let delivered = self.trace.samples.iter().enumerate().map(|(sample, link)| {
            bytes += link.flows[index].delivered_bytes;
            ((sample + 1) as f64 * SAMPLE_S, bytes as f64)
        });
        let sender = telemetry.sender.iter();
        let retransmitted = sender.map(|it| (it.at_s, it.retransmitted_packets as f64));
        ConnectionReadings {
            received: telemetry.receiver.iter().map(|it| (it.at_s, it.bytes as f64)).collect(),
            retransmitted: retransmitted.collect(),
            delivered: std::iter::once((0.0, 0.0)).chain(delivered).collect(),
            sender: &telemetry.sender,
        }
    }

    /// From when to when a flow is active, not before `from_s`.
    fn active(&self, flow: usize, from_s: f64) -> (f64, f64) {
        let addresses = &self.address_plan.flows[flow];
        (addresses.start_s.max(from_s), self.scenario.groups[addresses.group].stop_s)
    }

    /// The share of a flow in its connection over some time, by the payload that arrived.
    fn part(&self, flow: usize, payload: &[InterpolatedCounter], from_s: f64, to_s: f64) -> f64 {
        let flows = &self.address_plan.connections[self.address_plan.flows[flow].connection].flows;
        if flows.len() == 1 {
            return 1.0;
        }
        let all: f64 = flows.iter().map(|other| payload[*other].between(from_s, to_s)).sum();
        if all > 0.0 { payload[flow].between(from_s, to_s) / all } else { 0.0 }
    }

    fn flow(
        &self,
        flow: usize,
        connections: &[ConnectionReadings<'_>],
        payload: &[InterpolatedCounter],
    ) -> SimulatedFlowTotals {
        let addresses = &self.address_plan.flows[flow];
        let (from_s, to_s) = self.active(flow, self.scenario.warmup_s);
        let part = self.part(flow, payload, from_s, to_s);
        let totals = &self.trace.flows[addresses.connection];
        let connection = &connections[addresses.connection];
        let active = Duration::from_secs_f64((to_s - from_s).max(0.0));
        let rate = |bytes: f64| Bandwidth::from_bytes_and_time(bytes.round() as u64, active);
        let packets = |packets: f64| (packets * part).round() as u64;
        let mut rtt = DelayTally::new();
        for reading in connection.sender.iter().filter(|it| (from_s..to_s).contains(&it.at_s)) {
            if let Some(rtt_ms) = reading.rtt_ms {
                rtt.record((rtt_ms * 1e6) as u64);
            }
        }
        let (segments, segment_time) = self.segments(flow, from_s);
        SimulatedFlowTotals {
            active,
            goodput: rate(payload[flow].between(from_s, to_s)),
            throughput: rate(totals.delivered_bytes as f64 * part),
            sent_packets: packets(totals.sent_packets as f64),
            retransmitted_packets: packets(connection.retransmitted.between(from_s, to_s)),
            delivered_packets: packets(totals.delivered_packets as f64),
            dropped_packets: packets(totals.dropped_packets as f64),
            random_lost_packets: packets(totals.random_lost_packets as f64),
            rtt: rtt.summary(),
            queueing: totals.queueing,
            segments,
            segment_time,
            ..SimulatedFlowTotals::default()
        }
    }

    fn segments(&self, flow: usize, from_s: f64) -> (u64, Delays) {
        let mut times = DelayTally::new();
        let mut count = 0;
        for segment in self.segments[flow].iter().filter(|it| it.completed_s >= from_s) {
            times.record(segment.took.as_nanos() as u64);
            count += 1;
        }
        (count, times.summary())
    }
}

impl ConnectionReadings<'_> {
    /// The sender's last reading before `at_s`, unless it is too old.
    fn fresh(&self, at_s: f64) -> Option<&SenderReading> {
        let after = self.sender.partition_point(|reading| reading.at_s <= at_s);
        let reading = &self.sender[after.checked_sub(1)?];
        (at_s - reading.at_s <= MAX_READING_AGE_S).then_some(reading)
    }
}

fn counter_of(payload: &[Payload]) -> InterpolatedCounter {
    payload.iter().map(|it| (it.at_s, it.bytes as f64)).collect()
}

fn mbps(bytes: f64, over_s: f64) -> f64 {
    bytes * 8e-6 / over_s
}
