use super::super::record::FlowRecord;
use super::*;

fn measure(convergence: Convergence) -> Measure {
    Measure {
        convergence,
        share_tolerance: 0.25,
        jain_above: 0.9,
        hold_s: 5.0,
        follow_tolerance: 0.2,
        settle_s: 2.0,
        epoch_s: None,
    }
}

/// Throughput second by second on a link of `capacity`.
fn record(capacity: f64, flows: &[&[f64]]) -> RunRecord {
    let samples = |seconds: &[f64]| {
        seconds.iter().flat_map(|mbps| [*mbps; SAMPLES_PER_SECOND]).collect::<Vec<f64>>()
    };
    let length = flows.iter().map(|flow| flow.len()).max().unwrap_or(0) * SAMPLES_PER_SECOND;
    let flow = |seconds: &&[f64]| FlowRecord {
        mbps: samples(seconds),
        rtt_s: vec![Some(0.03); seconds.len() * SAMPLES_PER_SECOND],
        packets: vec![(100, 0); seconds.len() * SAMPLES_PER_SECOND],
        peak_in_flight_bytes: 0,
        epochs: None,
        shown_kbps: Vec::new(),
    };
    RunRecord {
        capacity_mbps: vec![capacity; length],
        rtt_s: vec![0.03; length],
        flows: flows.iter().map(flow).collect(),
        packets: Vec::new(),
        rows: None,
    }
}

fn times(seconds: &[(usize, usize)]) -> Times {
    let flows = seconds
        .iter()
        .map(|(start, end)| start * SAMPLES_PER_SECOND..end * SAMPLES_PER_SECOND)
        .collect();
    Times { flows, warmup: 0 }
}

#[test]
fn share_convergence_is_the_first_of_five_seconds_near_the_fair_share() {
    // Fair share 50 from second 2 on; a lone good second does not count.
    let first = [100.0; 12];
    let second = [0.0, 0.0, 10.0, 45.0, 20.0, 40.0, 50.0, 60.0, 50.0, 40.0, 60.0, 40.0];
    let record = record(100.0, &[&first, &second]);
    let found = settled(&record, &times(&[(0, 12), (2, 12)]), &measure(Convergence::Share));
    assert_eq!(found[1].convergence_s, Some(3.0));
    let expected = deviation(&[40.0, 50.0, 60.0, 50.0, 40.0, 60.0, 40.0]);
    assert_eq!(found[1].stddev_mbps, expected);
    // The first flow was alone for two seconds only: not enough to tell.
    assert_eq!(found[0], Settled::default());
}

#[test]
fn what_never_converges_takes_for_ever_and_has_no_deviation() {
    let flow = [50.0, 50.0, 50.0, 50.0, 100.0, 50.0, 50.0, 50.0, 50.0, 100.0];
    let record = record(100.0, &[&flow]);
    let found = settled(&record, &times(&[(0, 10)]), &measure(Convergence::Share));
    let never = Settled { convergence_s: Some(f64::INFINITY), stddev_mbps: None };
    assert_eq!(found, [never]);
}

#[test]
fn jain_convergence_is_of_all_flows_and_ends_with_the_next_entry() {
    let a = [10.0, 10.0, 10.0, 10.0, 10.0, 9.0, 6.0, 5.0, 5.0, 5.0, 5.0, 5.0];
    let b = [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 4.0, 5.0, 5.0, 5.0, 5.0, 5.0];
    let record = record(10.0, &[&a, &b]);
    let found = settled(&record, &times(&[(0, 12), (5, 12)]), &measure(Convergence::Jain));
    assert_eq!(found[0].convergence_s, Some(0.0));
    assert_eq!(found[0].stddev_mbps, Some(0.0));
    // 9 to 1 is 0.61, 6 to 4 is 0.96.
    assert_eq!(found[1].convergence_s, Some(1.0));
    let mean_of_both = (deviation(&a[6..]).unwrap() + deviation(&b[6..]).unwrap()) / 2.0;
    assert!((found[1].stddev_mbps.unwrap() - mean_of_both).abs() < 1e-12);
}

#[test]
fn without_convergence_the_deviation_is_of_what_counts() {
    let record = record(10.0, &[&[1.0, 8.0, 10.0, 8.0, 10.0]]);
    let times = Times { warmup: SAMPLES_PER_SECOND, ..times(&[(0, 5)]) };
    let found = settled(&record, &times, &measure(Convergence::None));
    assert_eq!(found[0], Settled { convergence_s: None, stddev_mbps: Some(1.0) });
}

#[test]
fn jain_is_one_for_equals_and_one_of_n_for_one() {
    assert_eq!(jain(&[3.0, 3.0, 3.0]), Some(1.0));
    assert_eq!(jain(&[3.0, 0.0, 0.0]), Some(1.0 / 3.0));
    assert_eq!(jain(&[0.0, 0.0]), None);
}

#[test]
fn eighty_percent_counts_from_the_start_to_the_end_of_the_second() {
    let seconds = [0.0, 0.0, 4.0, 8.0, 10.0];
    let (fast, slow) = (record(10.0, &[&seconds]), record(20.0, &[&seconds]));
    let times = times(&[(1, 5)]);
    assert_eq!(time_to_80_percent_s(&fast, &times, 0), Some(3.0));
    assert_eq!(time_to_80_percent_s(&slow, &times, 0), Some(f64::INFINITY));
}

#[test]
fn ninety_percent_counts_to_the_first_sample_that_a_full_second_follows() {
    let mut record = record(10.0, &[&[0.0, 0.0, 5.0, 10.0, 9.0, 8.0]]);
    let times = times(&[(1, 6)]);
    let found = |record: &RunRecord| time_to_90_percent_s(record, &times, 0).unwrap();
    // The first of the samples at 10.
    assert!((found(&record) - 2.1).abs() < 1e-9, "{}", found(&record));
    // One good sample in a second of 5 is not followed by a good second.
    record.flows[0].mbps[2 * SAMPLES_PER_SECOND + 3] = 10.0;
    assert!((found(&record) - 2.1).abs() < 1e-9, "{}", found(&record));
    // With the whole second at 8 the sample before it does not count, nor those after which less follows.
    record.flows[0].mbps[3 * SAMPLES_PER_SECOND..].fill(8.0);
    assert_eq!(found(&record), f64::INFINITY);
}

#[test]
fn following_is_two_seconds_near_the_new_rate() {
    let mut record = record(10.0, &[&[10.0, 10.0, 10.0, 10.0, 10.0, 12.0, 20.0, 18.0, 20.0, 20.0]]);
    record.capacity_mbps[5 * SAMPLES_PER_SECOND..].fill(20.0);
    let (times, measure) = (times(&[(0, 10)]), measure(Convergence::None));
    let found = follow_s(&record, &times, &measure, &[5 * SAMPLES_PER_SECOND], 0).unwrap();
    // The second that begins 0.5 s after the change holds as much of 12 as of 20: 16, just enough.
    assert!((found - 0.5).abs() < 1e-9, "{found}");
    assert_eq!(follow_s(&record, &times, &measure, &[], 0), None);
    record.capacity_mbps[5 * SAMPLES_PER_SECOND..].fill(40.0);
    let never = follow_s(&record, &times, &measure, &[5 * SAMPLES_PER_SECOND], 0);
    assert_eq!(never, Some(f64::INFINITY));
}

#[test]
fn a_switch_is_judged_by_its_worst_second() {
    let after = [8.0, 9.0, 7.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 1.0, 10.0];
    let all: Vec<f64> = [10.0; 6].into_iter().chain(after).collect();
    let record = record(10.0, &[&all]);
    let times = times(&[(0, 18)]);
    let found = |changes: &[usize]| switch_ratio(&record, &times, changes, 0);
    // The second of 1 Mbit/s comes too late to be the switch's doing, unless there is another one.
    assert!((found(&[6 * SAMPLES_PER_SECOND]).unwrap() - 0.7).abs() < 1e-9);
    assert!(
        (found(&[6 * SAMPLES_PER_SECOND, 16 * SAMPLES_PER_SECOND]).unwrap() - 0.1).abs() < 1e-9
    );
    assert_eq!(found(&[]), None);
    assert_eq!(found(&[4 * SAMPLES_PER_SECOND]), None, "less than five seconds before it");
}

#[test]
fn utility_counts_each_second_alike_and_a_queue_a_little() {
    let mut record = record(10.0, &[&[10.0, 5.0, 1.0, 1.0]]);
    let times = times(&[(0, 4)]);
    record.capacity_mbps[2 * SAMPLES_PER_SECOND..].fill(1.0);
    let found = |record: &RunRecord| utility(record, &times, Class::Bulk, 0).unwrap();
    assert!((found(&record) - 3.5 / 4.0).abs() < 1e-9);
    // Ten times the propagation: 10^-0.1. In the last second there is no sample, and it is as before.
    record.flows[0].rtt_s[2 * SAMPLES_PER_SECOND..3 * SAMPLES_PER_SECOND].fill(Some(0.3));
    record.flows[0].rtt_s[3 * SAMPLES_PER_SECOND..].fill(None);
    let late = 10_f64.powf(-0.1);
    assert!((found(&record) - (1.5 + 2.0 * late) / 4.0).abs() < 1e-9);
    // A stream that is watched as it happens minds it in full.
    let streamed = utility(&record, &times, Class::Rtsp, 0).unwrap();
    assert!((streamed - (1.5 + 2.0 * 0.1) / 4.0).abs() < 1e-9);
    record.capacity_mbps.fill(0.0);
    assert_eq!(utility(&record, &times, Class::Bulk, 0), None);
}

#[test]
fn vivace_utility_grows_with_the_rate_and_falls_with_loss() {
    let mut record = record(10.0, &[&[10.0, 10.0]]);
    let times = times(&[(0, 2)]);
    let found = |record: &RunRecord| vivace_utility(record, &times, 1500, 0).unwrap();
    // 1000 packets of 1500 bytes a second are 12 Mbit/s.
    assert!((found(&record) - 12_f64.powf(0.9)).abs() < 1e-9);
    record.flows[0].packets[..SAMPLES_PER_SECOND].fill((100, 5));
    let lossy = 12_f64.powf(0.9) - 11.35 * 12.0 * 0.05;
    let expected = (12_f64.powf(0.9) + lossy) / 2.0;
    assert!((found(&record) - expected).abs() < 1e-9, "{} {expected}", found(&record));
    record.flows[0].packets.fill((0, 3));
    assert_eq!(found(&record), 0.0, "losses of an earlier second");
    record.flows[0].packets.clear();
    assert_eq!(vivace_utility(&record, &times, 1500, 0), None);
}

#[test]
fn share_errors_leave_out_the_time_after_each_change() {
    let record = record(100.0, &[&[0.0, 0.0, 50.0, 50.0, 0.0, 0.0, 66.0, 66.0]]);
    let times = times(&[(0, 8)]);
    let asked = [(0, 0.5), (4 * SAMPLES_PER_SECOND, 0.6)];
    let changes = [0, 4 * SAMPLES_PER_SECOND];
    let found = share_error(&record, &times, &asked, &changes, 2 * SAMPLES_PER_SECOND, 0).unwrap();
    assert!((found - 0.1).abs() < 1e-9, "{found}");
    assert_eq!(share_error(&record, &times, &[], &changes, 2 * SAMPLES_PER_SECOND, 0), None);
}
