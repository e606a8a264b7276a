use std::time::Duration;

use super::core::{AckEvent, WindowCore};

/// MIN_RTT_THRESH (RFC 9406, Section 4.3).
const MIN_RTT_THRESHOLD: Duration = Duration::from_millis(4);
/// MAX_RTT_THRESH (RFC 9406, Section 4.3).
const MAX_RTT_THRESHOLD: Duration = Duration::from_millis(16);
/// MIN_RTT_DIVISOR (RFC 9406, Section 4.3).
const MIN_RTT_DIVISOR: u32 = 8;
/// N_RTT_SAMPLE (RFC 9406, Section 4.3).
const MIN_RTT_SAMPLES: u32 = 8;
/// CSS_GROWTH_DIVISOR (RFC 9406, Section 4.3).
const CSS_GROWTH_DIVISOR: f64 = 4.0;
/// CSS_ROUNDS (RFC 9406, Section 4.3).
const CSS_ROUNDS: u32 = 5;

/// HyStart++ (RFC 9406): when the RTT rises, the first slow start continues as conservative slow start
/// (CSS), which returns to slow start if the RTT falls again.
///
/// L, the limit on growth per acknowledgement, is infinite as for every sender that paces
/// (Section 4.3). The same applies without pacing: RFC 9002, Section 7.3.1 has no limit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HyStart {
    /// lastRoundMinRTT; `None` is infinity.
    last_round_min: Option<Duration>,
    /// currentRoundMinRTT.
    round_min: Option<Duration>,
    /// rttSampleCount.
    samples: u32,
    /// cssBaselineMinRtt, while in CSS.
    css_baseline: Option<Duration>,
    /// Rounds that CSS has lasted, the current one included.
    css_rounds: u32,
}

/// RttThresh (RFC 9406, Section 4.2).
fn rtt_threshold(last_round_min: Duration) -> Duration {
    (last_round_min / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESHOLD, MAX_RTT_THRESHOLD)
}

impl HyStart {
    /// One acknowledgement in slow start (Section 4.2).
    pub(crate) fn on_ack(&mut self, core: &mut WindowCore, ack: &AckEvent) {
        if ack.round_ended {
            self.on_round(core);
        }
        if let Some(rtt) = ack.rtt {
            self.round_min = Some(self.round_min.map_or(rtt.latest, |min| min.min(rtt.latest)));
            self.samples = self.samples.saturating_add(1);
        }
        let divisor = if self.is_conservative() { CSS_GROWTH_DIVISOR } else { 1.0 };
        core.slow_start(ack.growth_bytes as f64 / divisor);
        self.decide();
    }

    fn on_round(&mut self, core: &mut WindowCore) {
        self.last_round_min = self.round_min.take();
        self.samples = 0;
        if !self.is_conservative() {
            return;
        }
        self.css_rounds += 1;
        if self.css_rounds > CSS_ROUNDS {
            core.end_slow_start();
        }
    }

    fn decide(&mut self) {
        let (Some(now), Some(last)) = (self.round_min, self.last_round_min) else { return };
        if self.samples < MIN_RTT_SAMPLES {
            return;
        }
        match self.css_baseline {
            None if now >= last + rtt_threshold(last) => {
                self.css_baseline = Some(now);
                self.css_rounds = 1;
            }
            // The RTT fell again: back to slow start.
            Some(baseline) if now < baseline => self.css_baseline = None,
            _ => {}
        }
    }

    pub(crate) fn is_conservative(&self) -> bool {
        self.css_baseline.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::Bench;
    use super::super::{CubicConfig, RenoConfig};
    use super::*;

    #[test]
    fn the_threshold_is_an_eighth_of_the_rtt_within_bounds() {
        let threshold_us = |ms| rtt_threshold(Duration::from_millis(ms)).as_micros();
        assert_eq!(threshold_us(10), 4_000);
        assert_eq!(threshold_us(32), 4_000);
        assert_eq!(threshold_us(100), 12_500);
        assert_eq!(threshold_us(128), 16_000);
        assert_eq!(threshold_us(2_000), 16_000);
    }

    #[test]
    fn a_rise_of_the_rtt_slows_growth_and_five_rounds_end_it() {
        let mut cubic = Bench::new(&CubicConfig::default(), 10);
        cubic.round(100, 0);
        cubic.round(112, 0);
        assert_eq!((cubic.state(), cubic.packets()), ("slow-start", 40.0), "less than 12.5 ms");
        // 112 + 14 ms. The eighth sample decides; until then the window grows by each packet.
        cubic.round(126, 0);
        assert_eq!((cubic.state(), cubic.packets()), ("css", 40.0 + 8.0 + 32.0 / 4.0));
        for round in 1..=5 {
            let before = cubic.packets();
            cubic.round(126, 0);
            let state = if round < 5 { "css" } else { "avoidance" };
            assert_eq!(cubic.state(), state, "{round}");
            if round < 5 {
                assert_eq!(cubic.packets(), before + before.floor() / 4.0, "{round}");
            }
        }
    }

    #[test]
    fn slow_start_goes_on_when_the_rtt_falls_again() {
        let mut cubic = Bench::new(&CubicConfig::default(), 10);
        cubic.round(100, 0);
        cubic.round(120, 0);
        assert_eq!(cubic.state(), "css");
        cubic.round(110, 0);
        assert_eq!(cubic.state(), "slow-start");
        let before = cubic.packets().floor();
        cubic.round(110, 0);
        assert!(cubic.packets() >= 2.0 * before);
    }

    #[test]
    fn without_it_only_loss_ends_slow_start() {
        let mut reno = Bench::new(&RenoConfig::default(), 10);
        let mut cubic = Bench::new(&CubicConfig { hystart: false, ..CubicConfig::default() }, 10);
        for rtt_ms in [100, 120, 150, 200, 300, 300, 300, 300, 300] {
            reno.round(rtt_ms, 0);
            cubic.round(rtt_ms, 0);
        }
        assert_eq!((reno.state(), reno.packets()), ("slow-start", 5120.0));
        assert_eq!((cubic.state(), cubic.packets()), ("slow-start", 5120.0));
    }
}
