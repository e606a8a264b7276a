use std::time::Duration;

/// Least time between two progress events (XMLHttpRequest Standard, "processBodyChunk": 50 ms).
const PROGRESS_INTERVAL: Duration = Duration::from_millis(50);

/// A resource of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resource {
    /// The connection: an exchange without a body of its own.
    Connection,
    Manifest,
    Init {
        rung: usize,
    },
    Segment {
        index: u64,
        rung: usize,
    },
}

/// A resource that is being fetched, as the page's script sees it: by progress events.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResourceDownload {
    pub resource: Resource,
    /// Of its request and response: the player ignores what came before.
    pub number: u64,
    pub requested: Duration,
    pub body_bytes: u64,
    received_bytes: u64,
    first: Option<ProgressEvent>,
    last: Option<ProgressEvent>,
    events: u32,
}

#[derive(Clone, Copy, Debug)]
struct ProgressEvent {
    at: Duration,
    loaded_bytes: u64,
}

/// Whole milliseconds, as the script's clock has them.
fn ms(time: Duration) -> u64 {
    time.as_millis() as u64
}

impl ResourceDownload {
    pub(super) fn new(
        resource: Resource,
        number: u64,
        requested: Duration,
        body_bytes: u64,
    ) -> Self {
        Self {
            resource,
            number,
            requested,
            body_bytes,
            received_bytes: 0,
            first: None,
            last: None,
            events: 0,
        }
    }

    /// So much of the body has come.
    pub(super) fn receive(&mut self, body_bytes: u64) {
        self.received_bytes = self.received_bytes.max(body_bytes.min(self.body_bytes));
    }

    pub(super) fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    pub(super) fn is_complete(&self) -> bool {
        self.received_bytes == self.body_bytes
    }

    /// When the next event is due; the last one comes with the end.
    pub(super) fn next_event(&self) -> Option<Duration> {
        let loaded = self.last.map_or(0, |event| event.loaded_bytes);
        let is_new = self.received_bytes > loaded && !self.is_complete();
        is_new.then(|| self.last.map_or(Duration::ZERO, |event| event.at + PROGRESS_INTERVAL))
    }

    /// Fires an event if one is due. Returns whether it did.
    pub(super) fn fire_event(&mut self, now: Duration) -> bool {
        let is_due = self.is_complete() || self.next_event().is_some_and(|at| at <= now);
        if is_due {
            let event = ProgressEvent { at: now, loaded_bytes: self.received_bytes };
            self.first.get_or_insert(event);
            self.last = Some(event);
            self.events += 1;
        }
        is_due
    }

    pub(super) fn events(&self) -> u32 {
        self.events
    }

    /// Time and bytes from the first event to the last: what the player takes for the throughput (dash.js 5.2.1,
    /// `ThroughputModel.js`, without the Resource Timing API, which the origin does not permit to other origins).
    /// `None` with a single event.
    pub(super) fn measured(&self) -> Option<(u64, u64)> {
        let (first, last) = (self.first?, self.last?);
        let bytes = last.loaded_bytes - first.loaded_bytes;
        (self.events > 1).then(|| (bytes, (ms(last.at) - ms(first.at)).max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn download() -> ResourceDownload {
        ResourceDownload::new(Resource::Segment { index: 0, rung: 0 }, 1, Duration::ZERO, 10_000)
    }

    #[test]
    fn events_are_50_ms_apart_and_the_throughput_is_of_what_is_between_them() {
        let mut download = download();
        assert_eq!(download.next_event(), None);
        download.receive(1000);
        assert!(download.fire_event(at(100)));
        assert_eq!(download.measured(), None, "a single event");
        download.receive(2000);
        assert!(!download.fire_event(at(149)));
        assert_eq!(download.next_event(), Some(at(150)));
        assert!(download.fire_event(at(150)));
        assert_eq!(download.measured(), Some((1000, 50)));
        download.receive(10_000);
        assert!(download.fire_event(at(160)), "the last comes at once");
        assert_eq!(download.measured(), Some((9000, 60)));
        assert_eq!((download.events(), download.is_complete()), (3, true));
    }

    #[test]
    fn what_comes_in_one_piece_has_no_throughput() {
        let mut download = download();
        download.receive(10_000);
        assert!(download.fire_event(at(70)));
        assert_eq!(download.measured(), None);
    }
}
