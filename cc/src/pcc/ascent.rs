use super::config::PccConfig;

/// Gradient to change of rate: confidence amplifier and dynamic change boundary
/// (Section 4.2).
#[derive(Debug, Default)]
pub(super) struct Ascent {
    pub(super) up: bool,
    /// tau: decisions in the same direction, this one included. The paper counts from 0
    /// with m(0) = 1 and its Table 1 says m(tau) = tau; counted from 1 both hold.
    same: u32,
    /// k: how often in a row the boundary was met.
    pub(super) over: u32,
}

impl Ascent {
    /// Change of the rate in Mbit/s.
    pub(super) fn change(
        &mut self,
        config: &PccConfig,
        gradient: f64,
        rate_mbps: f64,
        queued_packet_mbps: Option<f64>,
        loss_decides: bool,
    ) -> f64 {
        let up = gradient > 0.0;
        if up != self.up {
            *self = Self { up, same: 0, over: 0 };
        }
        self.same = self.same.saturating_add(1);
        let wanted = amplifier(self.same) * config.conversion_factor * gradient.abs();
        let least = match queued_packet_mbps {
            Some(_) if !up => config.min_change.max(config.queued_min_decrease),
            _ => config.min_change,
        };
        let wanted = wanted.max(least * rate_mbps);
        let boundary = config.boundary_start + f64::from(self.over) * config.boundary_step;
        let bound = match (queued_packet_mbps, config.queued_increase_packets) {
            (Some(packet_mbps), Some(packets)) if up => {
                let first = packets * packet_mbps;
                let most = config.largest_change(true) * rate_mbps;
                (boundary / config.boundary_start * first).min(most)
            }
            _ if !up && !loss_decides => boundary.min(config.largest_change_by_rtt()) * rate_mbps,
            _ => boundary.min(config.largest_change(up)) * rate_mbps,
        };
        let change = if wanted > bound {
            self.over = self.over.saturating_add(1);
            bound
        } else {
            let beyond = wanted / rate_mbps - config.boundary_start;
            self.over = (beyond / config.boundary_step).ceil().max(0.0) as u32;
            wanted
        };
        let change = change.max(config.min_change_mbps);
        if up { change } else { -change }
    }
}

/// m(tau) of Table 1.
fn amplifier(same: u32) -> f64 {
    let same = f64::from(same);
    if same <= 3.0 { same } else { 2.0 * same - 3.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pcc::VIVACE_LATENCY;

    #[test]
    fn the_amplifier_and_the_boundary_are_those_of_table_1() {
        assert_eq!([1, 2, 3, 4, 5].map(amplifier), [1.0, 2.0, 3.0, 5.0, 7.0]);
        let mut ascent = Ascent::default();
        let paper = VIVACE_LATENCY.as_published();
        // Beyond the boundary: 5 %, 15 %, 25 %; a turn starts at 5 % again.
        for share in [5.0, 15.0, 25.0] {
            assert!((ascent.change(&paper, -1e6, 100.0, None, true) + share).abs() < 1e-9);
        }
        assert!((ascent.change(&paper, 1e6, 100.0, None, true) - 5.0).abs() < 1e-9);
        // Below it k shrinks to the smallest that admits the change: 2 * 6 needs 15 %.
        assert!((ascent.change(&paper, 6.0, 100.0, None, true) - 12.0).abs() < 1e-9);
        assert_eq!(ascent.over, 1);
        let bounded = PccConfig { max_boundary: Some(0.1), ..paper };
        assert!(
            (ascent.change(&bounded, 1e6, 100.0, None, true) - 10.0).abs() < 1e-9,
            "largest boundary"
        );
    }

    #[test]
    fn decreases_by_the_rtt_alone_have_a_boundary_of_their_own() {
        for (loss_decides, second) in [(true, 10.0), (false, 5.0)] {
            let mut ascent = Ascent::default();
            let mut decrease = || -ascent.change(&VIVACE_LATENCY, -1e6, 100.0, None, loss_decides);
            assert!((decrease() - 5.0).abs() < 1e-9, "boundary_start");
            assert!((decrease() - second).abs() < 1e-9, "{loss_decides}");
        }
    }
}
