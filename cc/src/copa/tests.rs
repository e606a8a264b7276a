use super::*;
use crate::window::bench::{Bench, PACKET};

const COPA: CopaConfig = CopaConfig { delta: 0.5, competitive_mode: true, max_loss: 0.1 };

/// Out of slow start, RTTmin 100 ms.
fn steady() -> Bench {
    steady_with(&COPA)
}

fn steady_with(config: &CopaConfig) -> Bench {
    let mut copa = Bench::new(config, 10);
    copa.round(100, 0);
    copa.round(100, 0);
    assert_eq!((copa.state(), copa.packets()), ("slow-start", 40.0));
    copa.round(110, 0);
    assert_eq!(copa.state(), "default");
    copa
}

#[test]
fn slow_start_ends_where_the_rate_exceeds_the_target() {
    // With d_q = 10 ms of 110 ms the target is 110 / (0.5 * 10) = 22 packets.
    let copa = steady();
    // On its way there for a round.
    assert!((37.5..38.5).contains(&copa.packets()), "{}", copa.packets());
    assert_eq!(copa.figure("queueing_delay_ms"), 10.0);
    assert_eq!(copa.figure("standing_rtt_ms"), 110.0);
    // 40 packets in 110 ms, twice.
    let mbps = 2.0 * copa.packets() * 8e3 / 0.11 / 1e6;
    assert!((copa.controller.pacing_rate().mbps() - mbps).abs() < 0.1);
}

#[test]
fn the_window_moves_by_two_packets_a_round_towards_the_target() {
    // The queue of this path never empties, whatever the window.
    let mut copa = steady_with(&CopaConfig { competitive_mode: false, ..COPA });
    let before = copa.packets();
    copa.round(110, 0);
    assert!((before - copa.packets() - 2.0).abs() < 0.2, "{before} {}", copa.packets());
    for _ in 0..30 {
        copa.round(110, 0);
    }
    assert!((copa.packets() - 22.0).abs() < 3.0, "{}", copa.packets());
    // d_q = 4 ms: 104 / (0.5 * 4) = 52 packets.
    for _ in 0..40 {
        copa.round(104, 0);
    }
    assert!((copa.packets() - 52.0).abs() < 5.0, "{}", copa.packets());
}

#[test]
fn random_loss_is_ignored_and_heavy_loss_is_not() {
    let mut copa = steady();
    let before = copa.packets();
    for _ in 0..4 {
        copa.round(101, 1);
    }
    assert!(copa.packets() > before, "one of forty is 2.5 %");
    let before = copa.packets();
    copa.round(101, 20);
    copa.round(101, 0);
    // Lost before the first acknowledgement of their round: 20 of the 67 since the last.
    assert!(copa.packets() < 0.8 * before, "{before} {}", copa.packets());
}

#[test]
fn a_queue_that_stays_brings_competitive_mode_and_back() {
    let mut copa = steady();
    for _ in 0..12 {
        copa.round(150, 0);
    }
    assert_eq!(copa.state(), "competitive");
    assert!(copa.figure("delta") < 0.25, "{}", copa.figure("delta"));
    copa.round(100, 0);
    assert_eq!((copa.state(), copa.figure("delta")), ("default", 0.5));
}

#[test]
fn an_unused_window_does_not_grow_and_a_pause_does_not_matter() {
    let mut copa = steady();
    let before = copa.packets();
    for _ in 0..100 {
        copa.partial_round(100, 0, 5);
    }
    assert!((copa.packets() - before).abs() < 10.0, "{before} {}", copa.packets());
    assert_eq!((copa.state(), copa.figure("velocity")), ("default", 1.0));
}

#[test]
fn warm_start_skips_slow_start() {
    let mut copa = Bench::new(&COPA, 10);
    let mut path = PathModel::default();
    path.smoothed_rtt = Duration::from_millis(110);
    path.latest_rtt = path.smoothed_rtt;
    path.min_rtt = Some(Duration::from_millis(100));
    path.window_bytes = 50 * PACKET;
    copa.controller.init_from_path(copa.now, &path);
    assert_eq!((copa.state(), copa.packets()), ("default", 50.0));
    assert_eq!(copa.figure("queueing_delay_ms"), 10.0);
}
