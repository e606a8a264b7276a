use super::*;
use crate::estimators::Slope;

/// A path that answers each probe at once.
fn answer(control: &mut RateControl, of: impl Fn(f64) -> Outcome) -> f64 {
    let (id, mbps) = control.next_probe().expect("each outcome asks for the next probe");
    control.on_outcome(id, of(mbps));
    mbps
}

fn clean(mbps: f64) -> Outcome {
    Outcome {
        target_mbps: mbps,
        sent_mbps: mbps,
        delivered_mbps: mbps,
        slope: Slope::default(),
        packets: 1000,
        lost: 0,
        app_limited: false,
    }
}

/// A queue that grows above 50 Mbit/s.
fn bottleneck(mbps: f64) -> Outcome {
    let slope = Slope { value: (mbps / 50.0 - 1.0).max(0.0), error: 0.0 };
    Outcome { slope, delivered_mbps: mbps.min(50.0), ..clean(mbps) }
}

fn learning(mbps: f64) -> RateControl {
    let mut control = RateControl::new(VivaceConfig::latency(), 1.0, 7);
    control.bound(0.1, 1000.0);
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
    answer(&mut control, clean);
    answer(&mut control, clean);
    assert!((control.central_mbps() - 100.0 - gradient).abs() < 1e-9);
    let before = control.central_mbps();
    answer(&mut control, clean);
    answer(&mut control, clean);
    let second = control.central_mbps() - before;
    assert!((second / gradient - 2.0).abs() < 0.01, "m(2) = 2: {second}");
}

#[test]
fn the_amplifier_and_the_boundary_are_those_of_table_1() {
    assert_eq!([1, 2, 3, 4, 5].map(amplifier), [1.0, 2.0, 3.0, 5.0, 7.0]);
    let mut ascent = Ascent::default();
    let infinite = f64::INFINITY;
    // Beyond the boundary: 5 %, 15 %, 25 %; a turn starts at 5 % again.
    for share in [5.0, 15.0, 25.0] {
        assert!((ascent.change(-1e6, 100.0, infinite) + share).abs() < 1e-9);
    }
    assert!((ascent.change(1e6, 100.0, infinite) - 5.0).abs() < 1e-9);
    // Below it k shrinks to the smallest that admits the change: 2 * 6 needs 15 %.
    assert!((ascent.change(6.0, 100.0, infinite) - 12.0).abs() < 1e-9);
    assert_eq!(ascent.over, 1);
    assert!((ascent.change(1e6, 100.0, 0.1) - 10.0).abs() < 1e-9, "largest boundary");
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
    let odd = |mbps: f64| Outcome { lost: if mbps > 100.0 { 0 } else { 20 }, ..clean(mbps) };
    let mut control = learning(100.0);
    answer(&mut control, odd);
    answer(&mut control, odd);
    assert_eq!((control.state(), control.central_mbps()), ("double-check", 100.0));
    // The other way round now: the first result is thrown away.
    let usual = |mbps: f64| Outcome { lost: if mbps > 100.0 { 200 } else { 0 }, ..clean(mbps) };
    answer(&mut control, usual);
    answer(&mut control, usual);
    assert_eq!(control.state(), "learning");
    assert!((control.central_mbps() - 95.0).abs() < 1e-9, "{}", control.central_mbps());
}

#[test]
fn app_limited_intervals_decide_nothing() {
    let mut control = learning(100.0);
    for _ in 0..50 {
        answer(&mut control, |mbps| Outcome {
            sent_mbps: mbps / 10.0,
            lost: 300,
            app_limited: true,
            ..clean(mbps)
        });
    }
    assert_eq!((control.central_mbps(), control.decisions()), (100.0, 0));
}

#[test]
fn a_rate_that_the_sender_cannot_reach_comes_down_to_it() {
    let mut control = learning(100.0);
    for _ in 0..50 {
        answer(&mut control, |mbps| Outcome { sent_mbps: 20.0, ..clean(mbps) });
    }
    assert!((control.central_mbps() - 25.0).abs() < 1.0, "{}", control.central_mbps());
}

#[test]
fn chance_losses_are_shared_and_real_ones_are_not() {
    let lost = |lost| Outcome { packets: 100, lost, ..clean(1.0) };
    assert_eq!(losses(&lost(2), &lost(0), 1.5), (0.01, 0.01));
    assert_eq!(losses(&lost(6), &lost(0), 1.5), (0.06, 0.0));
    assert_eq!(losses(&lost(2), &lost(0), 0.0), (0.02, 0.0));
}

#[test]
fn a_timeout_halves_and_an_outage_starts_up_again() {
    let mut control = learning(100.0);
    control.on_timeout();
    assert_eq!((control.central_mbps(), control.state()), (50.0, "learning"));
    control.on_timeout();
    assert_eq!((control.central_mbps(), control.state()), (25.0, "starting"));
    answer(&mut control, clean);
    answer(&mut control, clean);
    assert_eq!(control.central_mbps(), 50.0);
}
