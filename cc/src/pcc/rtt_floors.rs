use std::time::Duration;

/// The least RTT in each half of an interval.
///
/// What hosts and links add to an RTT by their scheduling is never negative, and comes in bursts: a process that waits
/// for a processor for 3 ms delays all packets of that time, and the least squares line through them has a slope that no
/// queue has. The least RTTs of the two halves do not see a burst that is shorter than a half, and a queue that grows
/// raises the second.
#[derive(Clone, Copy, Debug)]
pub(super) struct RttFloors {
    half: Duration,
    floors: [Option<Duration>; 2],
}

impl RttFloors {
    /// Of an interval that takes this long.
    pub(super) fn new(duration: Duration) -> Self {
        Self { half: duration / 2, floors: [None; 2] }
    }

    /// Adds the RTT of a packet sent `at` after the interval began.
    pub(super) fn add(&mut self, at: Duration, rtt: Duration) {
        let floor = &mut self.floors[usize::from(at >= self.half)];
        *floor = Some(floor.map_or(rtt, |least| least.min(rtt)));
    }

    /// Change of the least RTT, s/s; `None` while a half has no sample.
    pub(super) fn slope(&self) -> Option<f64> {
        let [first, second] = self.floors;
        Some((second?.as_secs_f64() - first?.as_secs_f64()) / self.half.as_secs_f64().max(1e-9))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    /// The slope of an interval of 20 ms with a sample each 100 us.
    fn slope(rtt: impl Fn(u64) -> u64) -> f64 {
        let mut floors = RttFloors::new(us(20_000));
        (0..200).for_each(|sample| floors.add(us(100 * sample), us(rtt(100 * sample))));
        floors.slope().unwrap()
    }

    #[test]
    fn a_queue_that_grows_has_its_slope() {
        assert!((slope(|at| 20_000 + at / 20) - 0.05).abs() < 1e-9);
        assert!((slope(|at| 21_000 - at / 20) + 0.05).abs() < 0.001);
    }

    #[test]
    fn a_burst_of_delay_has_none() {
        // 4 ms that are made up for in 8 ms, in either half or across both.
        for begin in [0, 6_000, 11_000] {
            let burst = |at: u64| (4_000_u64.saturating_sub(at.wrapping_sub(begin) / 2)).min(4_000);
            assert_eq!(slope(|at| 20_000 + if at < begin { 0 } else { burst(at) }), 0.0, "{begin}");
        }
    }

    #[test]
    fn nothing_is_known_before_both_halves_have_samples() {
        let mut floors = RttFloors::new(us(20_000));
        floors.add(us(9_999), us(20_000));
        assert_eq!(floors.slope(), None);
        floors.add(us(10_000), us(20_100));
        assert!((floors.slope().unwrap() - 0.01).abs() < 1e-9);
    }
}
