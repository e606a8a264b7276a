//! When what went wrong on purpose, and what that excuses.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// After a trouble's end. A flow of a killed server ends at the latest with the idle time-out of
/// 10 s; the rest is for a machine that has other work.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(15);
/// A flow is on its way to its server for some time before it is established.
const SETTING_UP: Duration = Duration::from_secs(3);
/// Older ones excuse nothing any more.
const KEPT: usize = 64;

/// What a trouble may do to flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// Cut those that run.
    Cuts,
    /// Only those that begin meanwhile may fail; those that run go on.
    Delays,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    harm: Harm,
    begin: Instant,
    end: Option<Instant>,
}

/// Times of the injected faults, which excuse failed flows.
#[derive(Default)]
pub struct Windows(Mutex<VecDeque<Window>>);

impl Windows {
    /// Call it before anything is done.
    pub fn open(&self, harm: Harm) {
        let mut windows = self.0.lock().unwrap();
        windows.push_back(Window { harm, begin: Instant::now(), end: None });
        if windows.len() > KEPT {
            windows.pop_front();
        }
    }

    /// Everything is as it should be again.
    pub fn close(&self) {
        for window in self.0.lock().unwrap().iter_mut() {
            window.end.get_or_insert_with(Instant::now);
        }
    }

    /// Whether a flow that began at `started` may have been cut at `ended`.
    pub fn excuse(&self, started: Instant, ended: Instant) -> bool {
        self.0.lock().unwrap().iter().any(|window| {
            let over = window.end.map(|end| end + SETTLE_TIMEOUT);
            let before_over = |at| over.is_none_or(|over| at <= over);
            match window.harm {
                Harm::Cuts => ended >= window.begin && before_over(ended),
                Harm::Delays => started + SETTING_UP >= window.begin && before_over(started),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flap_excuses_new_flows_only_and_a_kill_those_that_run() {
        let windows = Windows::default();
        let long_ago = Instant::now().checked_sub(Duration::from_secs(100)).unwrap();
        assert!(!windows.excuse(long_ago, Instant::now()));
        windows.open(Harm::Delays);
        assert!(!windows.excuse(long_ago, Instant::now()));
        assert!(windows.excuse(Instant::now(), Instant::now()));
        windows.close();
        let later = Instant::now() + SETTLE_TIMEOUT + Duration::from_secs(1);
        assert!(!windows.excuse(later, later));
        windows.open(Harm::Cuts);
        assert!(windows.excuse(long_ago, Instant::now()));
        assert!(!windows.excuse(long_ago, long_ago));
        windows.close();
        assert!(!windows.excuse(long_ago, later));
    }
}
