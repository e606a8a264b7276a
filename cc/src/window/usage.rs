/// Whether the sender uses its window: an unused window shows nothing about the path and must not grow
/// (RFC 9002, Section 7.8; RFC 9438, Section 5.8; RFC 7661, Section 4.3).
///
/// An acknowledgement is for a packet sent a round trip ago. So both the current and the previous round count.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WindowUse {
    current: UsageRound,
    previous: UsageRound,
}

#[derive(Clone, Copy, Debug, Default)]
struct UsageRound {
    /// Most bytes in flight.
    peak_bytes: u64,
    /// Whether the window had no room for another packet.
    full: bool,
    /// Whether the sender was out of data while the window had room.
    starved: bool,
}

impl WindowUse {
    /// A packet leaves, with which `flight_bytes` are in flight.
    pub(crate) fn on_sent(&mut self, flight_bytes: u64, window_bytes: u64, mtu_bytes: u64) {
        self.current.peak_bytes = self.current.peak_bytes.max(flight_bytes);
        self.current.full |= flight_bytes + mtu_bytes > window_bytes;
    }

    /// The sender is out of data.
    pub(crate) fn on_starved(&mut self) {
        self.current.starved = true;
    }

    pub(crate) fn on_round(&mut self) {
        self.previous = std::mem::take(&mut self.current);
    }

    /// Whether the sender was out of data.
    pub(crate) fn is_starved(&self) -> bool {
        self.current.starved || self.previous.starved
    }

    /// Whether acknowledgements may let the window grow.
    ///
    /// A window that pacing alone kept from being full counts as used (RFC 9002, Section 7.8).
    /// Slow start doubles the window while acknowledgements of half of it are on their way, so half of
    /// it is enough there (as in Linux, `tcp_is_cwnd_limited`). Less than half is never enough: no
    /// window grows beyond twice the bytes that were in flight.
    pub(crate) fn is_used(&self, window_bytes: u64, slow_start: bool) -> bool {
        let peak_bytes = self.current.peak_bytes.max(self.previous.peak_bytes);
        if peak_bytes.saturating_mul(2) < window_bytes {
            return false;
        }
        let full = self.current.full || self.previous.full;
        full || slow_start || !self.is_starved()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_window_is_used_for_this_round_and_the_next() {
        let mut usage = WindowUse::default();
        assert!(!usage.is_used(10_000, false), "nothing sent");
        usage.on_sent(9_000, 10_000, 1_350);
        usage.on_starved();
        assert!(usage.is_used(10_000, false));
        usage.on_round();
        usage.on_sent(6_000, 10_000, 1_350);
        usage.on_starved();
        assert!(usage.is_used(10_000, false));
        usage.on_round();
        assert!(!usage.is_used(10_000, false), "the round before was not full");
        assert!(usage.is_used(10_000, true), "more than half is enough in slow start");
        assert!(!usage.is_used(12_001, true));
    }

    #[test]
    fn pacing_alone_is_no_reason_not_to_grow() {
        let mut usage = WindowUse::default();
        usage.on_sent(7_000, 10_000, 1_350);
        assert!(usage.is_used(10_000, false));
        usage.on_starved();
        assert!(!usage.is_used(10_000, false));
    }
}
