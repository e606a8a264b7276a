use std::time::Duration;

use crate::bbr::gain::Gain;
use crate::{Bandwidth, Time};

/// Least and most round trips of an interval (Linux, `bbr_lt_intvl_min_rtts`).
const MIN_ROUNDS: u32 = 4;
const MAX_ROUNDS: u32 = 4 * MIN_ROUNDS;
/// Lost to delivered from which on an interval is lossy (`bbr_lt_loss_thresh`, 50/256).
const LOSSY: Gain = Gain::new(50, 256);
/// Two intervals agree when their rates differ by so little (`bbr_lt_bw_ratio`, `_diff`).
const AGREE: Gain = Gain::new(1, 8);
const AGREE_RATE: Bandwidth = Bandwidth::from_bits_per_s(4000);
/// Round trips for which the policed rate is kept to (`bbr_lt_bw_max_rtts`).
const KEEP_ROUNDS: u32 = 48;
/// Least time of an interval: a tick of Linux' clock.
const MIN_TIME: Duration = Duration::from_millis(1);

/// Recognises a policer: two intervals in a row that lose a fifth and deliver at the same rate.
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

/// What was delivered and lost until now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) at: Time,
    pub(super) delivered_bytes: u64,
    pub(super) lost_bytes: u64,
}

/// What happened with an acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observed {
    pub(super) totals: Totals,
    pub(super) has_losses: bool,
    pub(super) round_start: bool,
    pub(super) app_limited: bool,
    /// Whether rounds count towards the end of a rate in use.
    pub(super) probing_bandwidth: bool,
}

impl Policer {
    /// The policed rate, if there seems to be a policer.
    pub(super) fn rate(&self) -> Option<Bandwidth> {
        self.rate.filter(|_| self.in_use)
    }

    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Whether a rate was in use that now is no longer.
    pub(super) fn on_acked(&mut self, seen: &Observed) -> bool {
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
        if self.rounds > MAX_ROUNDS {
            self.reset();
        } else if self.rounds >= MIN_ROUNDS && seen.has_losses {
            self.conclude(seen.totals);
        }
        false
    }

    fn keep(&mut self, seen: &Observed) -> bool {
        self.rounds += u32::from(seen.round_start && seen.probing_bandwidth);
        let over = self.rounds >= KEEP_ROUNDS;
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
        if delivered == 0 || lost < LOSSY.of_bytes(delivered) || time < MIN_TIME {
            return;
        }
        let rate = Bandwidth::from_bytes_and_time(delivered, time);
        if let Some(before) = self.rate {
            let difference = rate.bits_per_s().abs_diff(before.bits_per_s());
            let bound = AGREE.of_rate(before).max(AGREE_RATE);
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

    /// Rounds of 100 ms that deliver and lose so many bytes; the rate in the end.
    fn run(policer: &mut Policer, rounds: u64, delivered: u64, lost: u64) -> Option<f64> {
        let mut totals = policer.start;
        for _ in 0..rounds {
            totals.at += Duration::from_millis(100);
            totals.delivered_bytes += delivered;
            totals.lost_bytes += lost;
            policer.on_acked(&Observed {
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
    fn intervals_that_differ_are_none() {
        let mut policer = Policer::default();
        run(&mut policer, 5, 125_000, 30_000);
        policer.start.at = Time::ZERO;
        assert_eq!(run(&mut policer, 4, 250_000, 60_000), None);
    }

    #[test]
    fn the_rate_is_kept_for_48_rounds() {
        let mut policer = Policer::default();
        run(&mut policer, 8, 125_000, 30_000);
        assert_eq!(run(&mut policer, 47, 250_000, 0), Some(10.0));
        assert_eq!(run(&mut policer, 1, 250_000, 0), None);
    }
}
