//! One run out of what the link, the ends and the players saw of it.

use std::time::Duration;

use millrace_cc::Bandwidth;
use millrace_sim::{DelayTally, Delays, FlowOutcome, Outcome};

use super::places::{Place, Places};
use super::steps::Steps;
use super::telemetry::{Payload, SenderTold, Told};
use super::traffic::Segment;
use super::view::View;
use crate::emulator::Course;
use crate::measure::{FlowPoint, Record, SAMPLE_S};
use crate::results::series::{InUse, Screen};
use crate::scenario::Scenario;

/// A reading older than this says nothing of a sample.
const FRESH_S: f64 = 0.5;

/// What is left out at either end where two accounts of a flow are compared: their readings are not
/// of the same moments.
const EDGE_S: f64 = 0.3;

/// Too little to compare, in bytes.
const COMPARABLE_BYTES: f64 = 300_000.0;

/// Everything there was to see.
#[derive(Debug)]
pub struct Seen<'a> {
    /// What ran.
    pub scenario: &'a Scenario,
    /// Where.
    pub places: &'a Places,
    /// By the link.
    pub course: &'a Course,
    /// By the ends, in the order of the crossings.
    pub told: Vec<Told>,
    /// By the receivers, in the order of the flows.
    pub payload: Vec<Vec<Payload>>,
    /// By the players, in the order of the flows.
    pub views: Vec<Option<View>>,
    /// By the receivers of on/off flows, in the order of the flows.
    pub segments: Vec<Vec<Segment>>,
}

/// Counts of one crossing.
struct Crossing<'a> {
    received: Steps,
    retransmitted: Steps,
    delivered: Steps,
    sender: &'a [SenderTold],
}

impl Seen<'_> {
    /// The totals, as the simulator has them.
    pub fn outcome(&self) -> Outcome {
        let (crossings, payload) = (self.crossings(), self.payload());
        let flow = |flow| self.flow(flow, &crossings, &payload);
        let flows = (0..self.places.flows.len()).map(flow).collect();
        let simulated_packets = self.course.link.arrived_packets;
        Outcome { link: self.course.link.clone(), flows, simulated_packets }
    }

    /// The samples.
    pub fn record(&self, with_series: bool) -> Record {
        let (crossings, payload) = (self.crossings(), self.payload());
        let mut record = Record::new(self.places.flows.len(), with_series);
        for (index, sample) in self.course.samples.iter().enumerate() {
            let from_s = index as f64 * SAMPLE_S;
            let to_s = from_s + SAMPLE_S;
            let point = |flow: usize| {
                let place = &self.places.flows[flow];
                let (crossing, share) = (&crossings[place.crossing], &sample.flows[place.crossing]);
                let part = self.part(flow, &payload, from_s, to_s);
                let packets = |packets: u64| (packets as f64 * part).round() as u64;
                let told = crossing.fresh(to_s);
                let active = self.active(flow, 0.0);
                FlowPoint {
                    active: to_s > active.0 && from_s < active.1,
                    throughput_mbps: mbps(share.delivered_bytes as f64 * part, SAMPLE_S),
                    goodput_mbps: mbps(payload[flow].between(from_s, to_s), SAMPLE_S),
                    telemetry_mbps: told
                        .map(|_| mbps(crossing.received.between(from_s, to_s) * part, SAMPLE_S)),
                    sent_packets: packets(share.sent_packets),
                    lost_packets: packets(share.gone_packets),
                    rtt_ms: told.and_then(|told| told.rtt_ms),
                    window_bytes: told.and_then(|told| told.window_bytes),
                    pacing_mbps: told.and_then(|told| told.pacing_mbps),
                    in_flight_bytes: None,
                    screen: self.screen(flow, from_s),
                }
            };
            record.sample(to_s, &sample.link, (0..self.places.flows.len()).map(point));
        }
        record
    }

    /// The algorithms of each flow; of the kernel's and of peers what the scenario says.
    pub fn in_use(&self) -> Vec<InUse> {
        let of = |place: &Place| match &self.told[place.crossing].in_use {
            none if none.is_empty() => vec![(0.0, self.scenario.groups[place.group].cc.clone())],
            told => told.clone(),
        };
        self.places.flows.iter().map(of).collect()
    }

    /// By how much the ends' account of what has crossed differs from the link's, in the order of the
    /// crossings, as a part of the latter; `None` where there is too little to compare.
    pub fn disagreement(&self) -> Vec<Option<f64>> {
        let compare = |(index, crossing): (usize, Crossing<'_>)| {
            let of = &self.places.crossings[index];
            let first = *of.flows.first()?;
            let (from_s, to_s) = self.active(first, self.scenario.warmup_s);
            let from_s = crossing.received.first_s()?.max(from_s) + EDGE_S;
            let to_s = crossing.received.last_s()?.min(to_s) - EDGE_S;
            let link = crossing.delivered.between(from_s, to_s);
            (to_s > from_s && link > COMPARABLE_BYTES)
                .then(|| crossing.received.between(from_s, to_s) / link - 1.0)
        };
        self.crossings().into_iter().enumerate().map(compare).collect()
    }

    fn screen(&self, flow: usize, at_s: f64) -> Screen {
        let into_s = at_s - self.places.flows[flow].start_s;
        self.views[flow].as_ref().map_or_else(Screen::default, |view| view.screen(into_s))
    }

    fn payload(&self) -> Vec<Steps> {
        self.payload.iter().map(|it| steps_of(it)).collect()
    }

    fn crossings(&self) -> Vec<Crossing<'_>> {
        self.told.iter().enumerate().map(|(index, told)| self.crossing(index, told)).collect()
    }

    fn crossing<'a>(&self, index: usize, told: &'a Told) -> Crossing<'a> {
        let mut bytes = 0;
        let delivered = self.course.samples.iter().enumerate().map(|(sample, seen)| {
            bytes += seen.flows[index].delivered_bytes;
            ((sample + 1) as f64 * SAMPLE_S, bytes as f64)
        });
        let retransmitted = told.sender.iter().map(|it| (it.at_s, it.retransmitted_packets as f64));
        Crossing {
            received: told.receiver.iter().map(|it| (it.at_s, it.bytes as f64)).collect(),
            retransmitted: retransmitted.collect(),
            delivered: std::iter::once((0.0, 0.0)).chain(delivered).collect(),
            sender: &told.sender,
        }
    }

    /// From when to when a flow is there, not before `from_s`.
    fn active(&self, flow: usize, from_s: f64) -> (f64, f64) {
        let place = &self.places.flows[flow];
        (place.start_s.max(from_s), self.scenario.groups[place.group].stop_s)
    }

    /// Which part of its crossing a flow was in some time, by what arrived.
    fn part(&self, flow: usize, payload: &[Steps], from_s: f64, to_s: f64) -> f64 {
        let flows = &self.places.crossings[self.places.flows[flow].crossing].flows;
        if flows.len() == 1 {
            return 1.0;
        }
        let all: f64 = flows.iter().map(|other| payload[*other].between(from_s, to_s)).sum();
        if all > 0.0 { payload[flow].between(from_s, to_s) / all } else { 0.0 }
    }

    fn flow(&self, flow: usize, crossings: &[Crossing<'_>], payload: &[Steps]) -> FlowOutcome {
        let place = &self.places.flows[flow];
        let (from_s, to_s) = self.active(flow, self.scenario.warmup_s);
        let part = self.part(flow, payload, from_s, to_s);
        let seen = &self.course.flows[place.crossing];
        let crossing = &crossings[place.crossing];
        let active = Duration::from_secs_f64((to_s - from_s).max(0.0));
        let rate = |bytes: f64| Bandwidth::from_bytes_and_time(bytes.round() as u64, active);
        let packets = |packets: f64| (packets * part).round() as u64;
        let mut rtt = DelayTally::new();
        for told in crossing.sender.iter().filter(|told| (from_s..to_s).contains(&told.at_s)) {
            if let Some(rtt_ms) = told.rtt_ms {
                rtt.record((rtt_ms * 1e6) as u64);
            }
        }
        let (segments, segment_time) = self.segments(flow, from_s);
        FlowOutcome {
            active,
            goodput: rate(payload[flow].between(from_s, to_s)),
            throughput: rate(seen.delivered_bytes as f64 * part),
            sent_packets: packets(seen.sent_packets as f64),
            retransmitted_packets: packets(crossing.retransmitted.between(from_s, to_s)),
            delivered_packets: packets(seen.delivered_packets as f64),
            dropped_packets: packets(seen.dropped_packets as f64),
            chance_lost_packets: packets(seen.chance_lost_packets as f64),
            rtt: rtt.summary(),
            queueing: seen.queueing,
            segments,
            segment_time,
            ..FlowOutcome::default()
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

impl Crossing<'_> {
    /// What the sender said last before `at_s`, unless that is long ago.
    fn fresh(&self, at_s: f64) -> Option<&SenderTold> {
        let after = self.sender.partition_point(|told| told.at_s <= at_s);
        let told = &self.sender[after.checked_sub(1)?];
        (at_s - told.at_s <= FRESH_S).then_some(told)
    }
}

fn steps_of(payload: &[Payload]) -> Steps {
    payload.iter().map(|it| (it.at_s, it.bytes as f64)).collect()
}

fn mbps(bytes: f64, over_s: f64) -> f64 {
    bytes * 8e-6 / over_s
}
