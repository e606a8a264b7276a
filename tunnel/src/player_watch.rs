//! CMCD reports of the player of a flow, read from its requests as they pass.
//!
//! Requests are passed on as they came, whatever is found in them. At most one head is kept; where the
//! next request can't be found, nothing is read any more.

use std::sync::Arc;
use std::time::Instant;

use millrace_wire::Parsed;
use millrace_wire::cmcd::{self, Ignored, PlayerReport};

use crate::metrics::Metrics;
use crate::rate_cap::FlowRateCap;

/// Reads one flow's requests.
#[derive(Debug)]
pub(crate) struct PlayerWatch {
    metrics: Arc<Metrics>,
    /// The beginning of a head.
    head: Vec<u8>,
    /// Of a request's content.
    content_left: u64,
    /// Nothing can be read any more.
    lost: bool,
    last: Option<(Instant, PlayerReport)>,
    /// Where the flow's rate may be capped.
    pub(crate) rate_cap: Option<FlowRateCap>,
}

impl PlayerWatch {
    /// Before the first request.
    pub(crate) fn new(metrics: Arc<Metrics>, rate_cap: Option<FlowRateCap>) -> Self {
        Self { metrics, head: Vec::new(), content_left: 0, lost: false, last: None, rate_cap }
    }

    /// Takes what the player sent next.
    pub(crate) fn take(&mut self, mut bytes: &[u8], now: Instant) {
        while !self.lost && !bytes.is_empty() {
            if self.content_left > 0 {
                let skipped =
                    bytes.len().min(usize::try_from(self.content_left).unwrap_or(usize::MAX));
                self.content_left -= skipped as u64;
                bytes = &bytes[skipped..];
                continue;
            }
            let before = self.head.len();
            let room = cmcd::MAX_HEAD_BYTES - before;
            let taken = &bytes[..bytes.len().min(room)];
            self.head.extend_from_slice(taken);
            // A head ends with a line; one that comes byte by byte is not parsed with each.
            if before > 0 && !taken.contains(&b'\n') && self.head.len() < cmcd::MAX_HEAD_BYTES {
                return;
            }
            match cmcd::parse(&self.head) {
                Ok(Parsed::Incomplete) => return,
                Ok(Parsed::Complete { value, consumed }) => {
                    self.content_left = value.content_bytes;
                    self.count(&value.ignored);
                    self.update_rate_cap(value.report.as_ref(), now);
                    if let Some(report) = value.report {
                        self.last = Some((now, report));
                    }
                    // A head that was complete before would have been taken before.
                    bytes = &bytes[consumed - before..];
                    self.head = Vec::new();
                }
                Err(_) => {
                    (self.lost, self.head) = (true, Vec::new());
                    if let Some(rate_cap) = &mut self.rate_cap {
                        rate_cap.lift();
                    }
                }
            }
        }
    }

    fn update_rate_cap(&mut self, report: Option<&PlayerReport>, now: Instant) {
        if let Some(rate_cap) = &mut self.rate_cap {
            self.metrics.rate_cap_requests.of(rate_cap.on_request(report, now)).inc();
        }
    }

    fn count(&self, ignored: &[Ignored]) {
        for Ignored { key, reason } in ignored {
            self.metrics.cmcd_ignored.of(*reason).inc();
            tracing::debug!(key, reason = reason.as_str(), "CMCD ignored");
        }
    }

    /// The last report and when it came.
    pub(crate) fn last(&self) -> Option<(Instant, PlayerReport)> {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use millrace_wire::cmcd::IgnoredReason;

    use super::*;
    use crate::metrics::RateCapResult;

    const FIRST: &str = "GET /1?CMCD=bl%3D1000 HTTP/1.1\r\nHost: a\r\n\r\n";
    const BEACON: &str = "POST /b HTTP/1.1\r\nContent-Length: 9\r\n\r\nGET /9 HT";
    const SECOND: &str = "GET /2?CMCD=bl%3D2500%2Cbs HTTP/1.1\r\nHost: a\r\n\r\n";

    fn new_watch() -> PlayerWatch {
        let rate_cap = FlowRateCap::new(Instant::now());
        PlayerWatch::new(Metrics::new("test", "0").unwrap(), Some(rate_cap))
    }

    fn buffer_ms(watch: &PlayerWatch) -> Option<u64> {
        watch.last().and_then(|(_, report)| report.buffer_ms)
    }

    #[test]
    fn requests_are_found_however_they_come() {
        let all = [FIRST, BEACON, SECOND].concat();
        for piece in [1, 7, 40, 1000] {
            let mut watch = new_watch();
            let now = Instant::now();
            all.as_bytes().chunks(piece).for_each(|bytes| watch.take(bytes, now));
            assert_eq!(buffer_ms(&watch), Some(2500), "pieces of {piece}");
            assert!(watch.last().unwrap().1.starved && watch.head.is_empty());
        }
    }

    #[test]
    fn ignored_keys_are_counted_and_the_others_read() {
        let mut watch = new_watch();
        let request = "GET /1?CMCD=bl%3D1000%2Cbr%3Dx%2Ctb%3Dy%2Ccid%3D%22a HTTP/1.1\r\n\r\n";
        watch.take(request.as_bytes(), Instant::now());
        assert_eq!(buffer_ms(&watch), Some(1000));
        let ignored = |reason| watch.metrics.cmcd_ignored.of(reason).get();
        assert_eq!(IgnoredReason::ALL.map(ignored), [1, 2, 0, 0, 0]);
    }

    #[test]
    fn each_request_decides_on_the_rate_cap() {
        let capped = "GET /1?CMCD=bl%3D15000%2Ctb%3D8000 HTTP/1.1\r\nHost: a\r\n\r\n";
        let plain = "GET /2 HTTP/1.1\r\nHost: a\r\n\r\n";
        let chunked = "POST /3 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        let now = Instant::now();
        for (next, is_capped) in [("", true), (capped, true), (plain, false), (chunked, false)] {
            let mut watch = new_watch();
            watch.take([capped, next].concat().as_bytes(), now);
            let rate = watch.rate_cap.as_ref().unwrap().rate(now);
            assert_eq!(rate.is_some(), is_capped, "{next}");
            let counted = |result| watch.metrics.rate_cap_requests.of(result).get();
            assert_eq!(counted(RateCapResult::Capped), 1 + u64::from(next == capped));
            assert_eq!(counted(RateCapResult::NoReport), u64::from(next == plain));
        }
    }

    #[test]
    fn what_is_no_http_ends_the_reading_and_keeps_no_memory() {
        let mut watch = new_watch();
        let now = Instant::now();
        watch.take(FIRST.as_bytes(), now);
        watch.take(b"\x16\x03\x01\n", now);
        watch.take(SECOND.as_bytes(), now);
        assert_eq!(buffer_ms(&watch), Some(1000));

        let mut endless = new_watch();
        endless.take(b"GET /", now);
        for _ in 0..40 {
            endless.take(&[b'a'; 1000], now);
        }
        assert!(endless.lost && endless.head.capacity() == 0);
    }
}
