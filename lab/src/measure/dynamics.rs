//! Figures of how throughput moves: convergence, steadiness, following, shares.

use std::ops::Range;

use millrace_config::Class;

use super::record::{RunRecord, SAMPLE_S, SAMPLES_PER_SECOND, mean};
use crate::scenario::{Convergence, Measure};

/// When each flow is there, in samples.
pub(super) struct Times {
    pub(super) flows: Vec<Range<usize>>,
    /// From where on figures count.
    pub(super) warmup: usize,
}

/// From a flow's start to the next moment at which any flow starts or stops.
fn range_until_flow_change(times: &Times, flow: usize) -> Range<usize> {
    let start = times.flows[flow].start;
    let ends = times.flows.iter().flat_map(|other| [other.start, other.end]);
    let end = ends.filter(|at| *at > start).min().unwrap_or(start);
    start..end
}

fn active(times: &Times, at: usize) -> Vec<usize> {
    let is_there = |(_, range): &(usize, &Range<usize>)| range.contains(&at);
    times.flows.iter().enumerate().filter(is_there).map(|(index, _)| index).collect()
}

/// Throughput of each whole second.
fn seconds(mbps: &[f64], range: Range<usize>) -> Vec<f64> {
    let end = range.end.min(mbps.len());
    mbps[range.start.min(end)..end].chunks_exact(SAMPLES_PER_SECOND).map(mean).collect()
}

fn deviation(values: &[f64]) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let middle = mean(values);
    Some(
        (values.iter().map(|value| (value - middle).powi(2)).sum::<f64>() / values.len() as f64)
            .sqrt(),
    )
}

/// Time to converge and deviation after it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Settled {
    /// Infinite if it never did; `None` where there was no time to.
    pub(super) convergence_s: Option<f64>,
    pub(super) stddev_mbps: Option<f64>,
}

/// For each flow.
pub(super) fn settled(record: &RunRecord, times: &Times, measure: &Measure) -> Vec<Settled> {
    let of = |flow: usize| match measure.convergence {
        Convergence::None => {
            let range = &times.flows[flow];
            let values =
                seconds(&record.flows[flow].mbps, range.start.max(times.warmup)..range.end);
            Settled { convergence_s: None, stddev_mbps: deviation(&values) }
        }
        Convergence::Share => by_share(record, times, measure, flow),
        Convergence::Jain => by_jain(record, times, measure, flow),
    };
    (0..record.flows.len()).map(of).collect()
}

/// Of the throughput of each second of the time that counts.
pub(super) fn overall_deviation(record: &RunRecord, times: &Times, flow: usize) -> Option<f64> {
    let range = &times.flows[flow];
    deviation(&seconds(&record.flows[flow].mbps, range.start.max(times.warmup)..range.end))
}

/// The first second from which on `is_good` holds for so many seconds.
fn first_held(length: usize, hold_s: f64, is_good: impl Fn(usize) -> bool) -> Option<usize> {
    let hold = hold_s.ceil() as usize;
    let last = length.checked_sub(hold)?;
    (0..=last).find(|start| (*start..start + hold).all(&is_good))
}

// Vivace, Section 5.2.1: "the time from the second flow's entry to the earliest time after which it
// maintains a sending rate within +-25% of its ideal fair share for at least 5s".
fn by_share(record: &RunRecord, times: &Times, measure: &Measure, flow: usize) -> Settled {
    let range = range_until_flow_change(times, flow);
    let values = seconds(&record.flows[flow].mbps, range.clone());
    if values.len() < measure.hold_s.ceil() as usize {
        return Settled::default();
    }
    let fair = record.capacity_over(range.start..range.end.min(record.capacity_mbps.len()))
        / active(times, range.start).len() as f64;
    let is_fair = |second: usize| (values[second] - fair).abs() <= measure.share_tolerance * fair;
    match first_held(values.len(), measure.hold_s, is_fair) {
        None => Settled { convergence_s: Some(f64::INFINITY), stddev_mbps: None },
        Some(from) => {
            Settled { convergence_s: Some(from as f64), stddev_mbps: deviation(&values[from..]) }
        }
    }
}

// Iris, Section VI-B5: "the time from the newer flows entry to the earliest time after which Jain's
// fairness index is maintained over 0.9 for at least 5 seconds. And the stability is estimated as
// the average standard deviation of throughput of all flows after the convergence point".
fn by_jain(record: &RunRecord, times: &Times, measure: &Measure, flow: usize) -> Settled {
    let range = range_until_flow_change(times, flow);
    let of = |flow: &usize| seconds(&record.flows[*flow].mbps, range.clone());
    let all: Vec<Vec<f64>> = active(times, range.start).iter().map(of).collect();
    let length = all.iter().map(Vec::len).min().unwrap_or(0);
    if length < measure.hold_s.ceil() as usize {
        return Settled::default();
    }
    let fair = |second: usize| {
        let now: Vec<f64> = all.iter().map(|values| values[second]).collect();
        jain(&now).is_some_and(|index| index > measure.jain_above)
    };
    match first_held(length, measure.hold_s, fair) {
        None => Settled { convergence_s: Some(f64::INFINITY), stddev_mbps: None },
        Some(from) => {
            let deviations: Vec<f64> =
                all.iter().filter_map(|values| deviation(&values[from..length])).collect();
            let stddev_mbps = (!deviations.is_empty()).then(|| mean(&deviations));
            Settled { convergence_s: Some(from as f64), stddev_mbps }
        }
    }
}

/// Jain's fairness index; `None` where all values are zero.
pub(super) fn jain(values: &[f64]) -> Option<f64> {
    let squares: f64 = values.iter().map(|value| value * value).sum();
    let sum: f64 = values.iter().sum();
    (squares > 0.0).then(|| sum * sum / (values.len() as f64 * squares))
}

/// Time from a flow's start to the end of the first second that brought 80 % of the capacity.
pub(super) fn time_to_80_percent_s(record: &RunRecord, times: &Times, flow: usize) -> Option<f64> {
    let (range, mbps) = (times.flows[flow].clone(), &record.flows[flow].mbps);
    let end = range.end.min(mbps.len());
    let last = end.checked_sub(SAMPLES_PER_SECOND)?;
    let full = |start: &usize| {
        let window = *start..start + SAMPLES_PER_SECOND;
        mean(&mbps[window.clone()]) >= 0.8 * record.capacity_over(window)
    };
    let found = (range.start..=last).find(full);
    Some(
        found.map_or(f64::INFINITY, |at| (at + SAMPLES_PER_SECOND - range.start) as f64 * SAMPLE_S),
    )
}

/// Time from a flow's start to the end of the first sample that brought 90 % of the capacity, and that a second
/// followed which brought 90 % too.
pub(super) fn time_to_90_percent_s(record: &RunRecord, times: &Times, flow: usize) -> Option<f64> {
    let (range, mbps) = (times.flows[flow].clone(), &record.flows[flow].mbps);
    let last = range.end.min(mbps.len()).checked_sub(1 + SAMPLES_PER_SECOND)?;
    let brings =
        |window: Range<usize>| mean(&mbps[window.clone()]) >= 0.9 * record.capacity_over(window);
    let found = (range.start..=last)
        .find(|at| brings(*at..at + 1) && brings(at + 1..at + 1 + SAMPLES_PER_SECOND));
    Some(found.map_or(f64::INFINITY, |at| (at + 1 - range.start) as f64 * SAMPLE_S))
}

/// Longest time from a change of the link's rate to the moment from which on two seconds bring the
/// fair share of the new rate, within the tolerance.
pub(super) fn follow_s(
    record: &RunRecord,
    times: &Times,
    measure: &Measure,
    changes: &[usize],
    flow: usize,
) -> Option<f64> {
    let (range, mbps) = (&times.flows[flow], &record.flows[flow].mbps);
    let mut longest = None;
    for (index, change) in changes.iter().enumerate() {
        let end = changes.get(index + 1).copied().unwrap_or(range.end).min(mbps.len());
        let Some(last) = end.checked_sub(2 * SAMPLES_PER_SECOND).filter(|last| last >= change)
        else {
            continue;
        };
        if !range.contains(change) {
            continue;
        }
        let share = record.capacity_over(*change..end) / active(times, *change).len() as f64;
        let follows = |at: usize| {
            let now = mean(&mbps[at..at + SAMPLES_PER_SECOND]);
            (now - share).abs() <= measure.follow_tolerance * share
        };
        let found = (*change..=last).find(|at| follows(*at) && follows(at + SAMPLES_PER_SECOND));
        let time_s = found.map_or(f64::INFINITY, |at| (at - change) as f64 * SAMPLE_S);
        longest = Some(longest.map_or(time_s, |longest: f64| longest.max(time_s)));
    }
    longest
}

/// How much a queue counts in [`utility`]: as in the Rules Learner (`learner/`).
fn delay_exponent(class: Class) -> f64 {
    match class {
        Class::Bulk => 0.1,
        Class::Dash => 0.3,
        Class::Rtsp => 1.0,
    }
}

/// Mean over a flow's seconds of (throughput / what the link could carry) x (propagation / round trip)^d;
/// `None` where nothing could be carried. Each second counts alike, whatever the link is like in it.
pub(super) fn utility(record: &RunRecord, times: &Times, class: Class, flow: usize) -> Option<f64> {
    let of = &record.flows[flow];
    let range = times.flows[flow].start.max(times.warmup)..times.flows[flow].end.min(of.mbps.len());
    let mut all = Vec::new();
    let mut from = range.start;
    let mut last_rtt_s = None;
    while from + SAMPLES_PER_SECOND <= range.end {
        let second = from..from + SAMPLES_PER_SECOND;
        from = second.end;
        let capacity = record.capacity_over(second.clone());
        let samples: Vec<f64> = of.rtt_s[second.clone()].iter().copied().flatten().collect();
        if !samples.is_empty() {
            last_rtt_s = Some(mean(&samples));
        }
        if capacity <= 0.0 {
            continue;
        }
        let rate = (mean(&of.mbps[second.clone()]) / capacity).min(1.0);
        let propagation_s = mean(&record.rtt_s[second]);
        // Before the first sample nothing has arrived.
        let nearness = last_rtt_s.map_or(0.0, |rtt_s| (propagation_s / rtt_s).min(1.0));
        all.push(rate * nearness.powf(delay_exponent(class)));
    }
    (!all.is_empty()).then(|| mean(&all))
}

/// t of Eq. 1 of the Vivace paper (Section 5).
const VIVACE_EXPONENT: f64 = 0.9;
/// c of Eq. 1 of the Vivace paper (Section 5).
const VIVACE_LOSS_WEIGHT: f64 = 11.35;

/// Mean of Vivace's utility (Eq. 1) with b = 0 over the seconds of the time that counts; packets of `packet_bytes`.
pub(super) fn vivace_utility(
    record: &RunRecord,
    times: &Times,
    packet_bytes: u64,
    flow: usize,
) -> Option<f64> {
    let packets = &record.flows[flow].packets;
    let end = times.flows[flow].end.min(packets.len());
    let start = times.flows[flow].start.max(times.warmup).min(end);
    let second = |samples: &[(u64, u64)]| {
        let sent: u64 = samples.iter().map(|(sent, _)| sent).sum();
        let lost: u64 = samples.iter().map(|(_, lost)| lost).sum();
        let rate_mbps = sent as f64 * packet_bytes as f64 * 8e-6;
        // Losses are known a round trip late, when the rate may be lower already.
        let loss = if sent == 0 { 0.0 } else { (lost as f64 / sent as f64).min(1.0) };
        rate_mbps.powf(VIVACE_EXPONENT) - VIVACE_LOSS_WEIGHT * rate_mbps * loss
    };
    let all: Vec<f64> = packets[start..end].chunks_exact(SAMPLES_PER_SECOND).map(second).collect();
    (!all.is_empty()).then(|| mean(&all))
}

/// Smallest second of the ten after a change of the algorithm, relative to the mean of the five before it;
/// `None` where there was none, or no time for it.
pub(super) fn switch_ratio(
    record: &RunRecord,
    times: &Times,
    changes: &[usize],
    flow: usize,
) -> Option<f64> {
    let (range, mbps) = (&times.flows[flow], &record.flows[flow].mbps);
    let end = range.end.min(mbps.len());
    let of = |(index, at): (usize, &usize)| {
        let next = changes.get(index + 1).copied().unwrap_or(end).min(end);
        let from = at.checked_sub(5 * SAMPLES_PER_SECOND).filter(|from| *from >= range.start)?;
        let after = seconds(mbps, *at..next.min(at + 10 * SAMPLES_PER_SECOND));
        let least = after.into_iter().reduce(f64::min)?;
        Some(least / mean(&mbps[from..*at]))
    };
    changes.iter().enumerate().filter_map(of).reduce(f64::min)
}

/// Largest relative deviation from the shares asked for, a while after each change; `asked` are
/// moments and the share from there on.
pub(super) fn share_error(
    record: &RunRecord,
    times: &Times,
    asked: &[(usize, f64)],
    changes: &[usize],
    settle: usize,
    flow: usize,
) -> Option<f64> {
    let end = times.flows[flow].end.min(record.capacity_mbps.len());
    let mut worst = None;
    for (index, (from, share)) in asked.iter().enumerate() {
        let until = asked.get(index + 1).map_or(end, |(next, _)| *next).min(end);
        // Another flow's change moves this one too.
        let mut cuts: Vec<usize> =
            changes.iter().copied().filter(|at| (*from..until).contains(at)).collect();
        cuts.push(until);
        cuts.dedup();
        let mut start = *from;
        for cut in cuts {
            let window = (start + settle).min(cut)..cut;
            start = cut;
            if window.len() < SAMPLES_PER_SECOND {
                continue;
            }
            let target = share * record.capacity_over(window.clone());
            let error = (mean(&record.flows[flow].mbps[window]) / target - 1.0).abs();
            worst = Some(worst.map_or(error, |worst: f64| worst.max(error)));
        }
    }
    worst
}

#[cfg(test)]
#[path = "dynamics_tests.rs"]
mod tests;
