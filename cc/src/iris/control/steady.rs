use std::time::Duration;

use super::trial::LOAD_INCREASE_PER_S;
use super::{Control, Feedback};

/// A queue load below this share of B is none: then the rise doubles.
const NO_LOAD: f64 = 0.5;
/// The most that a rise grows to, as a share of the rate.
const MOST_RISE: f64 = 0.25;
/// On a path where a rate lasts for longer, it rises by less: a rise that is too much fills the
/// queue for as long.
pub(super) const USUAL_HOLD: Duration = Duration::from_millis(200);
/// What counts as overload, in multiples of B.
const OVERLOAD: f64 = 3.0;
/// Most by which an epoch's packets may have left slower than they were allowed to without the rate
/// being taken for unused.
const MOST_UNUSED: f64 = 1.1;
/// Least of M over what fairness needs (Eq. 11).
const FAIRNESS_MARGIN: f64 = 2.0;

/// d/k (Eq. 6 and 7), 10^6 bit/s: by how much the rate is to differ from what is received, at
/// `load_error` packets above B.
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
        let overload = load > OVERLOAD * self.config.load_packets;
        self.overloaded = if overload { self.overloaded + 1 } else { 0 };
        let received = feedback.received_mbps * self.unused(feedback);
        if self.needs_drain(feedback.now, feedback.hold) {
            return self.drain(feedback, received);
        }
        let k = self.slope.get(feedback.received_mbps);
        let expansion = self.expansion(feedback, k);
        let step = step(self.config.delta_ms / 1e3, k, load - target, expansion);
        let step = self.rise(feedback, load, step);
        let most = match feedback.trial {
            true => self.trial_limit(feedback, load),
            false => f64::INFINITY,
        };
        self.set((received + step).min(most));
    }

    /// The rate in force over the one at which the epoch was sent.
    ///
    /// Eq. 7 goes on from what was received, which is no more than what was sent. Real packets leave
    /// a little late: 0.6 % below the rate, more than a long path's steps of 0.1 % make good. At
    /// 42 Mbit/s and 800 ms the rate fell from 41 to 22 Mbit/s in 50 s. Only what arrived of what was
    /// sent says something of the rate.
    fn unused(&self, feedback: &Feedback) -> f64 {
        (self.rate_mbps / feedback.outcome.sent_mbps).clamp(1.0, MOST_UNUSED)
    }

    /// The queue load to which what has been sent since then leads.
    ///
    /// The paper takes the load that the epoch has seen. On a long path that is old: the decision
    /// that it led to has been answered by the time it is made again. At 20 Mbit/s and 800 ms
    /// the load then swings between 0 and 80 ms (17.5 Mbit/s, 31 ms on average over 60 s);
    /// with the load expected 18.1 and 24 ms, nearly all of it from start-up.
    fn expected_load(&self, feedback: &Feedback) -> f64 {
        let growth_s = (1.0 / feedback.stretch - 1.0) * feedback.unseen().as_secs_f64();
        let queue_s = (feedback.queue().as_secs_f64() + growth_s).max(0.0);
        self.per_second(feedback.outcome.sent_mbps) * queue_s
    }

    /// M. A rate lasts for `hold`, so that a load error of one packet changes the load by
    /// (d/k) hold = (delta/k) hold / M packets: that is the gain of the loop, which `loop_gain` sets
    /// for every rate and RTT. The paper's 100 is too little at 1 Gbit/s (gain 5 on 50 ms), and
    /// at 20 Mbit/s slow: two flows have a Jain index of 0.994 from 10 s after the second came on,
    /// with `loop_gain` 0.999.
    fn expansion(&self, feedback: &Feedback, k: f64) -> f64 {
        let largest_per_s = self.per_second(self.config.delta_ms / 1e3 / k);
        let hold_s = feedback.hold.as_secs_f64();
        let wanted =
            self.config.expansion_packets.unwrap_or(largest_per_s * hold_s / self.config.loop_gain);
        // Eq. 11: flows become equal while (delta/k)(rtt - T)/M < 1.
        let fair = largest_per_s * feedback.queue().as_secs_f64();
        let expansion = wanted.max(FAIRNESS_MARGIN * fair).max(f64::MIN_POSITIVE);
        debug_assert!(fair / expansion < 1.0);
        expansion
    }

    /// Whether a queue load is none.
    pub(super) fn is_idle(&self, load: f64) -> bool {
        load < NO_LOAD * self.load_target
    }

    /// A rise that fills no queue doubles. Eq. 6 alone adds 0.6 % of the rate with an empty
    /// queue: 12 s from 10 to 20 Mbit/s on 50 ms, in theory. This takes one.
    fn rise(&mut self, feedback: &Feedback, load: f64, step: f64) -> f64 {
        let allowed = self.is_idle(load) && feedback.now >= self.careful_until;
        self.rises = if allowed { self.rises.saturating_add(1) } else { 0 };
        let usual = (USUAL_HOLD.as_secs_f64() / feedback.hold.as_secs_f64()).min(1.0);
        match self.rises.saturating_sub(1).min(16) {
            0 => step,
            doublings => {
                let most = (MOST_RISE * usual * feedback.received_mbps).max(step);
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
