//! Parameters of an emulated link.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// One direction of a link: loss, then a drop-tail buffer, then the serialiser, then propagation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PipeConfig {
    /// Rate of the serialiser in bits per second of network-layer packets (the Ethernet header is
    /// not counted).
    pub rate_bps: u64,
    /// One-way propagation in nanoseconds.
    pub delay_ns: u64,
    /// Bytes that may wait. The packet being serialised has left the buffer.
    pub buffer_bytes: u64,
    /// Probability, 0 to 1, that a packet is lost before it reaches the buffer (independent of
    /// all others).
    pub loss: f64,
    /// Largest additional delay of a packet, evenly distributed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub jitter_ns: u64,
    /// Whether jitter may change the order of packets; otherwise a packet waits for those before it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reorder: bool,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Both directions of a link.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LinkConfig {
    /// From the server side to the client side: the direction of the data.
    pub down: PipeConfig,
    /// From the client side to the server side.
    pub up: PipeConfig,
    /// Seed of the losses. The same seed loses the same packets, counted by arrival.
    pub seed: u64,
}

/// An invalid link configuration.
#[derive(Debug, Error, PartialEq)]
pub enum LinkConfigError {
    /// The rate is outside what the emulator can serialise.
    #[error("rate of {0} bit/s: allowed are 1 kbit/s to 10 Gbit/s")]
    Rate(u64),
    /// The delay is out of range: it bounds memory.
    #[error("one-way delay of {0} ns: allowed are 0 to 10 s")]
    Delay(u64),
    /// The loss is not a probability.
    #[error("loss of {0}: allowed are 0 to 1 (0.01 is one per cent)")]
    Loss(f64),
    /// The buffer is too large.
    #[error("buffer of {0} bytes: allowed are 0 to 1 GB")]
    Buffer(u64),
}

impl PipeConfig {
    /// Checks every value.
    ///
    /// # Errors
    /// Names the first value that is out of range, and the range.
    pub fn validate(&self) -> Result<(), LinkConfigError> {
        if !(1_000..=10_000_000_000).contains(&self.rate_bps) {
            return Err(LinkConfigError::Rate(self.rate_bps));
        }
        for delay_ns in [self.delay_ns, self.jitter_ns] {
            if delay_ns > 10_000_000_000 {
                return Err(LinkConfigError::Delay(delay_ns));
            }
        }
        if !(0.0..=1.0).contains(&self.loss) {
            return Err(LinkConfigError::Loss(self.loss));
        }
        if self.buffer_bytes > 1_000_000_000 {
            return Err(LinkConfigError::Buffer(self.buffer_bytes));
        }
        Ok(())
    }

    /// Bandwidth-delay product of this rate and a round trip of `rtt_ns`, in bytes.
    #[must_use]
    pub fn bdp_bytes(rate_bps: u64, rtt_ns: u64) -> u64 {
        let bits = u128::from(rate_bps) * u128::from(rtt_ns) / 1_000_000_000;
        u64::try_from(bits / 8).unwrap_or(u64::MAX)
    }
}

impl LinkConfig {
    /// A symmetric rate and delay; loss only in the direction of the data unless `loss_reverse`
    /// says otherwise.
    #[must_use]
    pub fn new(
        rate_bps: u64,
        rtt_ns: u64,
        buffer_bytes: u64,
        loss: f64,
        loss_reverse: f64,
        seed: u64,
    ) -> Self {
        let delay_ns = rtt_ns / 2;
        let down =
            PipeConfig { rate_bps, delay_ns, buffer_bytes, loss, jitter_ns: 0, reorder: false };
        // Both halves together are the round trip, odd nanosecond included.
        let up = PipeConfig { delay_ns: rtt_ns - rtt_ns / 2, loss: loss_reverse, ..down };
        Self { down, up, seed }
    }

    /// Checks both directions.
    ///
    /// # Errors
    /// As [`PipeConfig::validate`].
    pub fn validate(&self) -> Result<(), LinkConfigError> {
        self.down.validate()?;
        self.up.validate()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bdp_of_the_demo_link_is_150_kb() {
        assert_eq!(PipeConfig::bdp_bytes(12_000_000, 100_000_000), 150_000);
    }

    #[test]
    fn rejects_values_out_of_range() {
        let good = PipeConfig {
            rate_bps: 1_000_000,
            delay_ns: 0,
            buffer_bytes: 0,
            loss: 0.0,
            jitter_ns: 0,
            reorder: false,
        };
        assert_eq!(good.validate(), Ok(()));
        assert_eq!(PipeConfig { rate_bps: 0, ..good }.validate(), Err(LinkConfigError::Rate(0)));
        assert_eq!(PipeConfig { loss: 1.5, ..good }.validate(), Err(LinkConfigError::Loss(1.5)));
        assert!(PipeConfig { loss: f64::NAN, ..good }.validate().is_err());
        assert!(PipeConfig { delay_ns: 1 << 40, ..good }.validate().is_err());
        assert!(PipeConfig { buffer_bytes: 1 << 40, ..good }.validate().is_err());
    }

    #[test]
    fn an_odd_round_trip_is_kept_whole() {
        let link = LinkConfig::new(1_000_000, 3, 0, 0.0, 0.0, 1);
        assert_eq!(link.down.delay_ns + link.up.delay_ns, 3);
    }
}
