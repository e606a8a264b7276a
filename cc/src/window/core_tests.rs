use super::super::RenoConfig;
use super::super::bench::{Bench, PACKET};
use super::*;
use crate::LostPacket;

fn core(packets: u64) -> WindowCore {
    WindowCore::new(&PathStart {
        mtu_bytes: PACKET,
        initial_window_bytes: packets * PACKET,
        initial_rtt: Duration::from_millis(333),
        seed: 1,
    })
}

fn rtt(ms: u64) -> Option<RttSample> {
    let rtt = Duration::from_millis(ms);
    Some(RttSample { latest: rtt, smoothed: rtt, variation: rtt / 10, min: rtt })
}

#[test]
fn pacing_is_faster_than_the_window_and_twice_that_in_slow_start() {
    let mut core = core(100);
    core.rtt = rtt(100);
    // 100 kB in 100 ms are 8 Mbit/s.
    assert_eq!(core.pacing_rate(), Bandwidth::from_mbps(16.0));
    core.end_slow_start();
    assert_eq!(core.pacing_rate(), Bandwidth::from_mbps(10.0));
    core.rtt = None;
    assert_eq!(core.pacing_rate(), Bandwidth::from_mbps(1000.0), "100 kB in a millisecond");
}

#[test]
fn the_window_stays_within_two_packets_and_the_largest() {
    let mut core = core(10);
    core.set_window(-1.0);
    assert_eq!(core.window_bytes(), 2 * PACKET);
    core.set_window(f64::INFINITY);
    assert_eq!(core.window(), MAX_WINDOW_BYTES);
    core.set_window(f64::NAN);
    assert!(core.window() >= 2000.0);
}

#[test]
fn a_large_window_still_grows_by_single_packets() {
    let mut core = core(10);
    core.set_window(4e9);
    core.end_slow_start();
    for _ in 0..4_000 {
        core.grow_additively(1.0, 1000);
    }
    assert!((core.window() - 4e9 - 1.0).abs() < 1e-3, "a thousandth of a window, of a packet");
}

#[test]
fn the_initial_window_follows_the_packet_size_until_there_is_a_sample() {
    let mut core = core(10);
    core.on_mtu(2 * PACKET);
    assert_eq!(core.window_bytes(), 20 * PACKET);
    core.rtt = rtt(10);
    core.on_mtu(PACKET);
    assert_eq!(core.window_bytes(), 20 * PACKET);
    core.on_mtu(30 * PACKET);
    assert_eq!(core.window_bytes(), 60 * PACKET, "two packets at least");
}

#[test]
fn persistent_congestion_leaves_two_packets_and_slow_start() {
    let mut reno = Bench::new(&RenoConfig::default(), 10);
    (0..4).for_each(|_| reno.round(100, 0));
    let acked = |number, sent| AckedPacket { number, sent, bytes: PACKET };
    let lost: Vec<_> = (1000..1010)
        .map(|number| LostPacket {
            number,
            sent: reno.now + Duration::from_millis(100 * (number - 999)),
            bytes: PACKET,
        })
        .collect();
    let sent = reno.now + Duration::from_secs(2);
    reno.controller.on_probe_timeout(sent);
    assert_eq!(reno.packets(), 160.0, "a probe timeout alone reduces nothing");
    let now = sent + Duration::from_millis(100);
    reno.controller.on_event(&CongestionEvent {
        now,
        acked: &[acked(1010, sent)],
        lost: &lost,
        rtt: rtt(100),
        ecn_ce: 0,
        prior_in_flight_bytes: 11 * PACKET,
        in_flight_bytes: 0,
        app_limited: false,
    });
    assert_eq!(reno.packets(), 2.0);
    reno.now = now;
    reno.round(100, 0);
    assert_eq!((reno.packets(), reno.state()), (4.0, "slow-start"));
}

#[test]
fn only_a_sender_that_does_not_pace_restarts_after_a_pause() {
    for (paced, left) in [(true, 160.0), (false, 40.0)] {
        let mut reno = Bench::new(&RenoConfig { paced, ..RenoConfig::default() }, 10);
        (0..4).for_each(|_| reno.round(100, 0));
        assert_eq!(reno.packets(), 160.0);
        // Timeout: 100 + 4 * 10 ms, at least 200 ms: two of them passed.
        reno.controller.on_app_limited(reno.now, 0);
        reno.now += Duration::from_millis(350);
        reno.partial_round(100, 0, 1);
        // And the packet that has been acknowledged since.
        assert_eq!(reno.packets(), left + 1.0, "{paced}");
    }
}

#[test]
fn an_unused_window_does_not_grow() {
    let mut reno = Bench::new(&RenoConfig::default(), 10);
    (0..4).for_each(|_| reno.round(100, 0));
    reno.round(100, 1);
    reno.round(100, 0);
    let window = reno.packets();
    for _ in 0..100 {
        reno.partial_round(100, 0, 30);
    }
    assert!(reno.packets() <= window + 1.0, "{window} {}", reno.packets());
    for _ in 0..10 {
        reno.round(100, 0);
    }
    assert!(reno.packets() > window + 8.0, "{window} {}", reno.packets());
}
