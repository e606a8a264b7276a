//! Limit of attempts: each source has a few at once, and then some a minute.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Attempts that one source has at once.
const SOURCE_BURST: f64 = 20.0;
/// Attempts that come back to a source in a second.
const SOURCE_RATE_PER_S: f64 = 0.2;
/// Attempts of all sources at once: a handshake takes about a millisecond of processor time.
const TOTAL_BURST: f64 = 200.0;
/// Attempts that come back to all sources in a second.
const TOTAL_RATE_PER_S: f64 = 20.0;
/// Sources that are counted at a time. While there are so many, new ones have the limit of all sources only.
const MAX_SOURCES: usize = 4096;

/// Token buckets (RFC 2697 has the scheme) of the sources of connections.
#[derive(Debug)]
pub(crate) struct AttemptLimit {
    total: AttemptBucket,
    sources: HashMap<IpAddr, AttemptBucket>,
}

#[derive(Clone, Copy, Debug)]
struct AttemptBucket {
    attempts: f64,
    updated: Instant,
}

impl AttemptBucket {
    fn refill(&mut self, burst: f64, rate_per_s: f64, now: Instant) {
        let passed = now.saturating_duration_since(self.updated).as_secs_f64();
        self.attempts = (self.attempts + passed * rate_per_s).min(burst);
        self.updated = now;
    }
}

impl AttemptLimit {
    pub(crate) fn new(now: Instant) -> Self {
        let total = AttemptBucket { attempts: TOTAL_BURST, updated: now };
        Self { total, sources: HashMap::new() }
    }

    /// Counts an attempt. Returns whether it is within the limits.
    pub(crate) fn take(&mut self, from: IpAddr, now: Instant) -> bool {
        let source = source(from);
        self.total.refill(TOTAL_BURST, TOTAL_RATE_PER_S, now);
        if self.sources.len() >= MAX_SOURCES {
            self.forget_full(now);
        }
        let new = AttemptBucket { attempts: SOURCE_BURST, updated: now };
        let has_room = self.sources.len() < MAX_SOURCES || self.sources.contains_key(&source);
        if has_room {
            let own = self.sources.entry(source).or_insert(new);
            own.refill(SOURCE_BURST, SOURCE_RATE_PER_S, now);
            if own.attempts < 1.0 {
                return false;
            }
            own.attempts -= 1.0;
        }
        let is_within = self.total.attempts >= 1.0;
        if is_within {
            self.total.attempts -= 1.0;
        }
        is_within
    }

    /// Forgets sources that have all their attempts again.
    fn forget_full(&mut self, now: Instant) {
        let refill = Duration::from_secs_f64(SOURCE_BURST / SOURCE_RATE_PER_S);
        self.sources.retain(|_, it| now.saturating_duration_since(it.updated) < refill);
    }
}

/// An IPv4 address, or the /64 of an IPv6 address: what one host can choose from.
pub(crate) fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(limit: &mut AttemptLimit, from: &str, now: Instant, attempts: usize) -> usize {
        (0..attempts).filter(|_| limit.take(from.parse().unwrap(), now)).count()
    }

    #[test]
    fn a_source_has_its_burst_and_then_some_a_minute() {
        let start = Instant::now();
        let mut limit = AttemptLimit::new(start);
        assert_eq!(taken(&mut limit, "198.18.1.1", start, 50), 20);
        assert_eq!(taken(&mut limit, "198.18.1.2", start, 1), 1);
        assert_eq!(taken(&mut limit, "198.18.1.1", start + Duration::from_secs(60), 50), 12);
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one_source() {
        let start = Instant::now();
        let mut limit = AttemptLimit::new(start);
        assert_eq!(taken(&mut limit, "2001:db8::1", start, 15), 15);
        assert_eq!(taken(&mut limit, "2001:db8::ffff", start, 15), 5);
        assert_eq!(taken(&mut limit, "2001:db8:0:1::1", start, 1), 1);
        assert_eq!(taken(&mut limit, "::ffff:198.18.1.1", start, 30), 20);
        assert_eq!(taken(&mut limit, "198.18.1.1", start, 1), 0);
    }

    #[test]
    fn all_sources_share_a_limit_and_the_table_is_bounded() {
        let start = Instant::now();
        let mut limit = AttemptLimit::new(start);
        let mut taken = 0;
        for index in 0..10_000_u32 {
            taken += usize::from(limit.take(IpAddr::V4((0x0a00_0000 + index).into()), start));
        }
        assert_eq!(taken, 200);
        assert_eq!(limit.sources.len(), MAX_SOURCES);
        let later = start + Duration::from_secs(101);
        assert!(limit.take("198.18.1.1".parse().unwrap(), later));
        assert_eq!(limit.sources.len(), 1);
    }
}
