//! The simulator against closed forms: exactly, or within four standard deviations for random values.

mod common;

use std::time::Duration;

use common::{constant, demo, outcome, setup};
use millrace_sim::{Delays, FlowSetup, LinkSetup, Setup};

const MS: Duration = Duration::from_millis(1);

fn one(link: LinkSetup, mbps: f64, seconds: u64) -> Setup {
    setup(link, vec![FlowSetup::bulk(constant(mbps))], seconds)
}

#[track_caller]
fn always(delays: &Delays, delay: Duration) {
    assert_eq!((delays.min, delays.p50, delays.max), (delay, delay, delay), "{delays:?}");
    assert_eq!(delays.mean, delay);
}

#[test]
fn below_capacity_nothing_waits_and_nothing_is_lost() {
    // A packet each 2 ms, the last but one 2 ms before the end; each takes 51 ms to arrive.
    let outcome = outcome(&one(demo(), 6.0, 60));
    let flow = &outcome.flows[0];
    assert_eq!(flow.sent_packets, 30_000);
    assert_eq!(flow.delivered_packets, (60_000 - 51_u64).div_ceil(2));
    assert_eq!(outcome.link.inside_packets, flow.sent_packets - flow.delivered_packets);
    assert_eq!((flow.dropped_packets, flow.random_lost_packets), (0, 0));
    assert_eq!((flow.declared_lost_packets, flow.retransmitted_packets), (0, 0));
    assert_eq!(outcome.link.queue_max_bytes, 0);
    always(&flow.queueing, Duration::ZERO);
    always(&flow.rtt, 101 * MS);
    assert_eq!(outcome.link.capacity_bytes, 90_000_000);
    assert_eq!(outcome.link.delivered_bytes, flow.delivered_packets * 1500);
}

#[test]
fn at_capacity_the_line_is_full_and_the_queue_empty() {
    let at = Setup { warmup: Duration::from_secs(5), ..one(demo(), 12.0, 60) };
    let outcome = outcome(&at);
    assert_eq!(outcome.link.utilisation, 1.0);
    assert_eq!(outcome.flows[0].throughput.bits_per_s(), 12_000_000);
    assert_eq!(outcome.flows[0].goodput.bits_per_s(), 12_000_000 / 1500 * 1452);
    assert_eq!(outcome.link.dropped_packets, 0);
    always(&outcome.flows[0].queueing, Duration::ZERO);
}

#[test]
fn above_capacity_the_queue_is_full_and_the_rest_is_dropped() {
    for (mbps, sent_per_s) in [(24.0, 2000), (18.0, 1500), (13.0, 1083)] {
        let above = Setup { warmup: Duration::from_secs(10), ..one(demo(), mbps, 60) };
        let outcome = outcome(&above);
        let flow = &outcome.flows[0];
        assert_eq!(outcome.link.utilisation, 1.0);
        assert_eq!(flow.delivered_packets, 50_000);
        assert!(flow.sent_packets.abs_diff(50 * sent_per_s) <= 50, "{}", flow.sent_packets);
        // What does not fit is dropped, but for the one place that may be free at the ends.
        let excess = flow.sent_packets - flow.delivered_packets;
        assert!(flow.dropped_packets.abs_diff(excess) <= 1, "{} {excess}", flow.dropped_packets);
        // A packet that finds room waits for the 100 before it, or for a part less of a packet.
        assert_eq!(outcome.link.queue_max_bytes, 150_000);
        assert!(flow.queueing.max <= 100 * MS && flow.queueing.min > 99 * MS, "{flow:?}");
        assert!(flow.rtt.max <= 201 * MS && flow.rtt.min > 200 * MS, "{:?}", flow.rtt);
    }
}

#[test]
fn at_twice_the_capacity_every_other_packet_is_dropped_exactly() {
    let above = Setup { warmup: Duration::from_secs(5), ..one(demo(), 24.0, 60) };
    let outcome = outcome(&above);
    let flow = &outcome.flows[0];
    let counts = (flow.sent_packets, flow.delivered_packets, flow.dropped_packets);
    assert_eq!(counts, (110_000, 55_000, 55_000));
    always(&flow.queueing, 100 * MS);
    always(&flow.rtt, 201 * MS);
    assert_eq!(flow.declared_lost_packets, 55_000);
    assert_eq!(flow.loss_rate(), 0.5);
}

#[test]
fn loss_is_binomial_in_both_directions() {
    for seed in 1..=5 {
        let lossy = LinkSetup { loss: 0.02, loss_reverse: 0.3, ..demo() };
        let outcome = outcome(&Setup { seed, ..one(lossy, 6.0, 100) });
        let flow = &outcome.flows[0];
        assert_eq!(flow.sent_packets, 50_000);
        // Standard deviation of 1000 expected losses: 31.3.
        assert!(flow.random_lost_packets.abs_diff(1000) < 125, "{}", flow.random_lost_packets);
        // Each acknowledgement that arrives gives an RTT sample. Each second packet is acknowledged,
        // and each after a loss, of which every other one would not have been.
        let acks = (flow.delivered_packets as f64 + flow.random_lost_packets as f64 / 2.0) / 2.0;
        // Standard deviation of the share: 0.0029.
        let arrived = flow.rtt.count as f64 / acks;
        assert!((arrived - 0.7).abs() < 0.012, "{arrived}");
        // A later acknowledgement says all that a lost one did: a wait, no loss.
        assert!(flow.declared_lost_packets.abs_diff(flow.random_lost_packets) < 30);
        assert_eq!(flow.spurious_losses, 0);
    }
}
