//! Careful resume over simulated paths: what a jump to half of a saved window gains, and what it costs where the path
//! has changed.

mod simulated;

use std::sync::Arc;
use std::time::Duration;

use millrace_cc::careful_resume::{CarefulResumeConfig, SavedPath};
use millrace_cc::pcc::VIVACE_LATENCY;
use millrace_cc::registry::{self, Algorithm, Spec};
use simulated::{DataSource, Link, Path, Run};

/// Initial window of the tunnel.
const TUNNEL_PACKETS: u64 = 32;
const RTT_S: f64 = 0.8;
/// The bandwidth-delay product of 42 Mbit/s and 800 ms.
const SAVED: SavedPath = SavedPath { window_bytes: 4_200_000, rtt: Duration::from_millis(800) };

/// Members of Vivace start by acknowledgements: by doubling they try twice the jump as soon as it is confirmed.
fn resumed(name: &str, saved: SavedPath) -> CarefulResumeConfig {
    let spec = match name.starts_with("vivace") {
        true => Spec::named(name).with("start_up", "pipelined"),
        false => Spec::named(name),
    };
    match registry::find(&spec).expect("a known algorithm") {
        Algorithm::Controller(algorithm) => CarefulResumeConfig::new(algorithm, saved),
        Algorithm::Transport { .. } => unreachable!("of this crate"),
    }
}

fn run(
    config: &CarefulResumeConfig,
    link: Link,
    source: DataSource,
    seed: u64,
    seconds: f64,
) -> Run {
    let path = Path::new(link, seed).flow(config, source, 0.0);
    path.initial_window(TUNNEL_PACKETS).run(seconds)
}

fn megabyte() -> DataSource {
    DataSource::Segments { bytes: 1_000_000, period: Duration::from_secs(60) }
}

#[test]
fn megabyte_arrives_within_two_seconds_of_its_first_byte() {
    let link = Link::new(42.0, 1e3 * RTT_S, 4_200_000, 0.0);
    for name in ["vivace-latency", "vivace-loss", "vivace-lte", "iris-min", "bbr", "cubic", "reno"]
    {
        let took_s = |saved| {
            let flow = &run(&resumed(name, saved), link, megabyte(), 1, 12.0).flows[0];
            let first = flow.arrivals[0].0.as_secs_f64();
            flow.segment_s[0] - first
        };
        let without = took_s(SavedPath { window_bytes: 1, ..SAVED });
        let with = took_s(SAVED);
        println!("{name}: {with:.2} s, without {without:.2}");
        assert!(with <= 2.0 && without > with + 0.5, "{name}: {with:.2} s, without {without:.2}");
    }
}

#[test]
fn path_with_another_rtt_is_started_as_a_new_one() {
    // The saved path had 42 Mbit/s; this one has another RTT, and the jump would overflow it.
    let link = Link::new(10.0, 50.0, 10_000, 0.0);
    let lost = |saved| {
        let config = resumed("vivace-latency", saved);
        run(&config, link, DataSource::Bulk, 1, 2.0).flows[0].lost_packets
    };
    let without = lost(SavedPath { window_bytes: 1, ..SAVED });
    assert_eq!(lost(SAVED), without);
    let same_rtt = SavedPath { rtt: Duration::from_millis(50), ..SAVED };
    assert!(lost(same_rtt) > without, "the jump does not overflow the buffer");
}

#[test]
fn path_that_shrank_to_a_quarter_loses_little_with_a_buffer_of_one_bdp() {
    let link = Link::new(10.5, 1e3 * RTT_S, 1_050_000, 0.0);
    for name in ["vivace-latency", "vivace-loss", "vivace-lte", "iris-min"] {
        let loss =
            |saved| run(&resumed(name, saved), link, DataSource::Bulk, 1, 20.0).flows[0].loss();
        let (with, without) = (loss(SAVED), loss(SavedPath { window_bytes: 1, ..SAVED }));
        println!("{name}: {with:.4} lost, without {without:.4}");
        assert!(with <= without + 0.02, "{name}: {with:.4} lost, without {without:.4}");
    }
}

#[test]
fn path_that_shrank_to_a_quarter_is_used_two_round_trips_after_the_retreat() {
    let link = Link::new(10.5, 1e3 * RTT_S, 105_000, 0.0);
    for name in ["vivace-latency", "vivace-loss", "vivace-lte"] {
        for seed in 1..=3 {
            let run = run(&resumed(name, SAVED), link, DataSource::Bulk, seed, 12.0);
            let flow = &run.flows[0];
            let jump = flow.rates.iter().position(|(_, mbps)| *mbps > 15.0).expect("a jump");
            let retreat = flow.rates[jump..].iter().find(|(_, mbps)| *mbps < 8.0);
            let jump_s = flow.rates[jump].0.as_secs_f64();
            let retreat_s = retreat.expect("a retreat").0.as_secs_f64();
            let per_second: Vec<_> =
                (0..12).map(|at| flow.mbps(f64::from(at), f64::from(at) + 1.0)).collect();
            println!("{name}: jump at {jump_s:.2}, retreat at {retreat_s:.2} s; {per_second:.1?}");
            // Half a round trip later at the receiver.
            let from_s = retreat_s + 2.5 * RTT_S;
            let mbps = flow.mbps(from_s, from_s + 1.0);
            assert!(mbps >= 0.9 * 10.5, "{name}: {mbps:.2} Mbit/s");
        }
    }
}

#[test]
fn resumed_flow_without_saved_parameters_that_matter_is_the_algorithm() {
    let link = Link::new(12.0, 100.0, 150_000, 0.01);
    let plain = Path::new(link, 1)
        .flow(&VIVACE_LATENCY, DataSource::Bulk, 0.0)
        .initial_window(TUNNEL_PACKETS)
        .run(10.0);
    let saved = SavedPath { window_bytes: 1, ..SAVED };
    let config = CarefulResumeConfig::new(Arc::new(VIVACE_LATENCY), saved);
    let resumed = run(&config, link, DataSource::Bulk, 1, 10.0);
    assert_eq!(plain.flows[0].arrivals, resumed.flows[0].arrivals);
}
