//! Iris over simulated paths: throughput, queueing, and fairness.

mod simulated;

use std::time::Duration;

use millrace_cc::Bandwidth;
use millrace_cc::iris::IrisConfig;
use simulated::{DataSource, Link, Path, Record, Run};

const IRIS: IrisConfig = IrisConfig::min();

/// The paper's link: 20 Mbit/s and 50 ms.
fn link(loss: f64) -> Link {
    Link::new(20.0, 50.0, 125_000, loss)
}

fn bulk(link: Link, duration_s: f64) -> Run {
    Path::new(link, 1).flow(&IRIS, DataSource::Bulk, 0.0).run(duration_s)
}

fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    sum * sum / (shares.len() as f64 * shares.iter().map(|share| share * share).sum::<f64>())
}

/// Packets are lost at random before the queue, so that arrivals there are uneven: the queue varies more,
/// around the same mean.
#[test]
fn random_loss_is_no_signal() {
    for (loss, p95_ms) in [(0.0, 6.0), (0.01, 8.0), (0.03, 9.5), (0.05, 10.5)] {
        for seed in 1..=3 {
            let run = Path::new(link(loss), seed).flow(&IRIS, DataSource::Bulk, 0.0).run(30.0);
            let (goodput, queueing) = (run.flows[0].mbps(3.0, 30.0), run.p95_queueing_ms(3.0));
            assert!(goodput > 0.97 * 20.0, "{loss}: {goodput:.2} Mbit/s");
            assert!(queueing < p95_ms, "{loss}: {queueing:.1} ms");
            // Ten packets are 5.4 ms; after a run of losses the flow keeps fewer for some seconds.
            let late = run.queueing.iter().filter(|(at, _)| at.as_secs_f64() > 3.0);
            let (count, sum) = late.fold((0, 0.0), |(count, sum), (_, delay)| {
                (count + 1, sum + delay.as_secs_f64() * 1e3)
            });
            let mean = sum / f64::from(count);
            assert!((3.0..5.5).contains(&mean), "{loss}: {mean:.1} ms");
        }
    }
}

/// What the extensions are for: the published rules keep more queue, and lose what a buffer below B can't hold.
#[test]
fn the_published_rules_keep_more_queue_and_overflow_a_small_buffer() {
    let run = |config: IrisConfig, buffer_bytes| {
        let link = Link::new(20.0, 50.0, buffer_bytes, 0.0);
        Path::new(link, 1).flow(&config, DataSource::Bulk, 0.0).run(60.0)
    };
    let [default, published] = [IRIS, IRIS.as_published()].map(|config| {
        let small = run(config, 10_000).flows[0].loss();
        let whole = run(config, 125_000);
        println!("{:.1} Mbit/s", whole.flows[0].mbps(10.0, 60.0));
        (whole.p95_queueing_ms(10.0), small)
    });
    println!("p95 of the queue, lost of 10 kB: {default:?} by default, {published:?} as published");
    assert!(published.0 > 1.5 * default.0, "{published:?} {default:?}");
    assert!(published.1 > 5.0 * default.1, "{published:?} {default:?}");
}

/// Three flows, 20 s after each other, in half a bandwidth-delay product of buffer.
fn three(config: IrisConfig, seed: u64) -> Run {
    let mut path = Path::new(Link::new(20.0, 50.0, 62_500, 0.0), seed);
    for flow in 0..3 {
        path = path.flow(&config, DataSource::Bulk, 20.0 * f64::from(flow) + 0.13 * seed as f64);
    }
    path.run(100.0)
}

fn shares(run: &Run, from: f64, to: f64) -> Vec<f64> {
    run.flows.iter().map(|flow| flow.mbps(from, to)).collect()
}

#[test]
fn three_flows_that_come_one_after_the_other_share_fairly() {
    let runs = [1, 2, 3].map(|seed| three(IRIS, seed));
    let soon = runs.each_ref().map(|run| jain(&shares(run, 45.0, 50.0)));
    assert!(soon.iter().sum::<f64>() / 3.0 > 0.95, "{soon:.3?}");
    for run in &runs {
        let late = shares(run, 60.0, 100.0);
        assert!(jain(&late) > 0.99, "{late:.1?}");
        assert!(run.p95_queueing_ms(60.0) < 20.0, "thirty packets are 16 ms");
    }
}

#[test]
fn a_full_buffer_is_not_taken_for_the_path() {
    // Their queue loads do not fit, and a drain by one of them empties nothing.
    let mid = three(IrisConfig::mid(), 1);
    let late = shares(&mid, 80.0, 100.0);
    assert!(jain(&late) > 0.9, "{late:.1?}");

    let mut path = Path::new(Link::new(50.0, 50.0, 140_000, 0.0), 1);
    for flow in 0..15 {
        path = path.flow(&IRIS, DataSource::Bulk, 10.0 * f64::from(flow));
    }
    let run = path.run(200.0);
    let late = shares(&run, 180.0, 200.0);
    assert!(jain(&late) > 0.9, "{late:.1?}");
    let [lost, sent] = [|flow: &Record| flow.lost_packets, |flow: &Record| flow.sent_packets]
        .map(|count| run.flows.iter().map(count).sum::<u64>() as f64);
    // With B alone it is a fifth.
    assert!(lost / sent < 0.05, "{:.3} lost", lost / sent);
}

#[test]
fn a_buffer_below_the_queue_load_is_not_overrun() {
    let run = bulk(Link::new(20.0, 50.0, 10_000, 0.0), 60.0);
    assert!(run.flows[0].mbps(3.0, 60.0) > 19.5);
    // Eq. 3 alone would lose a third, until ten packets meet 2.7 ms.
    assert!(run.flows[0].loss() < 0.05, "{}", run.flows[0].loss());
}

#[test]
fn it_follows_rate_route_and_outage() {
    let other = |rtt_ms| Link::new(20.0, rtt_ms, 250_000, 0.0);
    let dead = Link { loss: 1.0, ..other(50.0) };
    let run = Path::new(other(50.0), 1)
        .change(20.0, other(100.0))
        .change(40.0, Link::new(5.0, 50.0, 250_000, 0.0))
        .change(60.0, dead)
        .change(63.0, other(50.0))
        .flow(&IRIS, DataSource::Bulk, 0.0)
        .run(80.0);
    let mbps = |from, to| run.flows[0].mbps(from, to);
    assert!(mbps(22.0, 40.0) > 19.0, "a longer route is no queue: {:.2}", mbps(22.0, 40.0));
    assert!(mbps(42.0, 60.0) > 4.8, "{:.2}", mbps(42.0, 60.0));
    assert!(mbps(61.0, 63.0) == 0.0);
    assert!(mbps(67.0, 80.0) > 18.0, "{:.2}", mbps(67.0, 80.0));
}

#[test]
fn a_video_gets_the_link_for_each_segment_after_each_pause() {
    let video = DataSource::Segments { bytes: 450_000, period: Duration::from_secs(1) };
    let link = Link::new(12.0, 100.0, 150_000, 0.01);
    let run = Path::new(link, 1).flow(&IRIS, video, 0.0).run(60.0);
    let slowest = run.flows[0].segment_s[3..].iter().copied().fold(0.0, f64::max);
    assert!(run.flows[0].segment_s.len() >= 58 && slowest < 0.9, "{slowest:.2} s");
    assert!(run.p95_queueing_ms(3.0) < 50.0, "{:.1} ms", run.p95_queueing_ms(3.0));
}

#[test]
fn a_source_below_the_link_makes_no_queue() {
    let source = DataSource::Constant { rate: Bandwidth::from_mbps(3.0) };
    let run = Path::new(link(0.01), 1).flow(&IRIS, source, 0.0).run(30.0);
    assert!((2.9..3.1).contains(&run.flows[0].mbps(10.0, 30.0)));
    assert!(run.p95_queueing_ms(10.0) < 5.0);
}

#[test]
fn jitter_and_held_back_acknowledgements_do_not_stop_it() {
    for (jitter_ms, ack_every) in [(2, 2), (10, 2), (0, 16)] {
        let jitter = Duration::from_millis(jitter_ms);
        let run = bulk(Link { jitter, ack_every, ..link(0.0) }, 30.0);
        let goodput = run.flows[0].mbps(3.0, 30.0);
        assert!(goodput > 18.5, "{jitter_ms} ms, {ack_every}: {goodput:.2} Mbit/s");
    }
}

#[test]
fn extremes_of_rate_and_rtt_work() {
    let share = |mbps: f64, rtt_ms, buffer, seconds: f64| {
        bulk(Link::new(mbps, rtt_ms, buffer, 0.0), seconds).flows[0].mbps(seconds / 2.0, seconds)
            / mbps
    };
    let shares = [
        share(1000.0, 5.0, 1_000_000, 3.0),
        share(100.0, 0.1, 75_000, 4.0),
        share(0.2, 100.0, 50_000, 60.0),
        share(2.0, 2000.0, 500_000, 120.0),
    ];
    assert!(shares.iter().all(|share| *share > 0.9), "{shares:.2?}");
}
