//! Warm-start hand-off between all pairs of algorithms in the middle of a transfer (MCC, Section 3.2.1,
//! "smooth"): no idle second, no burst, and no losses that neither of the two has by itself.
//!
//! The snapshots list the pairs that are not smooth, with the reason, so that a new one shows as a difference.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Log, algorithms, link, logged, setup};
use millrace_cc::ControllerConfig;
use millrace_sim::{FlowSetup, LinkSetup, Order, Setup};

/// Time of the hand-off: every algorithm is steady by then.
const SWITCH_S: usize = 30;
/// Time before the hand-off that is evaluated.
const BEFORE_S: usize = 5;
/// Time after the hand-off that is evaluated.
const AFTER_S: usize = 10;
const END_S: usize = SWITCH_S + 20;
/// Runs of the second algorithm alone, each with its own random losses: the worst second of one run varies too much.
const RUNS_ALONE: u64 = 5;

/// Least rate of a second after the hand-off, as a share of the rate before. The second algorithm alone may have less.
const MIN_RATE_FRACTION: f64 = 0.8;
/// Most packets in 100 ms, as a multiple of the maximum of both algorithms.
const MAX_BURST_RATIO: f64 = 1.25;
/// Most losses, as a multiple of the loss rates of both algorithms.
const MAX_LOSS_RATIO: f64 = 2.0;
/// Losses that are always accepted.
const ACCEPTED_LOSSES: u64 = 10;

/// Measurements of a flow over some seconds.
#[derive(Debug)]
struct Stretch {
    /// Throughput of each second.
    mbps: Vec<f64>,
    /// Most packets that left in 100 ms.
    busiest_packets: u64,
    lost_packets: u64,
    sent_packets: u64,
}

impl Stretch {
    fn of(log: &Log, from_s: usize, to_s: usize) -> Self {
        let samples = log.samples.get(from_s * 10..to_s * 10).expect("a sample each 100 ms");
        let flows: Vec<_> = samples.iter().map(|(_, _, flows)| &flows[0]).collect();
        let second = |of: &[&millrace_sim::FlowSample]| {
            of.iter().map(|flow| flow.throughput.mbps()).sum::<f64>() / of.len() as f64
        };
        Self {
            mbps: flows.chunks(10).map(second).collect(),
            busiest_packets: flows.iter().map(|flow| flow.sent_packets).max().unwrap_or(0),
            lost_packets: flows.iter().map(|flow| flow.lost_packets).sum(),
            sent_packets: flows.iter().map(|flow| flow.sent_packets).sum(),
        }
    }

    /// Combines two measurements: the worse of both.
    fn and(mut self, other: Self) -> Self {
        let lossier = if self.loss() > other.loss() { &self } else { &other };
        let (lost_packets, sent_packets) = (lossier.lost_packets, lossier.sent_packets);
        self.mbps.extend(other.mbps);
        Self {
            busiest_packets: self.busiest_packets.max(other.busiest_packets),
            lost_packets,
            sent_packets,
            mbps: self.mbps,
        }
    }

    fn mean_mbps(&self) -> f64 {
        self.mbps.iter().sum::<f64>() / self.mbps.len() as f64
    }

    fn worst_mbps(&self) -> f64 {
        self.mbps.iter().copied().fold(f64::INFINITY, f64::min)
    }

    fn loss(&self) -> f64 {
        self.lost_packets as f64 / self.sent_packets.max(1) as f64
    }
}

type Config = Arc<dyn ControllerConfig>;

/// The steady state of an algorithm alone, over several runs.
fn alone(path: &LinkSetup, config: &Config) -> Stretch {
    let runs = (1..=RUNS_ALONE).map(|seed| {
        let flow = FlowSetup::bulk(config.clone());
        let setup = Setup { seed, ..setup(path.clone(), vec![flow], END_S as u64) };
        let (_, log) = logged(&setup);
        Stretch::of(&log, SWITCH_S - AFTER_S, END_S)
    });
    runs.reduce(Stretch::and).expect("a run")
}

/// Why the hand-off is not smooth, if so.
fn fault(path: &LinkSetup, from: &Config, to: &Config, own: &Stretch) -> Option<String> {
    let mut flow = FlowSetup::bulk(from.clone());
    flow.orders = vec![(Duration::from_secs(SWITCH_S as u64), Order::Migrate(to.clone()))];
    let (_, log) = logged(&setup(path.clone(), vec![flow], END_S as u64));
    let before = Stretch::of(&log, SWITCH_S - BEFORE_S, SWITCH_S);
    let after = Stretch::of(&log, SWITCH_S, SWITCH_S + AFTER_S);
    let mut faults = Vec::new();
    let least = (MIN_RATE_FRACTION * before.mean_mbps()).min(own.worst_mbps());
    if after.worst_mbps() < least {
        faults.push(format!("a second of {:.2} Mbit/s, {least:.2} wanted", after.worst_mbps()));
    }
    let most = MAX_BURST_RATIO * before.busiest_packets.max(own.busiest_packets) as f64;
    if after.busiest_packets as f64 > most {
        faults.push(format!("{} packets in 100 ms, {most:.0} at most", after.busiest_packets));
    }
    let most = MAX_LOSS_RATIO * before.loss().max(own.loss()) * after.sent_packets as f64;
    if after.lost_packets as f64 > most + ACCEPTED_LOSSES as f64 {
        faults.push(format!("{} packets lost, {most:.0} at most", after.lost_packets));
    }
    let names = format!("{} -> {}", from.name(), to.name());
    (!faults.is_empty()).then(|| format!("{names}: {}", faults.join("; ")))
}

fn rough_pairs(path: &LinkSetup) -> String {
    let all = algorithms();
    let own: Vec<Stretch> = all.iter().map(|config| alone(path, config)).collect();
    let mut faults = Vec::new();
    for from in &all {
        let others = all.iter().zip(&own).filter(|(to, _)| to.name() != from.name());
        faults.extend(others.filter_map(|(to, own)| fault(path, from, to, own)));
    }
    let pairs = all.len() * (all.len() - 1);
    format!("{} of {pairs} pairs\n{}", faults.len(), faults.join("\n"))
}

#[test]
fn pairs_that_are_rough_on_a_clean_path() {
    insta::assert_snapshot!(rough_pairs(&link(20.0, 40, 100_000)));
}

#[test]
fn pairs_that_are_rough_on_a_lossy_path() {
    insta::assert_snapshot!(rough_pairs(&LinkSetup { loss: 0.005, ..link(20.0, 40, 100_000) }));
}

#[test]
fn pairs_that_are_rough_on_a_long_path() {
    insta::assert_snapshot!(rough_pairs(&link(20.0, 200, 500_000)));
}

/// BBR lets the path run empty for 200 ms every five or ten seconds. A hand-off in that time must not use the reduced
/// window.
#[test]
fn hand_off_during_bbr_probe_rtt_keeps_the_rate() {
    let path = link(20.0, 80, 200_000);
    for from in ["bbr", "bbr3"] {
        for to in ["cubic", "iris-min", "vivace-latency"] {
            let shares = (0..110).map(|tenth| share_after(&path, from, to, 30_000 + 100 * tenth));
            let least = shares.fold(f64::INFINITY, f64::min);
            println!("{from} -> {to}: {least:.2} of the rate before");
            assert!(least > MIN_RATE_FRACTION, "{from} -> {to}: {least:.2} of the rate before");
        }
    }
}

/// Rate of the two seconds from one second after a hand-off at `at_ms`, as a share of the rate before.
fn share_after(path: &LinkSetup, from: &str, to: &str, at_ms: u64) -> f64 {
    let config =
        |name| algorithms().into_iter().find(|config| config.name() == name).expect("known");
    let mut flow = FlowSetup::bulk(config(from));
    flow.orders = vec![(Duration::from_millis(at_ms), Order::Migrate(config(to)))];
    let (_, log) = logged(&setup(path.clone(), vec![flow], at_ms / 1000 + 5));
    let tenth = (at_ms / 100) as usize;
    let mean = |from: usize, to: usize| {
        let samples = log.samples.get(from..to).expect("a sample each 100 ms");
        let sum: f64 = samples.iter().map(|(_, _, flows)| flows[0].throughput.mbps()).sum();
        sum / (to - from) as f64
    };
    mean(tenth + 10, tenth + 30) / mean(tenth - 10 * BEFORE_S, tenth)
}
