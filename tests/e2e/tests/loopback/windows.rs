//! Flow-control windows follow the path: long and fat ones fill.

use std::io::Read;
use std::time::{Duration, Instant};

use millrace_e2e::data;
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::{Pair, PairBuilder};
use millrace_e2e::relay::RelayOptions;

/// The part of the wire's rate that must arrive as data: headers are 3 to 5 %.
const FILLED: f64 = 0.86;

struct Path {
    rate_mbps: u32,
    round_trip: Duration,
    warm_up: Duration,
    /// Round trips enough to tell a rate, short enough to find one without the machine's other work.
    slice: Duration,
    /// At most: a lost datagram (a socket overflows while the machine does something else) holds the
    /// bytes after it back for a round trip or more, which one slice shows and the next one does not.
    slices: u32,
}

/// What one download reaches after the warm-up, in Mbit/s: the best slice, since a window that is too
/// small caps each of them. The first one that reaches `enough` ends the search.
fn goodput_mbps(path: &Path, enough: f64, builder: PairBuilder) -> f64 {
    let origin = Origin::start(|stream| {
        data::send(&stream, 19, 1 << 40).ok();
    });
    let rate = format!("{{ name = \"constant\", rate_mbps = {} }}", path.rate_mbps);
    let pair = builder
        .server("tunnel.congestion_control", rate)
        .relay(RelayOptions { one_way: path.round_trip / 2, ..Default::default() })
        .measured()
        .start();
    let mut flow = pair.http().open(&origin.address().to_string()).unwrap();
    let mut buffer = vec![0; 1 << 18];
    let started = Instant::now();
    let mut download_until = |end: Instant| {
        let mut bytes = 0;
        while Instant::now() < end {
            let read = flow.read(&mut buffer).unwrap();
            assert!(read > 0, "the download ended");
            bytes += read;
        }
        bytes
    };
    download_until(started + path.warm_up);
    let mut best = 0.0;
    for slice in 1..=path.slices {
        let bytes = download_until(started + path.warm_up + path.slice * slice);
        let mbps = bytes as f64 * 8e-6 / path.slice.as_secs_f64();
        println!("{} Mbit/s over {:?}: {mbps:.1} Mbit/s", path.rate_mbps, path.round_trip);
        best = mbps.max(best);
        if best >= enough {
            break;
        }
    }
    best
}

const LONG: Path = Path {
    rate_mbps: 42,
    round_trip: Duration::from_millis(800),
    warm_up: Duration::from_millis(4500),
    slice: Duration::from_secs(4),
    slices: 5,
};

#[test]
fn a_path_of_42_mbps_and_800_ms_fills() {
    let enough = FILLED * 42.0;
    let mbps = goodput_mbps(&LONG, enough, Pair::builder());
    assert!(mbps >= enough, "{mbps:.1} of 42 Mbit/s");
}

/// That the test above can tell: with windows that may not grow, window / round trip is all there
/// is, and half of it is what arrives, since quiche announces more when half is consumed.
#[test]
fn windows_that_may_not_grow_cap_the_rate() {
    let window = 1 << 20;
    let builder = Pair::builder()
        .both("tunnel.max_stream_window_bytes", window)
        .both("tunnel.max_connection_window_bytes", window);
    let cap = f64::from(window) * 8e-6 / LONG.round_trip.as_secs_f64();
    let mbps = goodput_mbps(&LONG, 0.5 * cap, builder);
    assert!(mbps <= 1.1 * cap, "{mbps:.1} Mbit/s with a cap of {cap:.1}");
    assert!(mbps >= 0.5 * cap, "{mbps:.1} Mbit/s with a cap of {cap:.1}");
}

#[test]
fn a_path_of_1_gbps_and_100_ms_fills() {
    let path = Path {
        rate_mbps: 1000,
        round_trip: Duration::from_millis(100),
        warm_up: Duration::from_secs(2),
        slice: Duration::from_secs(1),
        slices: 15,
    };
    let enough = FILLED * 1000.0;
    let mbps = goodput_mbps(&path, enough, Pair::builder());
    assert!(mbps >= enough, "{mbps:.1} of 1000 Mbit/s");
}
