use super::policy::MeasuredInterval;
use super::utility::{FilteredOutcome, Utility};

/// Two probes, one to each side of the central rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProbePair {
    /// gamma = (u1 - u2) / (2 epsilon r), Section 4.2, over the rates as sent.
    pub(super) gradient: f64,
    pub(super) fast_lost_less: bool,
    /// By how many packets.
    pub(super) fewer_lost: u64,
}

impl ProbePair {
    pub(super) fn new(
        a: MeasuredInterval,
        b: MeasuredInterval,
        utility: &Utility,
        errors: f64,
    ) -> Self {
        let (fast, slow) = if a.gain >= b.gain { (a, b) } else { (b, a) };
        let (fast_loss, slow_loss) = losses(&fast, &slow, errors);
        let spread = (fast.outcome.sent_mbps - slow.outcome.sent_mbps).max(1e-9);
        let of = |seen: FilteredOutcome, loss| -> f64 { with_loss(utility, seen, loss) };
        Self {
            gradient: (of(fast.seen, fast_loss) - of(slow.seen, slow_loss)) / spread,
            fast_lost_less: fast_loss < slow_loss,
            fewer_lost: slow.outcome.lost.saturating_sub(fast.outcome.lost),
        }
    }
}

fn with_loss(utility: &Utility, seen: FilteredOutcome, loss: f64) -> f64 {
    utility.of(&FilteredOutcome { loss, ..seen })
}

/// The loss rates to judge two probes by.
///
/// A difference below `errors` standard errors may be random. Both probes then get the pooled loss
/// rate, plus or minus a part of what the faster one lost more: the cube of its ratio to the limit.
/// If the faster one lost less, that is random (Section 4.3: sending faster is not the cause).
/// Without that part, small flows tolerate the loss that they cause each other until its level alone
/// stops them. With the whole difference, random loss stops them.
fn losses(fast: &MeasuredInterval, slow: &MeasuredInterval, errors: f64) -> (f64, f64) {
    let of =
        |probe: &MeasuredInterval| (probe.outcome.lost as f64, probe.outcome.packets.max(1) as f64);
    let ((fast_lost, fast_sent), (slow_lost, slow_sent)) = (of(fast), of(slow));
    let pooled = (fast_lost + slow_lost) / (fast_sent + slow_sent);
    let error = (pooled * (1.0 - pooled) * (1.0 / fast_sent + 1.0 / slow_sent)).sqrt();
    let more = fast.seen.loss - slow.seen.loss;
    if more.abs() >= errors * error {
        return (fast.seen.loss, slow.seen.loss);
    }
    let counted = more.max(0.0) * (more / (errors * error)).powi(3).abs();
    (pooled + counted / 2.0, pooled - counted / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pcc::rate_control::tests::clean;

    #[test]
    fn random_losses_are_pooled_significant_ones_are_not_and_others_count_in_part() {
        let lost = |lost: u64| {
            let mut measured = clean(1.0, 1.0);
            measured.outcome.packets = 100;
            measured.outcome.lost = lost;
            measured.seen.loss = lost as f64 / 100.0;
            measured
        };
        assert_eq!(losses(&lost(6), &lost(0), 2.0), (0.06, 0.0));
        assert_eq!(losses(&lost(0), &lost(6), 2.0), (0.0, 0.06));
        assert_eq!(losses(&lost(0), &lost(2), 2.0), (0.01, 0.01), "faster does not lose less");
        // 2 % more at an error of sqrt(0.0198 * 0.01): 0.71 of the limit, cubed.
        let (fast, slow) = losses(&lost(2), &lost(0), 2.0);
        assert!((fast - slow - 0.02 * 0.3572).abs() < 1e-4, "{fast} {slow}");
        assert_eq!(losses(&lost(2), &lost(0), 0.0), (0.02, 0.0));
    }
}
