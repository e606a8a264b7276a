//! Flow-control windows follow the path: long and fat ones fill.

use std::io::Read;
use std::time::{Duration, Instant};

use millrace_e2e::data;
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::{Pair, PairBuilder};
use millrace_e2e::relay::RelayOptions;

/// The part of the wire's rate that must arrive as data: headers are 3 to 5 %.
const FILLED: f64 = 0.88;

struct Path {
    rate_mbps: u32,
    round_trip: Duration,
    warm_up: Duration,
    measured: Duration,
}

/// What one download reaches, in Mbit/s, after the warm-up.
fn goodput_mbps(path: &Path, builder: PairBuilder) -> f64 {
    let origin = Origin::start(|stream| {
        data::send(&stream, 19, 1 << 40).ok();
    });
    let rate = format!("{{ name = \"constant\", rate_mbps = {} }}", path.rate_mbps);
    let pair = builder
        .server("tunnel.congestion_control", rate)
        .relay(RelayOptions { one_way: path.round_trip / 2, record: false })
        .alone()
        .start();
    let mut flow = pair.http().open(&origin.address().to_string()).unwrap();
    let mut buffer = vec![0; 1 << 18];
    let started = Instant::now();
    let (mut bytes, mut from) = (0, None);
    while started.elapsed() < path.warm_up + path.measured {
        let read = flow.read(&mut buffer).unwrap();
        assert!(read > 0, "the download ended");
        match from {
            None if started.elapsed() >= path.warm_up => from = Some(Instant::now()),
            None => {}
            Some(_) => bytes += read,
        }
    }
    let seconds = from.expect("the measurement began").elapsed().as_secs_f64();
    let mbps = bytes as f64 * 8e-6 / seconds;
    println!("{} Mbit/s over {:?}: {mbps:.1} Mbit/s", path.rate_mbps, path.round_trip);
    mbps
}

const LONG: Path = Path {
    rate_mbps: 42,
    round_trip: Duration::from_millis(800),
    warm_up: Duration::from_millis(4500),
    measured: Duration::from_secs(4),
};

#[test]
fn a_path_of_42_mbps_and_800_ms_fills() {
    let mbps = goodput_mbps(&LONG, Pair::builder());
    assert!(mbps >= FILLED * 42.0, "{mbps:.1} of 42 Mbit/s");
}

/// That the test above can tell: with windows that may not grow, window / round trip is all there is.
#[test]
fn windows_that_may_not_grow_cap_the_rate() {
    let window = 1 << 20;
    let builder = Pair::builder()
        .both("tunnel.max_stream_window_bytes", window)
        .both("tunnel.max_connection_window_bytes", window);
    let mbps = goodput_mbps(&LONG, builder);
    let cap = f64::from(window) * 8e-6 / LONG.round_trip.as_secs_f64();
    assert!(mbps <= 1.1 * cap, "{mbps:.1} Mbit/s with a cap of {cap:.1}");
    assert!(mbps >= 0.5 * cap, "{mbps:.1} Mbit/s with a cap of {cap:.1}");
}

#[test]
fn a_path_of_1_gbps_and_100_ms_fills() {
    let path = Path {
        rate_mbps: 1000,
        round_trip: Duration::from_millis(100),
        warm_up: Duration::from_secs(2),
        measured: Duration::from_secs(4),
    };
    let mbps = goodput_mbps(&path, Pair::builder());
    assert!(mbps >= FILLED * 1000.0, "{mbps:.1} of 1000 Mbit/s");
}
