//! A link and its changes over a run.

use std::time::Duration;

use anyhow::{Result, bail};
use millrace_cc::Bandwidth;
use millrace_sim::link::{LinkConfig, PipeConfig};
use millrace_sim::{LinkRate, LinkSetup, Setup};

/// A link without planned changes lasts until it is stopped.
const UNLIMITED_DURATION: Duration = Duration::from_secs(1_000_000);

/// Rate of an unconstrained reverse path: a packet of 1500 bytes takes 1.2 us.
const FREE_RATE_BPS: u64 = 10_000_000_000;
/// Buffer of an unconstrained reverse path: more than can ever queue there.
const FREE_BUFFER_BYTES: u64 = 64 << 20;

/// On faster links the edges receive in threads of their own, and what is due within some
/// microseconds leaves together. Otherwise kernel TCP took 89 % of a processor at 500 Mbit/s, and at
/// 1 Gbit/s packets were late by up to 50 ms at the 99th percentile. On slower links it would cost more
/// than it gains: at 100 Mbit/s 59 us of delay in place of 34 in the median, for a wake-up more.
const FAST_ABOVE_BPS: u64 = 300_000_000;

/// The path against the direction of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReversePath {
    /// Propagation and loss only, as the simulator has it: acknowledgements have it to themselves.
    Free,
    /// The same rate and buffer as in the direction of the data, changes included.
    Same,
}

/// A flow as the link can tell it from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowPlan {
    /// The last four bytes of the address, of either family, that its packets have at the server's
    /// side.
    pub host: u32,
    /// Whether its data go from the client's side to the server's.
    pub upwards: bool,
    /// Its extra propagation, on the path from the client's side to the server's.
    pub extra_rtt: Duration,
}

/// A link, its changes and the flows that it tells apart. The flows of `setup` itself are ignored.
#[derive(Debug, Clone)]
pub struct LinkPlan {
    /// The bottleneck, its changes, times and seed.
    pub setup: Setup,
    /// Seed of the losses, where it isn't the run's.
    pub loss_seed: Option<u64>,
    /// The reverse path.
    pub reverse: ReversePath,
    /// The flows that cross it.
    pub flows: Vec<FlowPlan>,
}

impl LinkPlan {
    /// # Errors
    /// Names the first value that is out of range, and the range.
    pub fn validate(&self) -> Result<()> {
        self.setup.validate_without_flows()?;
        let mut hosts: Vec<u32> = self.flows.iter().map(|flow| flow.host).collect();
        hosts.sort_unstable();
        if hosts.windows(2).any(|pair| pair[0] == pair[1]) {
            bail!("two flows have one address: the link could not tell them apart");
        }
        Ok(())
    }

    /// Whether the link is so fast, at any time, that the receiving hosts' work must not be its
    /// thread's. Recorded links aren't.
    #[must_use]
    pub fn is_fast(&self) -> bool {
        self.fastest_bps() > FAST_ABOVE_BPS
    }

    fn fastest_bps(&self) -> u64 {
        let changes = self.setup.changes.iter().filter_map(|(_, change)| change.rate.as_ref());
        let drawn = self.setup.random_change.as_ref().and_then(|change| change.rate.as_ref());
        std::iter::once(&self.setup.link.rate)
            .chain(changes)
            .filter_map(|rate| match rate {
                LinkRate::Constant(rate) => Some(rate.bits_per_s()),
                LinkRate::Trace(_) => None,
            })
            .chain(drawn.map(|range| range.end().bits_per_s()))
            .max()
            .unwrap_or(0)
    }

    /// The reverse path of `link`.
    pub(super) fn reverse_pipe(&self, link: &LinkSetup, rate_bps: u64) -> PipeConfig {
        let (rate_bps, buffer_bytes) = match self.reverse {
            ReversePath::Free => (FREE_RATE_BPS, FREE_BUFFER_BYTES),
            ReversePath::Same => (rate_bps, link.buffer_bytes),
        };
        let rtt_ns = link.rtt.as_nanos() as u64;
        PipeConfig {
            rate_bps,
            // Both halves together are the round trip, odd nanosecond included.
            delay_ns: rtt_ns - rtt_ns / 2,
            buffer_bytes,
            loss: link.loss_reverse,
            jitter_ns: 0,
            reorder: false,
        }
    }
}

impl From<LinkConfig> for LinkPlan {
    fn from(config: LinkConfig) -> Self {
        let LinkConfig { down, up, seed } = config;
        let rtt = Duration::from_nanos(down.delay_ns + up.delay_ns);
        let link = LinkSetup {
            rate: LinkRate::Constant(Bandwidth::from_bits_per_s(down.rate_bps)),
            rtt,
            buffer_bytes: down.buffer_bytes,
            loss: down.loss,
            loss_reverse: up.loss,
            jitter: Duration::from_nanos(down.jitter_ns),
            reorder: down.reorder,
        };
        let setup = Setup { seed, ..Setup::new(link, Vec::new(), UNLIMITED_DURATION) };
        Self { setup, loss_seed: Some(seed), reverse: ReversePath::Same, flows: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use millrace_sim::{LinkChange, RandomLinkChange};

    use super::*;

    #[test]
    fn the_fastest_is_found_wherever_it_is() {
        let rate = Bandwidth::from_bits_per_s;
        let link = LinkSetup::new(rate(1_000_000), Duration::from_millis(30), 15_000);
        let mut plan = LinkPlan {
            setup: Setup::new(link, Vec::new(), UNLIMITED_DURATION),
            loss_seed: None,
            reverse: ReversePath::Free,
            flows: Vec::new(),
        };
        assert_eq!(plan.fastest_bps(), 1_000_000);
        let change =
            LinkChange { rate: Some(LinkRate::Constant(rate(3_000_000))), ..Default::default() };
        plan.setup.changes.push((Duration::from_secs(1), change));
        assert_eq!(plan.fastest_bps(), 3_000_000);
        plan.setup.random_change = Some(RandomLinkChange {
            every: Duration::from_secs(1),
            rate: Some(rate(2_000_000)..=rate(5_000_000)),
            rtt: None,
            loss: None,
        });
        assert_eq!(plan.fastest_bps(), 5_000_000);
    }
}
