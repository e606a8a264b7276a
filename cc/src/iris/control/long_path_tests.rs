//! What real packets do on a path of 800 ms, which the simulator's senders never do.

use super::super::IrisConfig;
use super::super::epoch::Outcome;
use super::*;

const RTT: Duration = Duration::from_millis(800);
const EPOCH: Duration = Duration::from_millis(50);

/// An epoch of 170 packets that met no queue.
fn outcome(control: &Control, closed: Time, sent_mbps: f64) -> Outcome {
    Outcome {
        decision: control.decision(),
        closed,
        duration: EPOCH,
        sent_mbps,
        stretch: Some(1.0),
        rtt: Some(RTT),
        packets: 170,
        lost: 0,
        partial: false,
    }
}

fn at(ms: u64) -> Time {
    Time::ZERO + Duration::from_millis(ms)
}

/// Half a percent less than allowed leaves the sender, and all of that arrives.
#[test]
fn what_was_not_sent_does_not_lower_the_rate() {
    let mut control = Control::new(IrisConfig::min(), 1.0, 1500);
    control.go_on_at(40.0);
    for round in 1..=60 {
        let closed = at(round * 850);
        control.on_time(closed);
        let sent = outcome(&control, closed, 0.995 * control.rate_mbps());
        control.on_outcome(closed + RTT, &sent, RTT);
        assert!(control.lasting_mbps() > 39.9, "round {round}: {}", control.lasting_mbps());
    }
    assert!(control.lasting_mbps() > 60.0, "it rises: {}", control.lasting_mbps());
}

/// Noise of an epoch's length counts for the whole of a round trip; start-up and drains are shorter.
#[test]
fn epochs_of_a_known_rate_are_longer() {
    let mut control = Control::new(IrisConfig::min(), 1.0, 1500);
    assert_eq!(control.epoch(RTT), EPOCH);
    control.go_on_at(40.0);
    assert_eq!(control.epoch(RTT), RTT / 4);
    assert_eq!(control.epoch(EPOCH * 2), EPOCH);
}

/// 36 Mbit/s arrived; then the flow ran dry for a while, and a burst after that met its own queue.
#[test]
fn a_pause_does_not_end_start_up_below_what_had_arrived() {
    let mut control = Control::new(IrisConfig::min(), 36.0, 1500);
    let closed = at(1000);
    let full = outcome(&control, closed, 36.0);
    control.on_outcome(closed + RTT, &full, RTT);
    assert_eq!((control.state(), control.rate_mbps()), ("starting", 72.0));

    let burst = Outcome {
        stretch: Some(0.57),
        rtt: Some(RTT + Duration::from_millis(13)),
        partial: true,
        ..outcome(&control, at(1900), 36.5)
    };
    control.on_outcome(at(1900) + RTT, &burst, RTT);
    assert_eq!(control.state(), "starting", "what is left of the queue will tell");

    control.on_time(at(1900) + RTT);
    assert_eq!(control.rate_mbps(), 36.0);
    let after = Outcome {
        stretch: Some(42.0 / 36.0),
        rtt: Some(RTT + Duration::from_millis(13)),
        ..outcome(&control, at(1950), 36.0)
    };
    control.on_outcome(at(1950) + RTT, &after, RTT);
    assert_eq!(control.state(), "draining");
    assert!((control.lasting_mbps() - 42.0).abs() < 0.1, "{}", control.lasting_mbps());
}
