//! Vivace over simulated paths: throughput, queueing, and fairness.

mod simulated;

use std::time::Duration;

use millrace_cc::pcc::{PccConfig, StartUpKind, VIVACE_LATENCY as VIVACE, VIVACE_LOSS};
use millrace_cc::{Bandwidth, ConstantConfig};
use simulated::{DataSource, Link, Path, Run};

const SEEDS: std::ops::RangeInclusive<u64> = 1..=3;

/// The link of the demo.
fn lossy() -> Link {
    Link::new(12.0, 100.0, 150_000, 0.01)
}

fn bulk(link: Link, config: PccConfig, seed: u64, duration_s: f64) -> Run {
    Path::new(link, seed).flow(&config, DataSource::Bulk, 0.0).run(duration_s)
}

/// First moment from which half a second carries `mbps`.
fn reached_s(run: &Run, mbps: f64) -> f64 {
    let tenths = (0..600).map(|tenth| f64::from(tenth) / 10.0);
    let mut reached = tenths.filter(|from| run.flows[0].mbps(*from, from + 0.5) >= mbps);
    reached.next().unwrap_or(f64::INFINITY)
}

/// Smallest pacing rate after `from_s`.
fn least_rate(run: &Run, from_s: f64) -> f64 {
    let late = run.flows[0].rates.iter().filter(|(at, _)| at.as_secs_f64() > from_s);
    late.map(|(_, mbps)| *mbps).fold(f64::INFINITY, f64::min)
}

#[test]
fn the_path_model_has_the_rate_delay_buffer_and_loss_it_claims() {
    let constant = |mbps| ConstantConfig::new(Bandwidth::from_mbps(mbps));
    let below = Path::new(lossy(), 1).flow(&constant(6.0), DataSource::Bulk, 0.0).run(60.0);
    assert!((below.flows[0].loss() - 0.01).abs() < 0.002, "{}", below.flows[0].loss());
    assert!((below.flows[0].mbps(1.0, 60.0) - 5.94).abs() < 0.02);
    assert!(below.p95_queueing_ms(1.0) < 0.01, "no queue below capacity");
    assert!((below.flows[0].arrivals[0].0.as_secs_f64() - 0.0509).abs() < 1e-6, "half the RTT");

    // The window covers four round trips, so twice the capacity does not wait for it.
    let above = Path::new(lossy(), 1).flow(&constant(24.0), DataSource::Bulk, 0.0).run(60.0);
    // Random losses come before the queue, which stays full.
    assert!((above.flows[0].mbps(1.0, 60.0) - 12.0).abs() < 0.001);
    assert!((above.p95_queueing_ms(1.0) - 100.0).abs() < 2.0, "150 kB at 12 Mbit/s");
    assert!((above.flows[0].loss() - 0.505).abs() < 0.01, "{}", above.flows[0].loss());
}

#[test]
fn a_lossy_long_link_is_filled_soon_and_without_a_queue() {
    for seed in SEEDS {
        let run = bulk(lossy(), VIVACE, seed, 30.0);
        let (goodput, queueing) = (run.flows[0].mbps(3.0, 30.0), run.p95_queueing_ms(3.0));
        assert!(goodput >= 10.5, "{goodput:.2} Mbit/s");
        assert!(queueing < 30.0, "{queueing:.1} ms");
        let reached = reached_s(&run, 10.0);
        assert!(reached < 2.0, "{reached} s");
    }
}

#[test]
fn the_published_settings_lose_a_third_of_that_link() {
    // Checks the figure in the documentation, and that these tests can fail.
    let goodput = |seed| bulk(lossy(), VIVACE.as_published(), seed, 60.0).flows[0].mbps(3.0, 60.0);
    let mean = SEEDS.map(goodput).sum::<f64>() / 3.0;
    assert!((6.0..9.0).contains(&mean), "{mean:.2} Mbit/s");
}

/// The table "The authors' code" of docs/research/cc/pcc.md.
#[test]
fn the_rules_of_the_authors_code_bear_random_loss_that_stops_the_published_ones() {
    let link = Link::new(20.0, 30.0, 75_000, 0.03);
    let goodput = |config: PccConfig| {
        let of = |seed| bulk(link, config, seed, 26.0).flows[0].mbps(9.0, 26.0);
        SEEDS.map(of).sum::<f64>() / 3.0
    };
    let code = VIVACE_LOSS.as_nsdi18_code().expect("a member of Vivace");
    let (code, published) = (goodput(code), goodput(VIVACE_LOSS.as_published()));
    println!("{code:.1} by the code's rules, {published:.1} Mbit/s as published");
    assert!(code > 15.0 && published < 13.0, "{code:.1} {published:.1} Mbit/s");
}

#[test]
fn jitter_and_held_back_acknowledgements_do_not_stop_it() {
    for (jitter_ms, ack_every) in [(2, 2), (0, 16), (1, 10)] {
        let link = Link { jitter: Duration::from_millis(jitter_ms), ack_every, ..lossy() };
        let goodput = bulk(link, VIVACE, 1, 30.0).flows[0].mbps(3.0, 30.0);
        assert!(goodput >= 10.0, "{jitter_ms} ms, {ack_every}: {goodput:.2} Mbit/s");
    }
}

#[test]
fn a_fast_link_is_filled_with_and_without_loss() {
    for (loss, least) in [(0.0, 90.0), (0.01, 88.0), (0.03, 80.0)] {
        for seed in SEEDS {
            let run = bulk(Link::new(100.0, 30.0, 75_000, loss), VIVACE, seed, 20.0);
            let (goodput, queueing) = (run.flows[0].mbps(3.0, 20.0), run.p95_queueing_ms(3.0));
            assert!(goodput >= least, "{loss}: {goodput:.1} Mbit/s");
            assert!(queueing < 2.0, "{loss}: {queueing:.1} ms");
        }
    }
}

#[test]
fn a_satellite_link_is_filled_in_the_end() {
    let run = bulk(Link::new(42.0, 800.0, 1_000_000, 0.0074), VIVACE, 1, 100.0);
    let (whole, late) = (run.flows[0].mbps(0.0, 100.0), run.flows[0].mbps(30.0, 100.0));
    println!("{whole:.1} Mbit/s over 100 s, {late:.1} after 30 s");
    assert!(whole >= 32.0 && late >= 36.0, "{whole:.1} {late:.1}");
}

#[test]
fn extremes_of_rate_and_rtt_work() {
    let share = |mbps: f64, rtt_ms, buffer, seconds: f64| {
        let run = bulk(Link::new(mbps, rtt_ms, buffer, 0.0), VIVACE, 1, seconds);
        run.flows[0].mbps(seconds / 2.0, seconds) / mbps
    };
    let shares = [
        share(1000.0, 5.0, 1_000_000, 3.0),
        share(100.0, 0.1, 75_000, 4.0),
        share(0.2, 100.0, 15_000, 60.0),
        share(2.0, 2000.0, 500_000, 120.0),
    ];
    assert!(shares.iter().all(|share| *share > 0.8), "{shares:.2?}");
}

#[test]
fn two_flows_share_fairly_though_one_comes_later() {
    for link in [lossy(), Link::new(100.0, 30.0, 75_000, 0.0)] {
        let path = Path::new(link, 1);
        let run = path
            .flow(&VIVACE, DataSource::Bulk, 0.0)
            .flow(&VIVACE, DataSource::Bulk, 10.0)
            .run(80.0);
        let [a, b] = [0, 1].map(|flow: usize| run.flows[flow].mbps(40.0, 80.0));
        let jain = (a + b).powi(2) / (2.0 * (a * a + b * b));
        assert!(jain > 0.95, "{a:.1} and {b:.1} Mbit/s: {jain:.3}");
        assert!(a + b > 0.85 * link.rate.mbps(), "{a:.1} and {b:.1} Mbit/s");
    }
}

#[test]
fn a_video_gets_the_link_for_each_segment_after_each_pause() {
    // Seconds of 3.6 Mbit/s: 0.3 s of the link and a round trip, then a pause.
    let video = DataSource::Segments { bytes: 450_000, period: Duration::from_secs(1) };
    for seed in SEEDS {
        let run = Path::new(lossy(), seed).flow(&VIVACE, video.clone(), 0.0).run(60.0);
        let flow = &run.flows[0];
        assert!(flow.segment_s.len() >= 58, "{} segments", flow.segment_s.len());
        let slowest = flow.segment_s[3..].iter().copied().fold(0.0, f64::max);
        assert!(slowest < 0.9, "{slowest:.2} s");
        let least = least_rate(&run, 5.0);
        assert!(least > 7.0, "collapsed to {least:.1} Mbit/s");
        assert!(run.p95_queueing_ms(3.0) < 20.0, "a burst after idle shows as a queue");
    }
}

#[test]
fn a_source_below_the_link_keeps_its_rate() {
    let source = DataSource::Constant { rate: Bandwidth::from_mbps(3.0) };
    let run = Path::new(lossy(), 1).flow(&VIVACE, source, 0.0).run(60.0);
    let goodput = run.flows[0].mbps(10.0, 60.0);
    assert!((2.9..3.1).contains(&goodput), "{goodput:.2} Mbit/s");
    // Start-up ends at 4.3 Mbit/s, and application-limited intervals decide nothing.
    assert!(least_rate(&run, 10.0) > 4.0, "{:.2} Mbit/s", least_rate(&run, 10.0));
    assert!(run.p95_queueing_ms(10.0) < 5.0);
}

#[test]
fn it_follows_the_link_and_survives_an_outage() {
    let slow = Link { rate: Bandwidth::from_mbps(4.0), ..lossy() };
    let dead = Link { loss: 1.0, ..lossy() };
    let run = Path::new(lossy(), 1)
        .change(20.0, slow)
        .change(40.0, lossy())
        .change(60.0, dead)
        .change(63.0, lossy())
        .flow(&VIVACE, DataSource::Bulk, 0.0)
        .run(80.0);
    let mbps = |from, to| run.flows[0].mbps(from, to);
    assert!(mbps(24.0, 40.0) > 3.4, "{:.2}", mbps(24.0, 40.0));
    assert!(mbps(46.0, 60.0) > 10.0, "{:.2}", mbps(46.0, 60.0));
    assert!(mbps(61.0, 63.0) == 0.0);
    assert!(mbps(68.0, 80.0) > 10.0, "{:.2}", mbps(68.0, 80.0));
}

/// Initial window of the tunnel.
const TUNNEL_PACKETS: u64 = 32;

fn by_acks(member: PccConfig) -> PccConfig {
    PccConfig { start_up: StartUpKind::Pipelined, ..member }
}

fn from_32_packets(link: Link, config: PccConfig, seed: u64, duration_s: f64) -> Run {
    let path = Path::new(link, seed).flow(&config, DataSource::Bulk, 0.0);
    path.initial_window(TUNNEL_PACKETS).run(duration_s)
}

#[test]
fn start_up_by_acknowledgements_fills_a_satellite_link_in_six_seconds() {
    for loss in [0.0, 0.0074] {
        for seed in SEEDS {
            let link = Link::new(42.0, 800.0, 1_000_000, loss);
            // To the end of the half second.
            let after =
                |config| 0.5 + reached_s(&from_32_packets(link, config, seed, 20.0), 0.8 * 42.0);
            let by_doubling = PccConfig { start_up: StartUpKind::Doubling, ..VIVACE };
            let (reached, doubled) = (after(by_acks(VIVACE)), after(by_doubling));
            println!("{loss}: 80 % after {reached} s ({doubled} s by doubling)");
            assert!(reached <= 6.0 && doubled > 10.0, "{loss}: {reached} and {doubled} s");
        }
    }
}

#[test]
fn start_up_by_acknowledgements_overshoots_by_less_than_a_round_trip_of_queue() {
    // With a buffer that takes it all.
    let link = Link::new(42.0, 800.0, 50_000_000, 0.0074);
    for config in [VIVACE, VIVACE_LOSS].map(by_acks) {
        let run = from_32_packets(link, config, 1, 9.0);
        let longest = run.queueing.iter().map(|(_, delay)| *delay).max().expect("packets");
        println!("{}: queue of up to {longest:?}", config.name);
        assert!(longest < Duration::from_millis(800), "{}: {longest:?}", config.name);
    }
}

#[test]
fn start_up_by_acknowledgements_ends_at_the_right_rate_elsewhere_too() {
    for (mbps, rtt_ms, buffer, loss) in [
        (100.0, 30.0, 75_000, 0.0),
        (100.0, 30.0, 1_500, 0.0),
        (12.0, 100.0, 150_000, 0.01),
        (1000.0, 5.0, 1_000_000, 0.0),
        (2.0, 50.0, 30_000, 0.02),
    ] {
        for seed in SEEDS {
            let link = Link::new(mbps, rtt_ms, buffer, loss);
            let run = from_32_packets(link, by_acks(VIVACE), seed, 6.0);
            let goodput = run.flows[0].mbps(2.0, 6.0);
            assert!(goodput > 0.8 * mbps, "{goodput:.1} of {mbps} Mbit/s");
        }
    }
}
