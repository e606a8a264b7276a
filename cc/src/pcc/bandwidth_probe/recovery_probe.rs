use std::time::Duration;

use crate::Time;

// Measured in docs/research/cc/pcc.md (`bandwidth_probe`); chosen by the tests below.

/// Time from a rate drop to the first probe; each later probe waits twice as long as the one before it.
const FIRST_DELAY: Duration = Duration::from_secs(1);
/// Probes after a rate drop: for half a minute.
const MAX_PROBES: u32 = 5;
/// The rate has recovered from this share of the rate before the drop on.
const RECOVERED_RATE_FRACTION: f64 = 0.8;

/// Schedules probes that find out when a path that became slower carries its former rate again.
///
/// Cellular links fall to a fraction for a second or two. The gradient then needs at least four round trips for each
/// tenth of the rate, in intervals of ten packets, which take seconds where the fraction is small.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecoveryProbe {
    schedule: Option<ProbeSchedule>,
}

#[derive(Clone, Copy, Debug)]
struct ProbeSchedule {
    from_mbps: f64,
    next: Time,
    probes: u32,
}

impl RecoveryProbe {
    /// The path has become slower than `from_mbps`.
    pub(super) fn on_rate_drop(&mut self, now: Time, from_mbps: f64) {
        // A drop in several steps counts from the first.
        let before = self.schedule.map_or(0.0, |schedule| schedule.from_mbps);
        let from_mbps = from_mbps.max(before);
        self.schedule = Some(ProbeSchedule { from_mbps, next: now + FIRST_DELAY, probes: 0 });
    }

    /// The probe was too short to show anything: it is repeated.
    pub(super) fn on_aborted(&mut self, now: Time) {
        if let Some(schedule) = &mut self.schedule {
            schedule.probes = schedule.probes.saturating_sub(1);
            schedule.next = now;
        }
    }

    /// Whether to probe now, at a rate of `mbps`.
    pub(super) fn is_due(&mut self, now: Time, mbps: f64) -> bool {
        let Some(schedule) = &mut self.schedule else { return false };
        if mbps >= RECOVERED_RATE_FRACTION * schedule.from_mbps || schedule.probes >= MAX_PROBES {
            self.schedule = None;
            return false;
        }
        let due = now >= schedule.next;
        if due {
            schedule.probes += 1;
            schedule.next = now + FIRST_DELAY * 2_u32.pow(schedule.probes);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn probes_follow_at_doubling_intervals_until_the_rate_recovers_or_half_a_minute_is_over() {
        let due = |probe: &mut RecoveryProbe, until, mbps| -> Vec<u64> {
            (10..until).filter(|second| probe.is_due(at(*second), mbps)).collect()
        };
        let mut probe = RecoveryProbe::default();
        assert!(!probe.is_due(at(9), 1.0), "no rate drop");
        probe.on_rate_drop(at(10), 4.0);
        assert_eq!(due(&mut probe, 100, 1.0), [11, 13, 17, 25, 41]);
        probe.on_rate_drop(at(10), 4.0);
        assert_eq!(due(&mut probe, 14, 1.0), [11, 13]);
        assert_eq!(due(&mut probe, 100, 3.2), [] as [u64; 0], "recovered");
        assert_eq!(due(&mut probe, 100, 1.0), [] as [u64; 0]);
    }

    #[test]
    fn drop_in_steps_counts_from_the_first_step() {
        let mut probe = RecoveryProbe::default();
        probe.on_rate_drop(at(10), 8.0);
        probe.on_rate_drop(at(11), 2.0);
        assert!(probe.is_due(at(12), 6.0), "6 of 8 Mbit/s");
    }
}
