use std::time::Duration;

use super::Control;
use super::state::Feedback;
use super::trial::LOAD_INCREASE_PER_S;

/// The queue counts as idle, and a rise doubles, while the load is below this share of B.
/// Measured in docs/research/cc/iris.md (Deviations from the paper).
const MAX_IDLE_LOAD_RATIO: f64 = 0.5;
/// Largest rise of one decision, as a share of the rate.
const MAX_RISE: f64 = 0.25;
/// Largest rises are smaller on a path where a rate lasts longer than this: an excessive rate fills the queue for that
/// long.
pub(super) const TYPICAL_RATE_TIME: Duration = Duration::from_millis(200);
/// Queue load that counts as overload, in multiples of B.
const OVERLOAD_RATIO: f64 = 3.0;
/// Largest correction for packets that left more slowly than the rate allowed.
/// Chosen by `unused_rate_does_not_lower_the_rate`.
const MAX_UNUSED_RATIO: f64 = 1.1;
/// Least ratio of M to the value that fairness requires (Eq. 11).
const FAIRNESS_MARGIN: f64 = 2.0;

/// d/k (Eq. 6 and 7), 10^6 bit/s: change of the rate against the receiving rate, at `load_error` packets
/// above B.
fn step(delta_s: f64, k: f64, load_error: f64, expansion: f64) -> f64 {
    -delta_s * libm::tanh(load_error / expansion) / k
}

impl Control {
    /// Eq. 7.
    pub(super) fn steady(&mut self, feedback: &Feedback) {
        self.note_received(feedback.now, feedback.received_mbps);
        let load = self.expected_load(feedback);
        let grown = self.load_target + LOAD_INCREASE_PER_S * feedback.hold.as_secs_f64();
        self.load_target = grown.min(self.config.load_packets);
        let target = self.load_target;
        let overload = load > OVERLOAD_RATIO * self.config.load_packets;
        self.overloaded = if overload { self.overloaded + 1 } else { 0 };
        let received = feedback.received_mbps * self.unused(feedback);
        if self.config.extensions.drains && self.needs_drain(feedback.now, feedback.hold) {
            return self.drain(feedback, received);
        }
        let k = self.slope.get(feedback.received_mbps);
        let expansion = self.expansion(feedback, k);
        let step = step(self.config.delta_ms / 1e3, k, load - target, expansion);
        let step = match self.config.extensions.rises {
            true => self.rise(feedback, load, step),
            false => step,
        };
        let most = match feedback.trial {
            true => self.trial_limit(feedback, load),
            false => f64::INFINITY,
        };
        self.set((received + step).min(most));
    }

    /// Ratio of the rate in force to the rate at which the epoch was sent.
    ///
    /// Eq. 7 continues from the receiving rate, which is at most the sending rate. Real packets leave a
    /// little late, below the rate by more than the steps of a long path. Only the received share of what
    /// was sent shows something about the rate.
    fn unused(&self, feedback: &Feedback) -> f64 {
        if !self.config.extensions.forecast {
            return 1.0;
        }
        (self.rate_mbps / feedback.outcome.sent_mbps).clamp(1.0, MAX_UNUSED_RATIO)
    }

    /// The queue load after the packets that were sent since the epoch.
    ///
    /// The paper takes the load that the epoch met. On a long path that is outdated: the load would
    /// oscillate.
    fn expected_load(&self, feedback: &Feedback) -> f64 {
        let unseen_s = match self.config.extensions.forecast {
            true => feedback.unseen().as_secs_f64(),
            false => 0.0,
        };
        let growth_s = (1.0 / feedback.stretch - 1.0) * unseen_s;
        let queue_s = (feedback.queue().as_secs_f64() + growth_s).max(0.0);
        self.per_second(feedback.outcome.sent_mbps) * queue_s
    }

    /// M. A rate lasts for `hold`, so that a load error of one packet changes the load by
    /// (d/k) hold = (delta/k) hold / M packets. That is the gain of the loop, which `loop_gain` sets
    /// for every rate and RTT. The paper's 100 is unstable at 1 Gbit/s and slow at 20 Mbit/s.
    fn expansion(&self, feedback: &Feedback, k: f64) -> f64 {
        let largest_per_s = self.per_second(self.config.delta_ms / 1e3 / k);
        let hold_s = feedback.hold.as_secs_f64();
        let wanted =
            self.config.expansion_packets.unwrap_or(largest_per_s * hold_s / self.config.loop_gain);
        if !self.config.extensions.step_bound {
            return wanted.max(f64::MIN_POSITIVE);
        }
        // Eq. 11: flows become equal while (delta/k)(rtt - T)/M < 1.
        let fair = largest_per_s * feedback.queue().as_secs_f64();
        let expansion = wanted.max(FAIRNESS_MARGIN * fair).max(f64::MIN_POSITIVE);
        debug_assert!(fair / expansion < 1.0);
        expansion
    }

    /// Whether the queue load is small enough for the rate to rise faster.
    pub(super) fn is_idle(&self, load: f64) -> bool {
        load < MAX_IDLE_LOAD_RATIO * self.load_target
    }

    /// Doubles the rise with each decision while no queue forms. Eq. 6 alone adds 0.6 % of the rate per
    /// decision with an empty queue.
    fn rise(&mut self, feedback: &Feedback, load: f64, step: f64) -> f64 {
        let allowed = self.is_idle(load) && feedback.now >= self.careful_until;
        self.rises = if allowed { self.rises.saturating_add(1) } else { 0 };
        let usual = (TYPICAL_RATE_TIME.as_secs_f64() / feedback.hold.as_secs_f64()).min(1.0);
        match self.rises.saturating_sub(1).min(16) {
            0 => step,
            doublings => {
                let most = (MAX_RISE * usual * feedback.received_mbps).max(step);
                (step * f64::from(1_u32 << doublings)).min(most)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_values_of_equations_6_and_7() {
        // 20 Mbit/s: k = 50 ms / 20 Mbit/s. An empty queue is ten packets short: 0.299 ms.
        let k = 0.0025;
        assert!((step(0.003, k, -10.0, 100.0) - 0.119_601_6).abs() < 1e-6);
        assert_eq!(step(0.003, k, 0.0, 100.0), 0.0);
        assert!((step(0.003, k, 50.0, 100.0) + 0.554_540_6).abs() < 1e-6);
        assert!((step(0.003, k, 1e9, 100.0) + 1.2).abs() < 1e-9, "6 % at most");
    }
}
