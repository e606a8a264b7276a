//! Behaviour of real packets on a path of 800 ms that the simulator's senders do not show.

use super::super::IrisConfig;
use super::super::epoch::EpochOutcome;
use super::*;

const RTT: Duration = Duration::from_millis(800);
const EPOCH: Duration = Duration::from_millis(50);

/// An epoch of 170 packets that met no queue.
fn outcome(control: &Control, closed: Time, sent_mbps: f64) -> EpochOutcome {
    EpochOutcome {
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

/// The sender stays half a percent below the rate, and everything sent arrives.
#[test]
fn unused_rate_does_not_lower_the_rate() {
    let mut control = Control::new(IrisConfig::min(), 1.0, 1500);
    control.continue_at(40.0);
    for round in 1..=60 {
        let closed = at(round * 850);
        control.advance_to(closed);
        let sent = outcome(&control, closed, 0.995 * control.rate_mbps());
        control.on_outcome(closed + RTT, &sent, RTT);
        assert!(
            control.steady_state_mbps() > 39.9,
            "round {round}: {}",
            control.steady_state_mbps()
        );
    }
    assert!(control.steady_state_mbps() > 60.0, "it rises: {}", control.steady_state_mbps());
}

/// Steady epochs are longer on a long path. Start-up and drains keep the configured length.
#[test]
fn steady_epochs_last_a_quarter_of_a_long_round_trip() {
    let mut control = Control::new(IrisConfig::min(), 1.0, 1500);
    assert_eq!(control.epoch(RTT), EPOCH);
    control.continue_at(40.0);
    assert_eq!(control.epoch(RTT), RTT / 4);
    assert_eq!(control.epoch(EPOCH * 2), EPOCH);
}

/// 36 Mbit/s arrived; then the flow ran out of data, and the next burst met its own queue.
#[test]
fn pause_does_not_end_start_up_below_the_proven_rate() {
    let mut control = Control::new(IrisConfig::min(), 36.0, 1500);
    let closed = at(1000);
    let full = outcome(&control, closed, 36.0);
    control.on_outcome(closed + RTT, &full, RTT);
    assert_eq!((control.state(), control.rate_mbps()), ("starting", 72.0));

    let burst = EpochOutcome {
        stretch: Some(0.57),
        rtt: Some(RTT + Duration::from_millis(13)),
        partial: true,
        ..outcome(&control, at(1900), 36.5)
    };
    control.on_outcome(at(1900) + RTT, &burst, RTT);
    assert_eq!(control.state(), "starting", "the remaining queue decides");

    control.advance_to(at(1900) + RTT);
    assert_eq!(control.rate_mbps(), 36.0);
    let after = EpochOutcome {
        stretch: Some(42.0 / 36.0),
        rtt: Some(RTT + Duration::from_millis(13)),
        ..outcome(&control, at(1950), 36.0)
    };
    control.on_outcome(at(1950) + RTT, &after, RTT);
    assert_eq!(control.state(), "draining");
    assert!((control.steady_state_mbps() - 42.0).abs() < 0.1, "{}", control.steady_state_mbps());
}
