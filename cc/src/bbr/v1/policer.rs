use std::time::Duration;

use crate::bbr::gain::Gain;
use crate::{Bandwidth, Time};

/// Least round trips of an interval (Linux, `bbr_lt_intvl_min_rtts`).
const MIN_INTERVAL_ROUNDS: u32 = 4;
/// Most round trips of an interval (Linux, `4 * bbr_lt_intvl_min_rtts`).
const MAX_INTERVAL_ROUNDS: u32 = 4 * MIN_INTERVAL_ROUNDS;
/// Least ratio of lost to delivered bytes of a lossy interval (Linux, `bbr_lt_loss_thresh`, 50/256).
const MIN_LOSS_RATIO: Gain = Gain::new(50, 256);
/// Largest relative difference between the rates of two consistent intervals (Linux, `bbr_lt_bw_ratio`).
const MAX_RATE_DIFFERENCE_RATIO: Gain = Gain::new(1, 8);
/// Largest absolute difference between the rates of two consistent intervals (Linux, `bbr_lt_bw_diff`).
const MAX_RATE_DIFFERENCE: Bandwidth = Bandwidth::from_bits_per_s(4000);
/// Round trips for which the policed rate is used (Linux, `bbr_lt_bw_max_rtts`).
const POLICED_ROUNDS: u32 = 48;
/// Least duration of an interval (Linux: one tick).
const MIN_INTERVAL_TIME: Duration = Duration::from_millis(1);

/// Detects a policer: two consecutive intervals that lose a fifth and deliver at the same rate.
///
/// Linux, `bbr_lt_bw_sampling`; not in draft-cardwell-iccrg-bbr-congestion-control-00.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Policer {
    sampling: bool,
    start: Totals,
    rounds: u32,
    /// The rate of the last interval, or of the last two if they agree.
    rate: Option<Bandwidth>,
    in_use: bool,
}

/// Bytes delivered and lost until `at`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) at: Time,
    pub(super) delivered_bytes: u64,
    pub(super) lost_bytes: u64,
}

/// Input of [`Policer`] for an acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(super) struct PolicerInput {
    pub(super) totals: Totals,
    pub(super) has_losses: bool,
    pub(super) round_start: bool,
    pub(super) app_limited: bool,
    /// Whether rounds count towards the end of the policed rate.
    pub(super) probing_bandwidth: bool,
}

impl Policer {
    /// The policed rate, if a policer was detected.
    pub(super) fn rate(&self) -> Option<Bandwidth> {
        self.rate.filter(|_| self.in_use)
    }

    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Processes an acknowledgement. Returns whether the policed rate expired.
    pub(super) fn on_acked(&mut self, seen: &PolicerInput) -> bool {
        if self.in_use {
            return self.keep(seen);
        }
        if !self.sampling {
            // The first loss shows that the bucket is empty: before, it let bursts through.
            if !seen.has_losses {
                return false;
            }
            self.begin(seen.totals);
        }
        if seen.app_limited {
            self.reset();
            return false;
        }
        self.rounds += u32::from(seen.round_start);
        if self.rounds > MAX_INTERVAL_ROUNDS {
            self.reset();
        } else if self.rounds >= MIN_INTERVAL_ROUNDS && seen.has_losses {
            self.conclude(seen.totals);
        }
        false
    }

    fn keep(&mut self, seen: &PolicerInput) -> bool {
        self.rounds += u32::from(seen.round_start && seen.probing_bandwidth);
        let over = self.rounds >= POLICED_ROUNDS;
        if over {
            self.reset();
        }
        over
    }

    fn begin(&mut self, totals: Totals) {
        self.sampling = true;
        self.start = totals;
        self.rounds = 0;
    }

    fn conclude(&mut self, totals: Totals) {
        let lost = totals.lost_bytes - self.start.lost_bytes;
        let delivered = totals.delivered_bytes - self.start.delivered_bytes;
        let time = totals.at - self.start.at;
        if delivered == 0 || lost < MIN_LOSS_RATIO.of_bytes(delivered) || time < MIN_INTERVAL_TIME {
            return;
        }
        let rate = Bandwidth::from_bytes_and_time(delivered, time);
        if let Some(before) = self.rate {
            let difference = rate.bits_per_s().abs_diff(before.bits_per_s());
            let bound = MAX_RATE_DIFFERENCE_RATIO.of_rate(before).max(MAX_RATE_DIFFERENCE);
            if difference <= bound.bits_per_s() {
                let mean = u64::midpoint(rate.bits_per_s(), before.bits_per_s());
                self.rate = Some(Bandwidth::from_bits_per_s(mean));
                self.in_use = true;
                self.rounds = 0;
                return;
            }
        }
        self.rate = Some(rate);
        self.begin(totals);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs rounds of 100 ms that deliver and lose the given bytes. Returns the policed rate.
    fn run(policer: &mut Policer, rounds: u64, delivered: u64, lost: u64) -> Option<f64> {
        let mut totals = policer.start;
        for _ in 0..rounds {
            totals.at += Duration::from_millis(100);
            totals.delivered_bytes += delivered;
            totals.lost_bytes += lost;
            policer.on_acked(&PolicerInput {
                totals,
                has_losses: lost > 0,
                round_start: true,
                app_limited: false,
                probing_bandwidth: true,
            });
        }
        policer.rate().map(Bandwidth::mbps)
    }

    #[test]
    fn two_equal_intervals_with_a_fifth_lost_are_a_policer() {
        let mut policer = Policer::default();
        assert_eq!(run(&mut policer, 20, 125_000, 30_000), Some(10.0));
        let mut policer = Policer::default();
        assert_eq!(run(&mut policer, 20, 125_000, 20_000), None, "not lossy enough");
        assert_eq!(run(&mut policer, 20, 125_000, 0), None, "no losses");
    }

    #[test]
    fn intervals_with_different_rates_are_not_a_policer() {
        let mut policer = Policer::default();
        run(&mut policer, 5, 125_000, 30_000);
        policer.start.at = Time::ZERO;
        assert_eq!(run(&mut policer, 4, 250_000, 60_000), None);
    }

    #[test]
    fn policed_rate_is_used_for_48_rounds() {
        let mut policer = Policer::default();
        run(&mut policer, 8, 125_000, 30_000);
        assert_eq!(run(&mut policer, 47, 250_000, 0), Some(10.0));
        assert_eq!(run(&mut policer, 1, 250_000, 0), None);
    }
}
