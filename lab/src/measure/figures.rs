//! The figures of a run, from its totals and the record.

use millrace_sim::{
    BitrateLadder, Delays, FrameTotals, PlayerOutcome, SimulatedFlowTotals, SimulationOutcome,
};

use super::drops;
use super::dynamics::{self, Times};
use super::epochs::EpochRecord;
use super::record::{RunRecord, SAMPLES_PER_SECOND, with_headers};
use super::rungs;
use crate::results::{Figures, FlowFigures, RunFigures};
use crate::scenario::{FlowGroup, Rate, Scenario};

/// Of a run of `scenario`: from its totals and what was recorded.
#[must_use]
pub fn figures(scenario: &Scenario, outcome: &SimulationOutcome, record: &RunRecord) -> RunFigures {
    let mut flows = members(scenario);
    let sample = |at_s: f64| (at_s * SAMPLES_PER_SECOND as f64).round() as usize;
    let times = Times {
        flows: flows.iter().map(|(flow, _)| sample(flow.start_s)..sample(flow.stop_s)).collect(),
        warmup: sample(scenario.warmup_s),
    };
    // Flows that start together by the scenario start together here: each waits for a moment of its own.
    let scheduled = Times { flows: scheduled(scenario, sample), warmup: times.warmup };
    let settled = dynamics::settled(record, &scheduled, &scenario.measure);
    let mut link = link(outcome);
    let goodputs: Vec<f64> = outcome.flows.iter().map(|flow| flow.goodput.mbps()).collect();
    let total: f64 = goodputs.iter().sum();
    link.set("goodput_mbps", total);
    link.set_if("jain", dynamics::jain(&goodputs));
    link.set_if("worst_drop_rate", drops::worst_drop_rate(record));
    let rate_changes: Vec<usize> = changes_of_rate(scenario).into_iter().map(sample).collect();
    let mut share_changes: Vec<usize> = scenario
        .groups
        .iter()
        .flat_map(|group| &group.change)
        .filter(|change| change.share.is_some())
        .map(|change| sample(change.at_s))
        .collect();
    share_changes.sort_unstable();
    share_changes.dedup();
    let capacity_mbps = capacity_mbps(scenario, outcome);
    link.set("capacity_mbps", capacity_mbps);
    link.set("delivered_mbps", outcome.link.utilisation * capacity_mbps);
    for (index, (flow, group)) in flows.iter_mut().enumerate() {
        let of = &outcome.flows[index];
        let figures = &mut flow.figures;
        totals(figures, of, capacity_mbps);
        frames(figures, &of.frames);
        let others: Vec<f64> = members(scenario)
            .iter()
            .zip(&goodputs)
            .filter(|((other, _), _)| other.group != flow.group)
            .map(|(_, goodput)| *goodput)
            .collect();
        if !others.is_empty() {
            let mean = others.iter().sum::<f64>() / others.len() as f64;
            figures.set("ratio_to_others", goodputs[index] / mean);
        }
        figures.set("share", goodputs[index] / total);
        let equal = total / goodputs.len() as f64;
        figures.set("unfairness", (goodputs[index] / equal - 1.0).abs());
        figures.set_if("convergence_s", settled[index].convergence_s);
        figures.set_if("stddev_mbps", settled[index].stddev_mbps);
        let throughput = of.throughput.mbps();
        let deviation = dynamics::overall_deviation(record, &times, index);
        figures.set_if("variation", deviation.map(|value| value / throughput));
        figures
            .set_if("time_to_80_percent_s", dynamics::time_to_80_percent_s(record, &times, index));
        figures
            .set_if("time_to_90_percent_s", dynamics::time_to_90_percent_s(record, &times, index));
        let followed = dynamics::follow_s(record, &times, &scenario.measure, &rate_changes, index);
        figures.set_if("follow_s", followed);
        if of.player.is_some() {
            let shown = &record.flows[index].shown_kbps;
            figures.set_if("top_rung_s", rungs::top_rung_s(shown, &rate_changes, top_kbps()));
        }
        let switches = group.change.iter().filter(|change| change.cc.is_some());
        let switches: Vec<usize> = switches.map(|change| sample(change.at_s)).collect();
        figures.set_if("switch_ratio", dynamics::switch_ratio(record, &times, &switches, index));
        figures.set_if("utility", dynamics::utility(record, &times, group.class(), index));
        let packet_bytes = scenario.sim.packet_bytes;
        let utility = dynamics::vivace_utility(record, &times, packet_bytes, index);
        figures.set_if("vivace_utility", utility);
        let asked: Vec<(usize, f64)> = group
            .change
            .iter()
            .filter_map(|change| Some((sample(change.at_s), change.share?)))
            .collect();
        let settle = sample(scenario.measure.settle_s);
        let error = dynamics::share_error(record, &times, &asked, &share_changes, settle, index);
        figures.set_if("share_error", error);
        if let Some(bdp) = bdp_bytes(scenario, group) {
            // Zero where it is not known: a flow that sends has bytes in flight.
            let peak = Some(record.flows[index].peak_in_flight_bytes).filter(|peak| *peak > 0);
            let peak = peak.map(|peak| with_headers(peak, scenario.sim.packet_bytes) / bdp);
            figures.set_if("peak_in_flight_bdp", peak);
            figures.set_if("overshoot_bdp", peak.map(|peak| (peak - 1.0).max(0.0)));
        }
        if let Some(line) = record.flows[index].epochs.as_ref().and_then(EpochRecord::line) {
            figures.set_if("epoch_correlation", line.correlation());
            figures.set_if("epoch_slope_ms", line.slope_ms());
            figures.set_if("epoch_intercept_ms", line.intercept_ms());
        }
        if let Some(drain_ms) = drain_ms(scenario) {
            figures.set("inflation_ratio", ms(of.queueing.p95) / drain_ms);
        }
    }
    RunFigures { link, flows: flows.into_iter().map(|(flow, _)| flow).collect() }
}

/// When each flow is there by the scenario, in samples.
fn scheduled(scenario: &Scenario, sample: impl Fn(f64) -> usize) -> Vec<std::ops::Range<usize>> {
    let of = |group: &FlowGroup| {
        let starts = (0..group.count).map(|number| group.scheduled_start_of_s(number));
        starts.map(|start_s| sample(start_s)..sample(group.stop_s)).collect::<Vec<_>>()
    };
    scenario.groups.iter().flat_map(of).collect()
}

/// The flows in their order, each with its group.
#[must_use]
pub fn members(scenario: &Scenario) -> Vec<(FlowFigures, &FlowGroup)> {
    let groups = scenario.groups.iter().enumerate();
    let numbered =
        groups.flat_map(|(index, group)| (0..group.count).map(move |n| (index, group, n)));
    let flow = |(flow, (index, group, number)): (usize, (usize, _, u64))| {
        let group: &FlowGroup = group;
        let figures = FlowFigures {
            flow,
            group: index,
            cc: group.cc.clone(),
            label: group.label.clone(),
            start_s: group.start_of_s(number),
            stop_s: group.stop_s,
            figures: Figures::default(),
        };
        (figures, group)
    };
    numbered.enumerate().map(flow).collect()
}

fn ms(time: std::time::Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn link(outcome: &SimulationOutcome) -> Figures {
    let of = &outcome.link;
    let sum = |count: fn(&SimulatedFlowTotals) -> u64| outcome.flows.iter().map(count).sum::<u64>();
    let sent = sum(|flow| flow.sent_packets);
    let dropped = sum(|flow| flow.dropped_packets);
    let lost = sum(|flow| flow.random_lost_packets);
    let mut figures = Figures::default();
    figures.set("utilisation", of.utilisation);
    figures.set("loss_rate", share(dropped + lost, sent));
    figures.set("drop_rate", share(dropped, sent));
    figures.set("sent_packets", of.arrived_packets as f64);
    figures.set("delivered_packets", of.delivered_packets as f64);
    figures.set("dropped_packets", of.dropped_packets as f64);
    figures.set("random_lost_packets", of.random_lost_packets as f64);
    figures.set("peak_queue_bytes", of.queue_max_bytes as f64);
    figures
}

fn totals(figures: &mut Figures, of: &SimulatedFlowTotals, capacity_mbps: f64) {
    figures.set("goodput_mbps", of.goodput.mbps());
    figures.set("throughput_mbps", of.throughput.mbps());
    figures.set("utilisation", of.throughput.mbps() / capacity_mbps);
    if of.sent_packets > 0 {
        figures.set("loss_rate", of.loss_rate());
        figures.set("retransmit_rate", of.retransmit_rate());
    }
    if of.rtt.count > 0 {
        let Delays { mean, min, p50, p95, p99, .. } = of.rtt;
        figures.set("rtt_ms.mean", ms(mean));
        figures.set("rtt_ms.min", ms(min));
        figures.set("rtt_ms.p50", ms(p50));
        figures.set("rtt_ms.p95", ms(p95));
        figures.set("rtt_ms.p99", ms(p99));
    }
    if of.queueing.count > 0 {
        let Delays { mean, p50, p95, p99, max, .. } = of.queueing;
        figures.set("queueing_ms.mean", ms(mean));
        figures.set("queueing_ms.p50", ms(p50));
        figures.set("queueing_ms.p95", ms(p95));
        figures.set("queueing_ms.p99", ms(p99));
        figures.set("queueing_ms.max", ms(max));
        figures.set("self_inflicted_delay_ms", ms(p95));
    }
    if of.segments > 0 {
        let Delays { mean, p50, p95, max, .. } = of.segment_time;
        figures.set("segments", of.segments as f64);
        figures.set("segment_s.mean", mean.as_secs_f64());
        figures.set("segment_s.p50", p50.as_secs_f64());
        figures.set("segment_s.p95", p95.as_secs_f64());
        figures.set("segment_s.max", max.as_secs_f64());
    }
    if let Some(session) = &of.player {
        player(figures, session);
    }
}

/// Of a simulated player: the figures of a browser's session but for those of pictures.
fn player(figures: &mut Figures, session: &PlayerOutcome) {
    figures.set_if("startup_s", session.startup.map(|startup| startup.as_secs_f64()));
    figures.set("stalls", f64::from(session.stalls));
    figures.set("rebuffer_ratio", session.rebuffer_ratio());
    figures.set_if("bitrate_kbps", session.bitrate_kbps);
    figures.set("switches", f64::from(session.switches));
    figures.set("qoe_lin", session.qoe_lin());
    figures.set("qoe_lin_without_switches", session.qoe_lin_without_switches());
    figures.set("segments", session.segments as f64);
    figures.set("watched_s", session.session.as_secs_f64());
}

/// The highest rung of simulated players.
fn top_kbps() -> f64 {
    BitrateLadder::recorded().rungs.last().map_or(f64::INFINITY, |rung| rung.kbps as f64)
}

/// Of a live encoder's frames.
fn frames(figures: &mut Figures, of: &FrameTotals) {
    let captured = of.frames + of.skipped;
    if captured == 0 {
        return;
    }
    figures.set("late_frames", share(of.late + of.skipped, captured));
    figures.set("skipped_frames", share(of.skipped, captured));
    if of.frames > 0 {
        let Delays { mean, p50, p95, p99, max, .. } = of.delay;
        figures.set("frame_delay_ms.mean", ms(mean));
        figures.set("frame_delay_ms.p50", ms(p50));
        figures.set("frame_delay_ms.p95", ms(p95));
        figures.set("frame_delay_ms.p99", ms(p99));
        figures.set("frame_delay_ms.max", ms(max));
    }
}

/// Mean capacity of the time that counts.
fn capacity_mbps(scenario: &Scenario, outcome: &SimulationOutcome) -> f64 {
    outcome.link.capacity_bytes as f64 * 8e-6 / (scenario.duration_s - scenario.warmup_s)
}

fn changes_of_rate(scenario: &Scenario) -> Vec<f64> {
    let changes = scenario.link.change.iter().filter(|change| change.rate_mbps.is_some());
    changes.map(|change| change.at_s).collect()
}

/// Of a link that always has the same rate.
fn rate_mbps(scenario: &Scenario) -> Option<f64> {
    let Rate::Constant { rate_mbps } = scenario.link.rate else { return None };
    let redrawn = scenario.link.random_change.as_ref().is_some_and(|c| c.rate_mbps.is_some());
    (!redrawn && changes_of_rate(scenario).is_empty()).then_some(rate_mbps)
}

fn bdp_bytes(scenario: &Scenario, group: &FlowGroup) -> Option<f64> {
    let rtt_s = (scenario.link.rtt_ms + group.path.extra_rtt_ms) / 1e3;
    rate_mbps(scenario).map(|rate| rate * 1e6 / 8.0 * rtt_s).filter(|bdp| *bdp > 0.0)
}

/// Time in which a full buffer drains.
fn drain_ms(scenario: &Scenario) -> Option<f64> {
    let fixed = scenario.link.change.iter().all(|change| change.buffer_bytes.is_none());
    let rate = rate_mbps(scenario).filter(|_| fixed && scenario.link.buffer_bytes > 0)?;
    Some(scenario.link.buffer_bytes as f64 * 8e-3 / rate)
}
