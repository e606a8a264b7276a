use millrace_cc::Time;
use millrace_cc::rate_cap::{PlayerNeeds, RateCap, TokenBucket};

/// The rate cap of a player's flow at the server edge: new data goes to the transport in the portions of a token bucket.
#[derive(Debug)]
pub(super) struct CappedRelease {
    is_enabled: bool,
    /// The bucket, and when the cap ends.
    active: Option<(TokenBucket, Time)>,
    /// Of the last portion, what has not been sent.
    released_bytes: u64,
}

impl CappedRelease {
    pub(super) fn new(is_enabled: bool) -> Self {
        Self { is_enabled, active: None, released_bytes: 0 }
    }

    /// The next request decides.
    pub(super) fn on_request(&mut self, now: Time, needs: &PlayerNeeds) {
        if !self.is_enabled {
            return;
        }
        self.active = RateCap::of(needs).ok().map(|cap| {
            let before = self.active.take().filter(|(_, ends)| now < *ends);
            let (mut bucket, _) =
                before.unwrap_or_else(|| (TokenBucket::new(cap.rate, now), Time::ZERO));
            bucket.set_rate(cap.rate);
            (bucket, now + cap.lasts)
        });
    }

    /// Whether a packet of new data may go.
    pub(super) fn allows(&self, now: Time) -> bool {
        let held = self.active.as_ref().filter(|(_, ends)| now < *ends);
        held.is_none_or(|(bucket, _)| self.released_bytes > 0 || bucket.allowed_bytes(now) > 0)
    }

    /// A packet of new data goes.
    pub(super) fn take(&mut self, now: Time, bytes: u64) {
        let Some((bucket, _)) = self.active.as_mut().filter(|(_, ends)| now < *ends) else {
            self.released_bytes = 0;
            return;
        };
        if self.released_bytes < bytes {
            let portion = bucket.allowed_bytes(now).max(bytes - self.released_bytes);
            bucket.take(portion, now);
            self.released_bytes += portion;
        }
        self.released_bytes -= bytes;
    }

    /// When [`Self::allows`] changes, if it is false.
    pub(super) fn ready(&self) -> Option<Time> {
        self.active.as_ref().map(|(bucket, ends)| bucket.ready().min(*ends))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use millrace_cc::Bandwidth;

    use super::*;

    /// 1.5 x 8 Mbit/s, for 5 s.
    fn needs() -> PlayerNeeds {
        PlayerNeeds {
            buffer: Some(Duration::from_secs(15)),
            top_rate: Some(Bandwidth::from_mbps(8.0)),
            ..PlayerNeeds::default()
        }
    }

    /// Bytes of packets within `time` after a request.
    fn sent(release: &mut CappedRelease, needs: &PlayerNeeds, time: Duration) -> u64 {
        let start = Time::from_nanos(1_000_000_000);
        release.on_request(start, needs);
        let (mut now, mut bytes) = (start, 0);
        while now < start + time {
            if release.allows(now) {
                release.take(now, 1250);
                bytes += 1250;
                // 100 Mbit/s.
                now += Duration::from_micros(100);
            } else {
                let ready = release.ready().expect("something is waited for");
                assert!(ready > now, "{ready:?} at {now:?}");
                now = ready;
            }
        }
        bytes
    }

    #[test]
    fn data_follows_the_cap_until_its_end() {
        let mut release = CappedRelease::new(true);
        let bytes = sent(&mut release, &needs(), Duration::from_secs(4));
        assert!(bytes.abs_diff(6_000_000) < 20_000, "{bytes}");
        let bytes = sent(&mut CappedRelease::new(true), &needs(), Duration::from_secs(6));
        assert!(bytes.abs_diff(7_500_000 + 12_500_000) < 20_000, "{bytes}");
    }

    #[test]
    fn nothing_is_capped_without_the_key_or_for_urgent_requests() {
        let time = Duration::from_secs(4);
        assert_eq!(sent(&mut CappedRelease::new(false), &needs(), time), 50_000_000);
        let urgent = PlayerNeeds { is_urgent: true, ..needs() };
        let mut release = CappedRelease::new(true);
        release.on_request(Time::ZERO, &needs());
        assert_eq!(sent(&mut release, &urgent, time), 50_000_000);
    }
}
