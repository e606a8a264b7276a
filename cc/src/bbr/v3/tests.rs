use super::*;
use crate::bbr::test_path::{PACKET_BYTES, TestPath, start};

const RTT: Duration = Duration::from_millis(41);

fn path_with(config: Bbr3Config) -> TestPath<Bbr3> {
    TestPath::new(|now| Bbr3::new(config, now, &start(1)))
}

fn path() -> TestPath<Bbr3> {
    path_with(Bbr3Config::default())
}

fn cruising() -> TestPath<Bbr3> {
    let mut path = path();
    path.run_until_state("probe_bw_cruise");
    path
}

/// States in the order in which they are visited.
fn visited(path: &mut TestPath<Bbr3>, time: Duration) -> Vec<&'static str> {
    let until = path.now + time;
    let mut visited = vec![path.controller.state.name()];
    path.run_until(|path| {
        let state = path.controller.state.name();
        if visited.last() != Some(&state) {
            visited.push(state);
        }
        path.now >= until
    });
    visited
}

#[test]
fn it_finds_the_path_and_cycles() {
    let mut path = path();
    assert_eq!(path.controller.pacing_rate(), Bandwidth::from_mbps(80.0 * 2.77));
    let states = visited(&mut path, Duration::from_secs(4));
    // Nothing is left for the first Down to do after Drain.
    assert_eq!(states[..3], ["startup", "drain", "probe_bw_cruise"], "{states:?}");
    let cycle = ["probe_bw_refill", "probe_bw_up", "probe_bw_down", "probe_bw_cruise"];
    assert_eq!(states[3..7], cycle, "{states:?}");
    let bbr = &path.controller;
    assert_eq!(bbr.bandwidth, Bandwidth::from_mbps(8.0));
    assert_eq!(bbr.min_rtt.min, Some(RTT));
    assert_eq!(bbr.bdp_bytes(Gain::ONE), 41 * PACKET_BYTES);
    assert_eq!(bbr.inflight_longterm, UNBOUNDED, "nothing was lost");
}

#[test]
fn a_probe_comes_after_two_to_three_seconds_or_as_many_rounds_as_packets() {
    let mut path = cruising();
    // 41 packets in flight: 41 round trips of 41 ms are sooner than 2 s.
    let since = path.now;
    let rounds = path.controller.rounds.rounds();
    path.run_until_state("probe_bw_refill");
    let waited = path.controller.rounds.rounds() - rounds;
    assert!((38..=42).contains(&waited), "{waited}");
    assert!(path.now - since < Duration::from_millis(1900));

    let config = Bbr3Config { probe_rtt_interval_ms: 60_000, ..Bbr3Config::default() };
    let mut long_path = path_with(config);
    long_path.rtt = Duration::from_millis(200);
    long_path.run_until_state("probe_bw_cruise");
    let since = long_path.now;
    long_path.run_until_state("probe_bw_refill");
    let waited = long_path.now - since;
    let range = Duration::from_secs(2)..Duration::from_millis(3010);
    assert!(range.contains(&waited), "{waited:?}");
}

#[test]
fn losses_outside_of_a_probe_bound_it_until_the_next() {
    let mut path = cruising();
    path.run_for(RTT * 3);
    let window = path.controller.window_bytes;
    path.lose = 20;
    path.run_until(|path| path.controller.bandwidth_shortterm != UNBOUNDED_RATE);
    let bbr = &path.controller;
    // What was delivered is less than 0.7 of what was possible in no round here.
    let least = Gain::new(7, 10);
    assert!(bbr.bandwidth >= least.of_rate(Bandwidth::from_mbps(8.0)));
    assert!(bbr.bandwidth <= Bandwidth::from_mbps(8.0));
    assert!(bbr.inflight_shortterm >= least.of_bytes(window) && bbr.inflight_shortterm < window);
    assert_eq!(bbr.inflight_longterm, UNBOUNDED, "no probe was to blame");
    path.run_until_state("probe_bw_refill");
    assert_eq!(path.controller.bandwidth_shortterm, UNBOUNDED_RATE);
    assert_eq!(path.controller.inflight_shortterm, UNBOUNDED);
}

#[test]
fn a_probe_that_loses_more_than_two_per_cent_ends_and_is_remembered() {
    let mut path = cruising();
    path.run_until_state("probe_bw_up");
    path.run_for(RTT / 2);
    let in_flight = path.in_flight_packets() * PACKET_BYTES;
    path.lose = 4;
    path.run_until_state("probe_bw_down");
    let bbr = &path.controller;
    assert!(bbr.cycle.was_too_high);
    let tolerated = bbr.inflight_longterm;
    assert!(tolerated.abs_diff(in_flight) <= 8 * PACKET_BYTES, "{tolerated} of {in_flight}");
    path.run_until_state("probe_bw_cruise");
    // 15 % are left to others.
    let headroom = Gain::new(15, 100).of_bytes(tolerated);
    assert_eq!(path.controller.inflight_with_headroom(), tolerated - headroom);
    assert!(path.controller.window_bytes <= tolerated - headroom);
}

#[test]
fn after_a_probe_that_was_too_high_comes_one_that_only_touches_the_bound() {
    let mut path = cruising();
    path.run_until_state("probe_bw_up");
    path.run_for(RTT / 2);
    path.lose = 4;
    path.run_until_state("probe_bw_cruise");
    path.run_until_state("probe_bw_up");
    path.run_until_state("probe_bw_down");
    assert!(path.controller.cycle.was_precaution);
    // It was borne: the next one follows at once and stays.
    let states = visited(&mut path, RTT * 6);
    assert!(
        states.starts_with(&["probe_bw_down", "probe_bw_refill"])
            || states.starts_with(&["probe_bw_down", "probe_bw_cruise", "probe_bw_refill"]),
        "{states:?}"
    );
}

#[test]
fn where_the_losses_became_too_many_is_computed_within_a_burst() {
    let bbr = path().controller;
    let sample = |in_flight: u64, bytes, lost| crate::estimators::LossSample {
        bytes,
        app_limited: false,
        sent_in_flight_bytes: in_flight,
        lost_bytes: lost,
    };
    // 2 % of 90 000 are 1800, and 1800 / 0.98 = 1836 of the burst of 10 000 are tolerated.
    assert_eq!(bbr.inflight_at_loss(&sample(100_000, 10_000, 10_000)), 91_836);
    // 1000 were lost before: (1800 - 1000) / 0.98.
    assert_eq!(bbr.inflight_at_loss(&sample(100_000, 10_000, 11_000)), 90_816);
    assert_eq!(bbr.inflight_at_loss(&sample(100_000, 10_000, 20_000)), 90_000);
}

#[test]
fn many_gaps_in_a_round_trip_end_startup() {
    let mut path = path();
    // The queue holds no more than half a round trip.
    path.buffer_packets = 20;
    path.run_until_state("drain");
    let bbr = &path.controller;
    assert!(bbr.inflight_longterm != UNBOUNDED, "by losses");
    assert_eq!(bbr.undo.state, Some(Undo::Startup));
    assert!(bbr.inflight_longterm >= bbr.bdp_bytes(Gain::ONE));
}

#[test]
fn spurious_losses_restore_the_state() {
    let mut path = cruising();
    path.run_until_state("probe_bw_up");
    path.lose = 4;
    path.run_until_state("probe_bw_down");
    assert!(path.controller.inflight_longterm != UNBOUNDED);
    while path.controller.recovery.is_active() {
        let late = LostPacket { number: 0, sent: path.now, bytes: PACKET_BYTES };
        path.controller.on_spurious_loss(path.now, &late);
    }
    assert_eq!(path.controller.inflight_longterm, UNBOUNDED);
    assert_eq!(path.controller.state.name(), "probe_bw_refill", "probes again");
}

#[test]
fn the_rtt_is_measured_with_half_of_the_window_each_five_seconds() {
    let mut path = path();
    path.rtt = Duration::from_millis(39);
    path.run_for(Duration::from_secs(2));
    path.rtt = Duration::from_millis(40);
    path.run_until_state("probe_rtt");
    assert!(
        path.elapsed() > Duration::from_secs(5) && path.elapsed() < Duration::from_millis(7200)
    );
    let since = path.now;
    // Half of 40 packets.
    assert_eq!(path.controller.window_bytes, 20 * PACKET_BYTES);
    path.run_until_state("probe_bw_cruise");
    let lasted = path.now - since;
    assert!(
        lasted > Duration::from_millis(200) && lasted < Duration::from_millis(330),
        "{lasted:?}"
    );
    assert_eq!(path.controller.max_bandwidth(), Bandwidth::from_mbps(8.0), "not forgotten");
    path.run_for(Duration::from_secs(8));
    assert_eq!(path.controller.min_rtt.min, Some(RTT), "the old one is forgotten");
}

#[test]
fn after_a_pause_it_returns_at_the_rate_of_the_path_and_has_nothing_to_measure() {
    let mut path = cruising();
    path.run_until_state("probe_bw_up");
    path.pause(Duration::from_secs(20));
    path.send(path.now);
    assert_eq!(path.controller.pacing_rate(), Bandwidth::from_mbps(7.92));
    path.acknowledge();
    assert!(path.controller.state.is_probe_bw());
    for _ in 0..500 {
        path.pause(Duration::from_millis(100));
        path.send(path.now);
    }
    assert_eq!(path.controller.max_bandwidth(), Bandwidth::from_mbps(8.0));
}

#[test]
fn warm_start_drains_a_standing_queue_before_it_probes() {
    let mut path = warm_started(Duration::from_millis(60));
    assert_eq!(path.controller.state.name(), "drain");
    assert_eq!(path.controller.pacing_rate(), Bandwidth::from_mbps(3.96));
    path.run_until_state("probe_bw_cruise");
    assert_eq!(path.controller.max_bandwidth(), Bandwidth::from_mbps(8.0));
}

#[test]
fn the_second_probe_timeout_in_a_row_closes_the_window_until_something_arrives() {
    let mut path = cruising();
    path.run_for(RTT * 3);
    let window = path.controller.window_bytes;
    path.controller.on_probe_timeout(path.now);
    assert_eq!(path.controller.window_bytes, window, "the first only tests for losses");
    path.controller.on_probe_timeout(path.now);
    assert_eq!(path.controller.window_bytes, 2 * PACKET_BYTES);
    path.run_until(|path| !path.controller.recovery.is_active());
    path.acknowledge();
    // And grown by what bunched acknowledgements then need.
    let restored = window..=window + 4 * PACKET_BYTES;
    assert!(restored.contains(&path.controller.window_bytes), "{}", path.controller.window_bytes);
}

#[test]
fn marks_are_congestion() {
    let mut path = cruising();
    path.run_for(RTT * 3);
    let marked = |path: &mut TestPath<Bbr3>| {
        let event = CongestionEvent {
            now: path.now,
            acked: &[],
            lost: &[],
            rtt: None,
            ecn_ce: 1,
            prior_in_flight_bytes: path.in_flight_packets() * PACKET_BYTES,
            in_flight_bytes: path.in_flight_packets() * PACKET_BYTES,
            app_limited: false,
        };
        path.controller.on_event(&event);
    };
    marked(&mut path);
    path.run_for(RTT * 2);
    assert!(path.controller.bandwidth_shortterm != UNBOUNDED_RATE);
    path.run_until_state("probe_bw_up");
    marked(&mut path);
    assert_eq!(path.controller.state.name(), "probe_bw_down");
    assert!(path.controller.inflight_longterm != UNBOUNDED);
}

/// A warm start on a path whose smoothed RTT is `smoothed_rtt`.
fn warm_started(smoothed_rtt: Duration) -> TestPath<Bbr3> {
    let mut model = PathModel::default();
    model.min_rtt = Some(Duration::from_millis(40));
    model.smoothed_rtt = smoothed_rtt;
    model.max_delivery_rate = Bandwidth::from_mbps(8.0);
    model.window_bytes = 1_000_000;
    let mut path = path();
    path.controller.init_from_path(path.now, &model);
    path
}

#[test]
fn warm_start_skips_slow_start() {
    let mut nothing_known = path();
    nothing_known.controller.init_from_path(nothing_known.now, &PathModel::default());
    assert_eq!(nothing_known.controller.state.name(), "startup");
    let mut path = warm_started(Duration::from_millis(44));
    assert_eq!(path.controller.state.name(), "probe_bw_refill");
    assert_eq!(path.controller.window_bytes, 80 * PACKET_BYTES, "two BDP, not what bloats");
    assert_eq!(path.controller.pacing_rate(), Bandwidth::from_mbps(7.92));
    path.run_until_state("probe_bw_up");
    path.run_until_state("probe_bw_cruise");
    assert_eq!(path.controller.max_bandwidth(), Bandwidth::from_mbps(8.0));
}

#[test]
#[should_panic(expected = "startup does not lead to probe_bw_up")]
fn an_illegal_move_is_a_bug() {
    path().controller.transition_to(Bbr3State::Up);
}
