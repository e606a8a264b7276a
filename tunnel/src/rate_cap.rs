//! The cap of one flow's sending rate, which its player's requests set (`millrace_cc::rate_cap`).
//!
//! The flow reads no more from its socket than the cap allows, so that the origin waits. Other flows of the connection,
//! and data that is sent again, are not limited.

use std::time::{Duration, Instant};

use millrace_cc::rate_cap::{PlayerNeeds, RateCap, TokenBucket};
use millrace_cc::{Bandwidth, Time};
use millrace_wire::cmcd::PlayerReport;

use crate::metrics::RateCapResult;

/// A flow's cap, if its last request set one.
#[derive(Debug)]
pub(crate) struct FlowRateCap {
    /// Origin of the times below.
    epoch: Instant,
    active: Option<ActiveCap>,
}

#[derive(Clone, Copy, Debug)]
struct ActiveCap {
    bucket: TokenBucket,
    ends: Time,
}

impl FlowRateCap {
    /// Before the first request.
    pub(crate) fn new(epoch: Instant) -> Self {
        Self { epoch, active: None }
    }

    /// Takes the next request, with what its player reports.
    pub(crate) fn on_request(
        &mut self,
        report: Option<&PlayerReport>,
        now: Instant,
    ) -> RateCapResult {
        let Some(report) = report else {
            self.lift();
            return RateCapResult::NoReport;
        };
        match RateCap::of(&needs(report)) {
            Ok(cap) => {
                let now = self.time(now);
                let before = self.active_at(now).map(|active| active.bucket);
                let mut bucket = before.unwrap_or_else(|| TokenBucket::new(cap.rate, now));
                bucket.set_rate(cap.rate);
                self.active = Some(ActiveCap { bucket, ends: now + cap.lasts });
                RateCapResult::Capped
            }
            Err(reason) => {
                self.lift();
                reason.into()
            }
        }
    }

    /// Removes the cap.
    pub(crate) fn lift(&mut self) {
        self.active = None;
    }

    /// The cap now.
    pub(crate) fn rate(&self, now: Instant) -> Option<Bandwidth> {
        self.active_at(self.time(now)).map(|active| active.bucket.rate())
    }

    /// Bytes that may go now.
    pub(crate) fn allowed_bytes(&self, now: Instant) -> usize {
        let now = self.time(now);
        let allowed = self.active_at(now).map(|active| active.bucket.allowed_bytes(now));
        allowed.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(usize::MAX)
    }

    /// When bytes may go, if none may now.
    pub(crate) fn ready(&self, now: Instant) -> Option<Instant> {
        let at = self.time(now);
        let active = self.active_at(at).filter(|active| active.bucket.allowed_bytes(at) == 0)?;
        let wait = active.bucket.ready().min(active.ends).since(at);
        // A time-out of zero would come in the same round of the loop.
        Some(now + wait.max(Duration::from_micros(1)))
    }

    /// So many have gone.
    pub(crate) fn take(&mut self, bytes: usize, now: Instant) {
        let now = self.time(now);
        if let Some(active) = &mut self.active {
            active.bucket.take(bytes as u64, now);
        }
    }

    fn active_at(&self, now: Time) -> Option<&ActiveCap> {
        self.active.as_ref().filter(|active| now < active.ends)
    }

    fn time(&self, now: Instant) -> Time {
        Time::ZERO + now.saturating_duration_since(self.epoch)
    }
}

fn needs(report: &PlayerReport) -> PlayerNeeds {
    let rate =
        |kbps: Option<u64>| kbps.map(|kbps| Bandwidth::from_bits_per_s(kbps.saturating_mul(1000)));
    PlayerNeeds {
        buffer: report.buffer_ms.map(Duration::from_millis),
        rate: rate(report.bitrate_kbps),
        top_rate: rate(report.top_bitrate_kbps),
        requested_rate: rate(report.requested_kbps),
        is_urgent: report.urgent,
        is_live: report.live,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1.5 x 8 Mbit/s: 1500 bytes in a millisecond.
    fn report(buffer_ms: u64) -> PlayerReport {
        PlayerReport {
            buffer_ms: Some(buffer_ms),
            top_bitrate_kbps: Some(8000),
            ..PlayerReport::default()
        }
    }

    fn at(start: Instant, ms: u64) -> Instant {
        start + Duration::from_millis(ms)
    }

    #[test]
    fn request_with_a_full_buffer_sets_the_cap_and_the_next_one_replaces_it() {
        let start = Instant::now();
        let mut cap = FlowRateCap::new(start);
        assert_eq!((cap.rate(start), cap.allowed_bytes(start)), (None, usize::MAX));
        let asked = PlayerReport { requested_kbps: Some(20_000), ..report(15_000) };
        assert_eq!(cap.on_request(Some(&asked), start), RateCapResult::Capped);
        assert_eq!(cap.rate(start), Some(Bandwidth::from_mbps(20.0)));
        assert_eq!(cap.on_request(Some(&report(15_000)), start), RateCapResult::Capped);
        assert_eq!(cap.rate(start), Some(Bandwidth::from_mbps(12.0)));
        let now = at(start, 1000);
        assert_eq!(cap.allowed_bytes(now), 15_000);
        assert_eq!(cap.ready(now), None);
        cap.take(15_000, now);
        assert_eq!((cap.allowed_bytes(now), cap.ready(now)), (0, Some(at(start, 1005))));
        assert_eq!(cap.allowed_bytes(at(start, 1005)), 7500);
    }

    #[test]
    fn requests_without_report_or_that_must_not_be_capped_remove_the_cap() {
        let now = Instant::now();
        let urgent = PlayerReport { urgent: true, ..report(15_000) };
        let live = PlayerReport { live: true, ..report(15_000) };
        let unknown = PlayerReport { top_bitrate_kbps: None, ..report(15_000) };
        let low_rung = PlayerReport { bitrate_kbps: Some(7999), ..report(15_000) };
        for (next, result) in [
            (None, RateCapResult::NoReport),
            (Some(urgent), RateCapResult::Urgent),
            (Some(live), RateCapResult::Live),
            (Some(unknown), RateCapResult::UnknownTopRate),
            (Some(low_rung), RateCapResult::BelowTopRate),
            (Some(report(9999)), RateCapResult::LowBuffer),
        ] {
            let mut cap = FlowRateCap::new(now);
            cap.on_request(Some(&report(15_000)), now);
            assert!(cap.rate(now).is_some());
            assert_eq!(cap.on_request(next.as_ref(), now), result);
            assert_eq!((cap.rate(now), cap.allowed_bytes(now)), (None, usize::MAX), "{result:?}");
        }
    }

    #[test]
    fn cap_ends_when_the_buffer_may_have_ten_seconds() {
        let start = Instant::now();
        let mut cap = FlowRateCap::new(start);
        cap.on_request(Some(&report(10_100)), start);
        cap.take(100_000, start);
        // 100,000 bytes take 66.7 ms, and a portion is 5 ms.
        assert_eq!(cap.ready(start).map(|at| (at - start).as_millis()), Some(71));
        cap.take(100_000, start);
        assert_eq!(cap.ready(start), Some(at(start, 100)), "not later than the cap's end");
        assert_eq!(cap.allowed_bytes(at(start, 99)), 0);
        assert_eq!(
            (cap.allowed_bytes(at(start, 100)), cap.rate(at(start, 100))),
            (usize::MAX, None)
        );
        assert_eq!(cap.ready(at(start, 100)), None);
    }
}
