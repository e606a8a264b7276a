//! Where the demo's time goes.

use std::time::{Duration, Instant};

/// The parts of the demo, and how long each took.
#[derive(Debug)]
pub(super) struct DemoTimes {
    since: Instant,
    parts: Vec<(&'static str, Duration)>,
}

impl DemoTimes {
    pub(super) fn begin() -> Self {
        Self { since: Instant::now(), parts: Vec::new() }
    }

    /// A part has ended; the next one begins.
    pub(super) fn end_part(&mut self, name: &'static str) {
        let now = Instant::now();
        self.parts.push((name, now.duration_since(self.since)));
        self.since = now;
    }

    /// The parts in their order, for readers.
    pub(super) fn text(&self) -> String {
        let parts = self.parts.iter().map(|(name, took)| format!("{name} {} s", took.as_secs()));
        parts.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_begins_where_the_one_before_ended() {
        let mut times = DemoTimes::begin();
        times.since -= Duration::from_secs(70);
        times.end_part("video");
        times.since -= Duration::from_secs(5);
        times.end_part("sessions");
        assert_eq!(times.text(), "video 70 s, sessions 5 s");
    }
}
