use std::time::Duration;

use millrace_cc::Bandwidth;

/// Waiting time that the pacer makes up for, as in the tunnel (`PACING_CREDIT` of `quiche_adapter` in `millrace-cc`).
const PACING_CREDIT_NS: u64 = Duration::from_micros(500).as_nanos() as u64;
/// Longest packet time that counts for the credit of three quarters of a packet (`MAX_PACKET_TIME` there).
const MAX_CREDIT_PACKET_NS: u64 = Duration::from_millis(20).as_nanos() as u64;
/// Longest packet time at any rate: an hour, only there to keep arithmetic finite.
const MAX_PACKET_NS: u64 = 3_600_000_000_000;

/// Spreads packets over time at a rate.
#[derive(Debug)]
pub(super) struct Pacer {
    release_ns: u64,
    /// The last rate and packet size.
    last: (Bandwidth, u64),
    /// The packet time of `last`: rates change less often than packets leave.
    last_time_ns: u64,
}

impl Pacer {
    pub(super) fn new(now_ns: u64) -> Self {
        Self { release_ns: now_ns, last: (Bandwidth::ZERO, 0), last_time_ns: 0 }
    }

    /// When the next packet may leave.
    pub(super) fn release_ns(&self) -> u64 {
        self.release_ns
    }

    /// A packet leaves.
    pub(super) fn on_packet(&mut self, now_ns: u64, bytes: u64, rate: Bandwidth) {
        let packet_ns = self.packet_ns(bytes, rate);
        let credit_ns = PACING_CREDIT_NS.max(packet_ns.min(MAX_CREDIT_PACKET_NS) * 3 / 4);
        self.release_ns = self.release_ns.max(now_ns.saturating_sub(credit_ns)) + packet_ns;
    }

    fn packet_ns(&mut self, bytes: u64, rate: Bandwidth) -> u64 {
        if self.last != (rate, bytes) {
            self.last = (rate, bytes);
            // 65535 bytes times 8 * 10^9 fit.
            let bit_ns = bytes * 8_000_000_000;
            let ns = if rate == Bandwidth::ZERO {
                MAX_PACKET_NS
            } else {
                bit_ns.div_ceil(rate.bits_per_s())
            };
            self.last_time_ns = ns.min(MAX_PACKET_NS);
        }
        self.last_time_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_earns_no_more_than_the_credit() {
        let rate = Bandwidth::from_mbps(12.0);
        let mut pacer = Pacer::new(0);
        // 1 ms each; three quarters of a packet are more than 0.5 ms.
        pacer.on_packet(0, 1500, rate);
        assert_eq!(pacer.release_ns(), 1_000_000);
        pacer.on_packet(10_000_000, 1500, rate);
        assert_eq!(pacer.release_ns(), 10_250_000);
        pacer.on_packet(10_250_000, 1500, rate);
        assert_eq!(pacer.release_ns(), 11_250_000);
    }

    #[test]
    fn rate_zero_is_not_never() {
        let mut pacer = Pacer::new(5);
        pacer.on_packet(5, 1500, Bandwidth::ZERO);
        assert!(pacer.release_ns() > 1_000_000_000_000);
    }
}
