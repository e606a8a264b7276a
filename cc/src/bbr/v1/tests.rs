use std::collections::BTreeSet;

use super::*;
use crate::bbr::test_path::{PACKET_BYTES, TestPath, start};

const RTT: Duration = Duration::from_millis(41);

fn path_with(config: BbrConfig, seed: u64) -> TestPath<Bbr> {
    TestPath::new(|now| Bbr::new(config, now, &start(seed)))
}

fn path() -> TestPath<Bbr> {
    path_with(BbrConfig::default(), 1)
}

fn state(path: &TestPath<Bbr>) -> &'static str {
    path.controller.state.name()
}

fn probing(path: &mut TestPath<Bbr>) {
    path.run_until_state("probe_bw");
    path.run_for(Duration::from_secs(1));
}

#[test]
fn startup_paces_the_initial_window_and_then_doubles_each_round_trip() {
    let mut path = path();
    // 10 packets in a nominal millisecond, times 2.885, less 1 %.
    assert_eq!(path.controller.pacing_rate(), Bandwidth::from_bits_per_s(228_492_000));
    path.acknowledge_first();
    // The same in the first RTT, 41 ms.
    let first = path.controller.pacing_rate().mbps();
    assert!((first - 10_000.0 * 8.0 / 41e3 * 2.885 * 0.99).abs() < 0.001, "{first}");
    path.run_for(RTT * 3 / 2);
    assert!(path.controller.window_bytes >= 20_000, "{}", path.controller.window_bytes);
    assert_eq!(state(&path), "startup");
    path.run_until_state("drain");
    // 10, 20, 40, and three rounds that deliver no more.
    assert!((6..=8).contains(&path.controller.rounds.rounds()), "{:?}", path.controller.rounds);
    assert_eq!(path.controller.max_bandwidth(), Bandwidth::from_mbps(8.0));
}

impl TestPath<Bbr> {
    fn acknowledge_first(&mut self) {
        self.send(self.now);
        self.acknowledge();
    }
}

#[test]
fn drain_ends_when_no_more_is_in_flight_than_the_path_holds() {
    let mut path = path();
    path.run_until_state("drain");
    let pacing = path.controller.pacing_rate().mbps();
    assert!((pacing - 8.0 * 0.99 / 2.885).abs() < 1e-5, "{pacing}");
    assert!(path.in_flight_packets() > 80, "a round trip's worth is queued");
    path.run_until_state("probe_bw");
    // 41 packets and three bursts of two, made even.
    assert_eq!(path.in_flight_packets(), 48);
}

#[test]
fn the_model_is_exact_on_an_ideal_path() {
    let mut path = path();
    probing(&mut path);
    let bbr = &path.controller;
    assert_eq!(bbr.min_rtt, Some(RTT));
    assert_eq!(bbr.max_bandwidth(), Bandwidth::from_mbps(8.0));
    // 2 x 41 packets, three bursts of two, and two for the gain above one.
    assert_eq!(bbr.window_bytes, 90 * PACKET_BYTES);
    assert_eq!(bbr.target_bytes(bbr.max_bandwidth(), Gain::ONE), 48 * PACKET_BYTES);
}

#[test]
fn the_cycle_probes_drains_and_cruises() {
    let mut path = path();
    probing(&mut path);
    let (mut gains, mut last) = (Vec::new(), None);
    let until = path.now + RTT * 30;
    path.run_until(|path| {
        let gain = path.controller.pacing_gain().as_f64();
        if last.is_some_and(|last| last != gain) {
            gains.push(gain);
        }
        last = Some(gain);
        path.now > until
    });
    let probe = gains.iter().position(|gain| *gain == 1.25).expect("a probe");
    assert_eq!(gains[probe..probe + 6], [1.25, 0.75, 1.0, 1.25, 0.75, 1.0], "{gains:?}");
}

#[test]
fn a_cycle_begins_anywhere_but_where_it_drains() {
    let phases: BTreeSet<_> = (0..100)
        .map(|seed| {
            let mut path = path_with(BbrConfig::default(), seed);
            path.run_until_state("probe_bw");
            let BbrState::ProbeBw(cycle) = path.controller.state else { panic!("not probing") };
            format!("{cycle:?}").split(',').next().expect("a phase").to_owned()
        })
        .collect();
    let expected = [0, 2, 3, 4, 5, 6, 7].map(|phase| format!("ProbeBw {{ phase: {phase}"));
    assert_eq!(phases, BTreeSet::from(expected));
}

#[test]
fn more_bandwidth_is_found_and_less_is_forgotten_after_ten_rounds() {
    let mut path = path();
    probing(&mut path);
    path.rate = Bandwidth::from_mbps(16.0);
    // Four probes of a quarter more, one in 8 round trips.
    path.run_for(RTT * 40);
    assert_eq!(path.controller.max_bandwidth(), Bandwidth::from_mbps(16.0));
    path.rate = Bandwidth::from_mbps(8.0);
    let since = path.controller.rounds.rounds();
    path.run_until(|path| path.controller.max_bandwidth() < Bandwidth::from_mbps(9.0));
    let rounds = path.controller.rounds.rounds() - since;
    assert!((11..=13).contains(&rounds), "{rounds}: ten after the last that was partly faster");
}

#[test]
fn the_rtt_is_measured_with_four_packets_each_ten_seconds() {
    let mut path = path();
    // Where the buffer holds nothing of the flow's own, the minimum would never grow old.
    path.rtt = Duration::from_millis(39);
    path.run_for(Duration::from_secs(2));
    path.rtt = Duration::from_millis(40);
    path.run_until_state("probe_rtt");
    assert!(path.elapsed() > Duration::from_secs(10) && path.elapsed() < Duration::from_secs(12));
    let window = path.controller.prior_window_bytes;
    let since = path.now;
    assert_eq!(path.controller.window_bytes, 4 * PACKET_BYTES);
    path.run_until(|path| path.in_flight_packets() <= 4);
    path.run_until_state("probe_bw");
    let lasted = path.now - since;
    assert!(
        lasted > Duration::from_millis(200) && lasted < Duration::from_millis(330),
        "{lasted:?}"
    );
    let grown = window + PACKET_BYTES;
    assert_eq!(path.controller.window_bytes, grown, "restored, and grown by what has come");
    assert_eq!(path.controller.min_rtt, Some(RTT), "the new one");
    path.run_for(Duration::from_secs(1));
    assert_eq!(path.controller.max_bandwidth(), Bandwidth::from_mbps(8.0), "not forgotten");
}

#[test]
fn after_a_pause_it_returns_at_the_rate_of_the_path() {
    let mut path = path();
    probing(&mut path);
    path.run_until(|path| path.controller.pacing_gain().is_above_one());
    path.pause(Duration::from_secs(20));
    path.send(path.now);
    assert_eq!(path.controller.pacing_rate(), Bandwidth::from_mbps(7.92));
    path.acknowledge();
    assert_eq!(state(&path), "probe_bw", "the pause has emptied the queue: no need to measure");
}

#[test]
fn a_slow_application_does_not_make_a_slow_path() {
    let mut path = path();
    probing(&mut path);
    for _ in 0..500 {
        path.pause(Duration::from_millis(100));
        path.send(path.now);
    }
    assert_eq!(path.controller.max_bandwidth(), Bandwidth::from_mbps(8.0));
}

#[test]
fn recovery_sends_what_is_delivered_for_a_round_trip_and_then_restores() {
    let mut path = path();
    probing(&mut path);
    let window = path.controller.window_bytes;
    path.lose = 10;
    path.run_until(|path| path.controller.recovery.is_active());
    assert!(path.controller.recovery.conserving);
    let in_flight = path.in_flight_packets() * PACKET_BYTES;
    assert_eq!(path.controller.window_bytes, in_flight + PACKET_BYTES, "what has arrived");
    let rounds = path.controller.rounds.rounds();
    path.run_until(|path| !path.controller.recovery.conserving);
    assert!(path.controller.rounds.rounds() - rounds <= 1);
    path.run_until(|path| !path.controller.recovery.is_active());
    path.run_for(RTT);
    assert_eq!(path.controller.window_bytes, window);
    assert_eq!(path.controller.max_bandwidth(), Bandwidth::from_mbps(8.0));
}

#[test]
fn a_spurious_loss_is_undone() {
    let mut path = path();
    probing(&mut path);
    let window = path.controller.window_bytes;
    path.lose = 1;
    path.run_until(|path| path.controller.recovery.is_active());
    assert!(path.controller.window_bytes < window);
    let late = LostPacket { number: 0, sent: path.now, bytes: PACKET_BYTES };
    path.controller.on_spurious_loss(path.now, &late);
    assert_eq!(path.controller.window_bytes, window);
    assert!(!path.controller.recovery.is_active());
}

#[test]
fn startup_continues_after_a_recovery_of_spurious_losses_only() {
    for spurious in [1, 2] {
        let controller = &mut path().controller;
        let rate = Bandwidth::from_mbps(8.0);
        for _ in 0..3 {
            controller.full_pipe.on_round(rate);
        }
        let late = [0, 1].map(|number| LostPacket { number, sent: Time::ZERO, bytes: 1000 });
        controller.recovery.on_lost(&late, 2);
        for packet in &late[..spurious] {
            controller.on_spurious_loss(Time::ZERO, packet);
        }
        controller.full_pipe.on_round(rate);
        assert_eq!(controller.full_pipe.is_full(), spurious == 1);
    }
}

#[test]
fn the_second_probe_timeout_in_a_row_closes_the_window_until_something_arrives() {
    let mut path = path();
    probing(&mut path);
    let window = path.controller.window_bytes;
    path.controller.on_probe_timeout(path.now);
    assert_eq!(path.controller.window_bytes, window, "the first only tests for losses");
    path.controller.on_probe_timeout(path.now);
    assert_eq!(path.controller.window_bytes, 2 * PACKET_BYTES);
    path.run_until(|path| !path.controller.recovery.is_active());
    path.acknowledge();
    assert_eq!(path.controller.window_bytes, window, "restored after a round trip");
}

#[test]
fn a_fifth_lost_at_a_steady_rate_is_a_policer() {
    let lossy = |lose_every| {
        let mut path = path();
        path.lose_every = lose_every;
        path.run_for(Duration::from_secs(4));
        path.controller.policer.rate().is_some()
    };
    assert!(lossy(5), "20 % lost are 25 % of what is delivered");
    assert!(!lossy(7), "14 % are 17 %");
}

#[test]
fn warm_start_skips_slow_start() {
    let model = |mbps: f64, window| {
        let mut path = PathModel::default();
        path.min_rtt = Some(Duration::from_millis(40));
        path.smoothed_rtt = Duration::from_millis(60);
        path.max_delivery_rate = Bandwidth::from_mbps(mbps);
        path.window_bytes = window;
        path
    };
    let init_from_path = |model: &PathModel| {
        let mut path = path();
        path.controller.init_from_path(path.now, model);
        path.controller
    };
    let bbr = init_from_path(&model(8.0, 30_000));
    assert_eq!(bbr.state.name(), "probe_bw");
    assert_eq!(bbr.window_bytes(), 30_000);
    assert_eq!(bbr.pacing_rate(), bbr.pacing_gain().of_rate(Bandwidth::from_mbps(7.92)));
    // 2 x 40 packets and three bursts at most.
    let bloated = init_from_path(&model(8.0, 1_000_000)).window_bytes();
    assert!((86_000..=90_000).contains(&bloated), "{bloated}");
    // Without a delivery rate: the window each round trip.
    let bbr = init_from_path(&model(0.0, 30_000));
    assert_eq!(bbr.bandwidth(), Bandwidth::from_mbps(4.0));
    assert_eq!(init_from_path(&PathModel::default()).state.name(), "startup", "nothing is known");
}

#[test]
fn the_window_is_never_less_than_two_packets_of_any_size() {
    let mut path = path();
    path.controller.on_mtu(9000);
    assert_eq!(path.controller.window_bytes(), 18_000);
}

#[test]
#[should_panic(expected = "startup does not lead to startup")]
fn an_illegal_move_is_a_bug() {
    path().controller.transition_to(BbrState::Startup);
}
