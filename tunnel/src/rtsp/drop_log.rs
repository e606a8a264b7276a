//! How often a flow's dropped frames are logged.

use std::time::{Duration, Instant};

/// Logged at most this often for each flow.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Frames that a flow's queue has dropped and that have not been logged.
#[derive(Debug, Default)]
pub(crate) struct DropLog {
    pictures: u64,
    sound: u64,
    logged: Option<Instant>,
}

impl DropLog {
    /// So many frames more have been dropped. What is to be logged now, pictures and sound.
    pub(crate) fn take(&mut self, pictures: u64, sound: u64, now: Instant) -> Option<(u64, u64)> {
        self.pictures += pictures;
        self.sound += sound;
        let is_due = self.logged.is_none_or(|at| now.saturating_duration_since(at) >= LOG_EVERY);
        if self.pictures + self.sound == 0 || !is_due {
            return None;
        }
        self.logged = Some(now);
        Some((std::mem::take(&mut self.pictures), std::mem::take(&mut self.sound)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_summed_up_between_two_lines() {
        let (mut log, begin) = (DropLog::default(), Instant::now());
        assert_eq!(log.take(0, 0, begin), None);
        assert_eq!(log.take(3, 1, begin), Some((3, 1)));
        assert_eq!(log.take(2, 0, begin + Duration::from_secs(9)), None);
        assert_eq!(log.take(0, 4, begin + Duration::from_secs(10)), Some((2, 4)));
        assert_eq!(log.take(0, 0, begin + Duration::from_secs(30)), None);
    }
}
