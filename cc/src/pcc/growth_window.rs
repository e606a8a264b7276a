use std::time::Duration;

use crate::{Bandwidth, CongestionEvent};

/// Factor of the window in a round trip. Two, as in slow start, takes 6.3 s to 80 % of 42 Mbit/s over 800 ms.
/// Chosen by `start_up_by_acknowledgements_fills_a_satellite_link_in_six_seconds`.
const GROWTH: f64 = 2.25;
/// Pacing rate, in windows a round trip: ln g / (1 - 1 / g) with g for [`GROWTH`]. A rate that grows by g in each round
/// trip then has the whole window in flight, evenly spread.
const PACING_GAIN: f64 = 1.46;

/// The window of a start-up that follows acknowledgements: it grows by [`GROWTH`] in a round trip, as long as it is
/// in use.
#[derive(Debug, Default)]
pub(super) struct GrowthWindow {
    bytes: f64,
    round: u64,
    /// Most bytes in flight in this round and in the one before.
    peak_bytes: u64,
    last_peak_bytes: u64,
}

impl GrowthWindow {
    pub(super) fn new(initial_bytes: u64) -> Self {
        Self { bytes: initial_bytes as f64, ..Self::default() }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// The rate that spreads the window evenly over a round trip.
    pub(super) fn rate(&self, rtt: Duration) -> Bandwidth {
        Bandwidth::from_bytes_and_time(self.bytes(), rtt).scaled(PACING_GAIN)
    }

    /// Processes acknowledgements in round trip number `round`.
    pub(super) fn on_event(&mut self, event: &CongestionEvent<'_>, round: u64) {
        if round > self.round {
            self.round = round;
            self.last_peak_bytes = std::mem::take(&mut self.peak_bytes);
        }
        self.peak_bytes = self.peak_bytes.max(event.prior_in_flight_bytes);
        // A larger window is not confirmed by what is in use (as in RFC 7661, Section 4.2, with half).
        let used = self.peak_bytes.max(self.last_peak_bytes) as f64;
        if GROWTH * used >= self.bytes {
            let acked: u64 = event.acked.iter().map(|packet| packet.bytes).sum();
            self.bytes += (GROWTH - 1.0) * acked as f64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AckedPacket, Time};

    const INITIAL: u64 = 32_000;

    /// Acknowledges `bytes` in round trip `round`, with so much in flight before.
    fn ack(window: &mut GrowthWindow, round: u64, bytes: u64, prior_in_flight_bytes: u64) {
        let acked = [AckedPacket { number: 0, sent: Time::ZERO, bytes }];
        window.on_event(
            &CongestionEvent {
                now: Time::ZERO,
                acked: &acked,
                lost: &[],
                rtt: None,
                ecn_ce: 0,
                prior_in_flight_bytes,
                in_flight_bytes: prior_in_flight_bytes - bytes,
                app_limited: false,
            },
            round,
        );
    }

    #[test]
    fn window_in_use_grows_to_nine_quarters_in_a_round_trip() {
        let mut window = GrowthWindow::new(INITIAL);
        (0..32).for_each(|packet| ack(&mut window, 1, 1000, INITIAL - 1000 * packet));
        assert_eq!(window.bytes(), 72_000);
        ack(&mut window, 2, 72_000, 72_000);
        assert_eq!(window.bytes(), 162_000);
    }

    #[test]
    fn window_that_is_not_in_use_stays() {
        let mut window = GrowthWindow::new(INITIAL);
        ack(&mut window, 1, 14_000, 14_000);
        assert_eq!(window.bytes(), INITIAL);
        ack(&mut window, 2, 16_000, 16_000);
        assert_eq!(window.bytes(), 52_000);
        // The most of the last two rounds counts.
        ack(&mut window, 3, 10_000, 30_000);
        ack(&mut window, 4, 1_000, 1_000);
        assert_eq!(window.bytes(), 65_750);
        ack(&mut window, 5, 1_000, 1_000);
        assert_eq!(window.bytes(), 65_750);
    }

    #[test]
    fn pacing_gain_sends_a_growing_window_in_a_round_trip() {
        let exact = GROWTH.ln() / (1.0 - 1.0 / GROWTH);
        assert!((PACING_GAIN - exact).abs() < 0.005, "{exact}");
    }
}
