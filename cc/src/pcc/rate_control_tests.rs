use super::*;
use crate::estimators::Slope;
use crate::pcc::utility::FilteredOutcome;
use crate::pcc::{ALLEGRO, PROTEUS_P, VIVACE_LATENCY, VIVACE_WEIGHTED};

/// A measurement on an idle path.
pub(in crate::pcc) fn clean(mbps: f64, gain: f64) -> MeasuredInterval {
    let seen = FilteredOutcome { rate_mbps: mbps, ..FilteredOutcome::default() };
    MeasuredInterval { gain, outcome: idle(mbps), seen }
}

/// Runs the next probe with the outcome of `of`. Returns its rate.
fn answer(control: &mut RateControl, of: impl Fn(f64) -> IntervalOutcome) -> f64 {
    let (id, mbps) = control.next_probe().expect("each outcome asks for the next probe");
    control.on_outcome(id, of(mbps));
    mbps
}

fn idle(mbps: f64) -> IntervalOutcome {
    IntervalOutcome {
        target_mbps: mbps,
        sent_mbps: mbps,
        delivered_mbps: mbps,
        slope: Slope::default(),
        floor_slope: None,
        rtt_s: 0.03,
        deviation_s: 0.0,
        residual_s: 0.0,
        duration_s: 0.03,
        packets: 1000,
        lost: 0,
        app_limited: false,
    }
}

/// A queue that grows above 50 Mbit/s.
fn bottleneck(mbps: f64) -> IntervalOutcome {
    let slope = Slope { value: (mbps / 50.0 - 1.0).max(0.0), error: 0.0 };
    IntervalOutcome { slope, delivered_mbps: mbps.min(50.0), ..idle(mbps) }
}

fn learning(mbps: f64) -> RateControl {
    with(VIVACE_LATENCY, mbps)
}

fn with(config: PccConfig, mbps: f64) -> RateControl {
    let mut control = RateControl::new(config, 1.0, 7);
    control.bound(PathBounds { floor_mbps: 0.1, ceiling_mbps: 1000.0, ..PathBounds::default() });
    control.learn_from(mbps);
    control
}

#[test]
fn probes_are_five_percent_to_both_sides_in_random_order() {
    let mut control = learning(100.0);
    let mut faster_first = 0;
    for _ in 0..100 {
        control.learn_from(100.0);
        let first = control.next_probe().expect("first probe").1;
        let second = control.next_probe().expect("second probe").1;
        assert!(control.next_probe().is_none(), "the rest of the round is at the central rate");
        assert!((first + second - 200.0).abs() < 1e-9);
        assert!(((first - second).abs() - 10.0).abs() < 1e-9);
        faster_first += u32::from(first > second);
    }
    assert!((30..70).contains(&faster_first), "{faster_first}");
}

#[test]
fn an_idle_path_is_climbed_by_gradient_times_confidence() {
    let mut control = learning(100.0);
    let gradient = (105.0_f64.powf(0.9) - 95.0_f64.powf(0.9)) / 10.0;
    answer(&mut control, idle);
    answer(&mut control, idle);
    assert!((control.central_mbps() - 100.0 - gradient).abs() < 1e-9);
    let before = control.central_mbps();
    answer(&mut control, idle);
    answer(&mut control, idle);
    let second = control.central_mbps() - before;
    assert!((second / gradient - 2.0).abs() < 0.01, "m(2) = 2: {second}");
}

#[test]
fn it_settles_below_a_bottleneck() {
    let mut control = learning(20.0);
    let mut seen = Vec::new();
    for round in 0..400 {
        answer(&mut control, bottleneck);
        if round > 100 {
            seen.push(control.central_mbps());
        }
    }
    let mean = seen.iter().sum::<f64>() / seen.len() as f64;
    assert!((45.0..51.0).contains(&mean), "{mean}");
}

#[test]
fn less_loss_when_faster_is_checked_twice() {
    let odd = |mbps: f64| IntervalOutcome { lost: if mbps > 100.0 { 0 } else { 20 }, ..idle(mbps) };
    let mut control = learning(100.0);
    answer(&mut control, odd);
    answer(&mut control, odd);
    assert_eq!((control.state(), control.central_mbps()), ("double-check", 100.0));
    // The other way round now: the first result is thrown away.
    let usual =
        |mbps: f64| IntervalOutcome { lost: if mbps > 100.0 { 200 } else { 0 }, ..idle(mbps) };
    answer(&mut control, usual);
    answer(&mut control, usual);
    assert_eq!(control.state(), "learning");
    assert!((control.central_mbps() - 95.0).abs() < 1e-9, "{}", control.central_mbps());
}

#[test]
fn app_limited_intervals_decide_nothing() {
    let mut control = learning(100.0);
    for _ in 0..50 {
        answer(&mut control, |mbps| IntervalOutcome {
            sent_mbps: mbps / 10.0,
            lost: 50,
            app_limited: true,
            ..idle(mbps)
        });
    }
    assert_eq!((control.central_mbps(), control.decisions()), (100.0, 0));
}

#[test]
fn bursts_that_are_lost_slow_down_to_somewhat_more_than_the_mean() {
    let lossy =
        |mbps: f64| IntervalOutcome { sent_mbps: 16.0, lost: 300, app_limited: true, ..idle(mbps) };
    let mut control = learning(100.0);
    answer(&mut control, lossy);
    assert!((control.central_mbps() - 70.0).abs() < 1e-9, "{}", control.central_mbps());
    for _ in 0..50 {
        answer(&mut control, lossy);
    }
    assert!((control.central_mbps() - 20.0).abs() < 1e-9, "{}", control.central_mbps());
}

#[test]
fn a_rate_that_the_sender_cannot_reach_comes_down_to_it() {
    let mut control = learning(100.0);
    for _ in 0..50 {
        answer(&mut control, |mbps| IntervalOutcome { sent_mbps: 20.0, ..idle(mbps) });
    }
    assert!((control.central_mbps() - 25.0).abs() < 1.0, "{}", control.central_mbps());
}

#[test]
fn a_timeout_halves_and_an_outage_starts_up_again() {
    let mut control = learning(100.0);
    control.on_timeout();
    assert_eq!((control.central_mbps(), control.state()), (50.0, "learning"));
    control.on_timeout();
    assert_eq!((control.central_mbps(), control.state()), (25.0, "starting"));
    answer(&mut control, idle);
    answer(&mut control, idle);
    assert_eq!(control.central_mbps(), 50.0);
}

#[test]
fn a_majority_of_three_pairs_decides_and_the_third_is_not_waited_for() {
    let mut control = with(PROTEUS_P, 100.0);
    for _ in 0..4 {
        assert_eq!(control.decisions(), 0);
        answer(&mut control, idle);
    }
    assert_eq!(control.decisions(), 1);
    assert!(control.central_mbps() > 100.0);

    // One pair of three that votes down is outvoted.
    let mut control = with(PROTEUS_P, 100.0);
    for at in 0..6 {
        let lost = |mbps: f64| if at < 2 && mbps > 100.0 { 200 } else { 0 };
        answer(&mut control, |mbps| IntervalOutcome { lost: lost(mbps), ..idle(mbps) });
        if at == 3 {
            assert_eq!(control.decisions(), 0, "one each");
        }
    }
    assert_eq!(control.decisions(), 1);
    assert!(control.central_mbps() > 100.0);
}

#[test]
fn fixed_steps_use_the_same_intervals() {
    let mut control = with(ALLEGRO, 100.0);
    for _ in 0..4 {
        answer(&mut control, idle);
    }
    assert_eq!((control.state(), control.central_mbps()), ("adjusting", 101.0));
    assert!((control.waiting_mbps() - 102.01).abs() < 1e-9, "the rate on trial stays");
    let (shortest, longest) = (0..100)
        .map(|_| control.interval_round_trips())
        .fold((f64::INFINITY, 0.0_f64), |(least, most), trips| (least.min(trips), most.max(trips)));
    assert!((1.7..1.75).contains(&shortest) && (2.15..=2.2).contains(&longest));
}

#[test]
fn a_share_changes_what_the_same_losses_mean() {
    let full = |mbps: f64| IntervalOutcome { lost: (mbps * 10.0 - 900.0) as u64, ..idle(mbps) };
    let mut control = with(VIVACE_WEIGHTED, 100.0);
    assert!(control.tune(Tuning::Share(0.1)));
    for _ in 0..2 {
        answer(&mut control, full);
    }
    assert!(control.central_mbps() < 100.0, "{}", control.central_mbps());
    assert!(!learning(100.0).tune(Tuning::Share(0.1)));
}

#[test]
fn path_that_became_much_slower_sets_the_rate_to_the_delivery_rate() {
    let slower = |mbps: f64| IntervalOutcome { delivered_mbps: 10.0, lost: 900, ..idle(mbps) };
    let mut control = learning(100.0);
    answer(&mut control, slower);
    assert_eq!((control.central_mbps(), control.decisions()), (10.0, 1));
    let (_, mbps) = control.next_probe().expect("a new round");
    assert!((9.0..11.0).contains(&mbps));

    // With few packets that loss may be random, and less loss is left to the utility.
    for (packets, lost) in [(10, 3), (1000, 90)] {
        let mut control = learning(100.0);
        answer(&mut control, |mbps| IntervalOutcome { packets, lost, ..slower(mbps) });
        assert_eq!(control.central_mbps(), 100.0, "{lost} of {packets}");
    }
    let mut control = with(VIVACE_LATENCY.as_published(), 100.0);
    answer(&mut control, slower);
    assert_eq!(control.central_mbps(), 100.0, "the paper has no such rule");
}

#[test]
fn warm_start_drains_a_standing_queue_in_one_interval_before_it_learns() {
    // A quarter of the round trip; intervals of one round trip, and of two and a fifth at most.
    for (config, gain) in [(VIVACE_LATENCY, 0.75), (ALLEGRO, 1.0 - 0.25 / 2.2)] {
        let mut control = with(config, 10.0);
        control.drain_and_learn_from(100.0, 0.25);
        assert!((answer(&mut control, idle) - 100.0 * gain).abs() < 1e-9);
        assert!(!control.is_starting());
        assert_eq!(control.central_mbps(), 100.0);
    }
}

#[test]
fn fixed_steps_after_a_warm_start_do_not_grow_until_the_rate_was_too_high() {
    let mut control = with(ALLEGRO, 100.0);
    control.warm_start_at(100.0);
    let full =
        |mbps: f64| IntervalOutcome { lost: if mbps > 108.0 { 200 } else { 0 }, ..idle(mbps) };
    let mut last = 100.0;
    while control.central_mbps() < 107.0 {
        while control.central_mbps() <= last {
            answer(&mut control, full);
        }
        assert!(control.central_mbps() / last < 1.0101, "from {last}");
        last = control.central_mbps();
    }
}
