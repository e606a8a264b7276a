//! How often a flow's dropped frames are logged.

use std::time::{Duration, Instant};

/// Logged at most this often for each flow.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Frames that a flow's queue has dropped and that have not been logged.
#[derive(Debug, Default)]
pub(crate) struct DropLog {
    video: u64,
    audio: u64,
    logged: Option<Instant>,
}

impl DropLog {
    /// Adds dropped frames. Returns what is to be logged now, of video and of audio.
    pub(crate) fn take(&mut self, video: u64, audio: u64, now: Instant) -> Option<(u64, u64)> {
        self.video += video;
        self.audio += audio;
        let is_due = self.logged.is_none_or(|at| now.saturating_duration_since(at) >= LOG_INTERVAL);
        if self.video + self.audio == 0 || !is_due {
            return None;
        }
        self.logged = Some(now);
        Some((std::mem::take(&mut self.video), std::mem::take(&mut self.audio)))
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
