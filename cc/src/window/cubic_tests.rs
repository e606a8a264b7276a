use super::super::bench::{Bench, PACKET};
use super::*;
use crate::Bandwidth;

const CUBIC: CubicConfig =
    CubicConfig { c: 0.4, beta: 0.7, fast_convergence: true, hystart: false, paced: true };

/// In avoidance, the loss having come at about `packets`.
fn after_loss(packets: u64, rtt_ms: u64) -> Bench {
    let mut cubic = Bench::new(&CUBIC, packets);
    cubic.round(rtt_ms, 1);
    cubic
}

#[test]
fn k_and_the_curve_are_those_of_the_rfc() {
    // W_max = 100, window 70: K = cbrt(30 / 0.4) = 4.2172 s.
    let epoch = CubicEpoch::new(70.0, 100.0, 0.4);
    assert!((epoch.k_s - 4.217_163).abs() < 1e-5, "{}", epoch.k_s);
    // W(0) = 70, W(K) = 100, W(2K) = 130, W(2) = 100 - 0.4 * 2.217163^3 = 95.6404.
    for (t_s, w) in [(0.0, 70.0), (epoch.k_s, 100.0), (2.0 * epoch.k_s, 130.0), (2.0, 95.640_4)] {
        assert!((epoch.w_cubic(t_s, 0.4) - w).abs() < 1e-3, "{t_s}: {}", epoch.w_cubic(t_s, 0.4));
    }
    // Without a loss before it the curve begins at its plateau.
    let fresh = CubicEpoch::new(70.0, 0.0, 0.4);
    assert_eq!((fresh.k_s, fresh.origin), (0.0, 70.0));
}

#[test]
fn the_reno_of_the_comparison_is_as_fast_as_one_that_halves() {
    let mut cubic = Cubic::new(CUBIC, Time::ZERO);
    cubic.memory.prior = 100.0;
    assert!((cubic.alpha(70.0) - 0.529_412).abs() < 1e-6);
    assert_eq!(cubic.alpha(100.0), 1.0);
}

#[test]
fn a_loss_leaves_seven_tenths_and_the_window_is_back_after_k() {
    let mut cubic = after_loss(1000, 100);
    let w_max = cubic.figure("w_max_packets");
    // The first packet of the round was lost: the window had not grown.
    assert_eq!((w_max, cubic.packets()), (1000.0, 700.0));
    // K = cbrt(300 / 0.4) = 9.086 s; the curve is followed one RTT ahead.
    for _ in 0..80 {
        cubic.round(100, 0);
    }
    assert!((cubic.figure("k_s") - 9.086).abs() < 0.01, "{}", cubic.figure("k_s"));
    assert!(cubic.packets() < 1000.0);
    for _ in 80..95 {
        cubic.round(100, 0);
    }
    assert!((cubic.packets() - 1000.0).abs() < 1.0, "{}", cubic.packets());
    // 4 s past the plateau: 1000 + 0.4 * 4^3.
    for _ in 95..132 {
        cubic.round(100, 0);
    }
    assert!((cubic.packets() - 1025.6).abs() < 4.0, "{}", cubic.packets());
}

#[test]
fn on_short_round_trips_it_is_no_slower_than_reno() {
    // 10 ms and 20 packets: the cubic would need 2.5 s for what Reno does in a tenth.
    let mut cubic = after_loss(20, 10);
    assert_eq!(cubic.packets(), 14.0);
    for _ in 0..11 {
        cubic.round(10, 0);
    }
    // The first round begins the epoch; then about 0.529 packets a round.
    assert!((cubic.packets() - 14.0 - 0.529 * 11.0).abs() < 0.5, "{}", cubic.packets());
    for _ in 0..10 {
        cubic.round(10, 0);
    }
    assert!(cubic.packets() > 22.5, "a packet a round past the window of the loss");
}

#[test]
fn a_second_loss_below_the_maximum_makes_room() {
    let mut cubic = after_loss(1000, 100);
    cubic.round(100, 0);
    cubic.round(100, 1);
    let before = cubic.packets() / 0.7;
    assert!(before < 1000.0);
    assert!((cubic.figure("w_max_packets") - before * 0.85).abs() < 1.0);
    let mut keeps = Bench::new(&CubicConfig { fast_convergence: false, ..CUBIC }, 1000);
    keeps.round(100, 1);
    keeps.round(100, 0);
    keeps.round(100, 1);
    assert!((keeps.figure("w_max_packets") - keeps.packets() / 0.7).abs() < 1.0);
}

#[test]
fn a_spurious_loss_is_undone() {
    let mut cubic = after_loss(1000, 100);
    for _ in 0..30 {
        cubic.round(100, 0);
    }
    let (window, k) = (cubic.packets(), cubic.figure("k_s"));
    cubic.lost.clear();
    cubic.round(100, 2);
    assert!(cubic.packets() < 0.71 * window);
    let late = std::mem::take(&mut cubic.lost);
    cubic.controller.on_spurious_loss(cubic.now, &late[0]);
    assert!(cubic.packets() < 0.71 * window, "one of two may have been lost indeed");
    cubic.controller.on_spurious_loss(cubic.now, &late[1]);
    assert!((cubic.packets() - window).abs() < 2.0, "{}", cubic.packets());
    assert_eq!(cubic.figure("k_s"), k);
    assert_eq!(cubic.state(), "avoidance");
}

#[test]
fn time_without_data_does_not_count() {
    let mut cubic = after_loss(1000, 100);
    for _ in 0..30 {
        cubic.round(100, 0);
    }
    let (window, epoch_s) = (cubic.packets(), cubic.figure("epoch_s"));
    for _ in 0..600 {
        cubic.partial_round(100, 0, 10);
    }
    // A minute on, the curve would be at 1000 + 0.4 * 54^3 = 64000. What was in flight in the
    // last full round may still count.
    assert!((cubic.packets() - window).abs() < 10.0, "{window} {}", cubic.packets());
    assert!(cubic.figure("epoch_s") - epoch_s < 0.11, "{}", cubic.figure("epoch_s"));
    cubic.now += Duration::from_secs(3600);
    cubic.round(100, 0);
    cubic.round(100, 0);
    assert!(cubic.packets() < window + 15.0, "{window} {}", cubic.packets());
}

#[test]
fn larger_packets_leave_the_curve_where_it_is_in_bytes() {
    let mut cubic = after_loss(1000, 100);
    for _ in 0..30 {
        cubic.round(100, 0);
    }
    let (window, w_max) = (cubic.packets(), cubic.figure("w_max_packets"));
    cubic.controller.on_mtu(PACKET / 2);
    assert_eq!(cubic.packets(), window);
    assert_eq!(cubic.figure("w_max_packets"), 2.0 * w_max);
}

#[test]
fn warm_start_begins_on_the_plateau_and_skips_slow_start() {
    let mut cubic = Bench::new(&CubicConfig::default(), 10);
    let mut path = PathModel::default();
    path.smoothed_rtt = Duration::from_millis(100);
    path.min_rtt = Some(Duration::from_millis(90));
    path.window_bytes = 10_000_000;
    path.max_delivery_rate = Bandwidth::from_mbps(80.0);
    cubic.controller.init_from_path(cubic.now, &path);
    assert_eq!(cubic.packets(), 1000.0, "80 Mbit/s for 100 ms, not the window");
    assert_eq!(cubic.controller.pacing_rate(), Bandwidth::from_mbps(100.0));
    for _ in 0..10 {
        cubic.round(100, 0);
    }
    assert_eq!(cubic.state(), "avoidance");
    assert_eq!(cubic.figure("k_s"), 0.0);
    assert!((1000.0..1010.0).contains(&cubic.packets()), "{}", cubic.packets());
}

#[test]
fn warm_start_on_a_path_with_losses_slows_down_near_its_capacity() {
    let mut path = PathModel::default();
    path.smoothed_rtt = Duration::from_millis(100);
    path.min_rtt = Some(Duration::from_millis(90));
    path.max_rtt = Duration::from_millis(130);
    (path.window_bytes, path.max_window_bytes) = (1000 * PACKET, 5000 * PACKET);
    path.max_delivery_rate = Bandwidth::from_bytes_and_time(1000 * PACKET, path.smoothed_rtt);
    for (lost, w_max) in [(0, 0.0), (PACKET, 1300.0)] {
        let mut cubic = Bench::new(&CubicConfig::default(), 10);
        path.lost_bytes = lost;
        cubic.controller.init_from_path(cubic.now, &path);
        assert!((cubic.figure("w_max_packets") - w_max).abs() < 1e-3);
        assert_eq!(cubic.packets(), 1000.0);
    }
}
