//! The emulated link in virtual time: no clock, no I/O.
//!
//! A packet meets, in this order, random loss, a byte-limited drop-tail FIFO, a serialiser and
//! propagation. Every instant is derived from the packet's arrival, never from the moment at which
//! the engine was called: a late wake-up delays one release and shifts no later packet.

use std::collections::VecDeque;

use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Serialize;

use super::config::PipeConfig;
use super::queue::{ByteFifo, LinkSized};

/// Nanoseconds with 32 fractional bits, so that a rate that does not divide a nanosecond (12 Mbit/s:
/// 1500 bytes are exactly 1 ms, 1499 are not) errs by less than 1 ns in 10^9 packets.
type FixedNs = u128;

const FRACTION_BITS: u32 = 32;

fn fixed(ns: u64) -> FixedNs {
    u128::from(ns) << FRACTION_BITS
}

/// Rounds up: a packet is never complete before its last bit.
fn whole_ns(at: FixedNs) -> u64 {
    let ns = (at + ((1 << FRACTION_BITS) - 1)) >> FRACTION_BITS;
    u64::try_from(ns).expect("584 years of nanoseconds fit 64 bits")
}

fn serialisation(bytes: u64, rate_bps: u64) -> FixedNs {
    ((u128::from(bytes) * 8 * 1_000_000_000) << FRACTION_BITS) / u128::from(rate_bps)
}

/// What happened to a packet on arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict<P> {
    /// It is in the buffer or being serialised.
    Accepted,
    /// The random loss took it.
    Lost(P),
    /// The buffer was full.
    Dropped(P),
}

/// A packet that has crossed the link.
#[derive(Debug, PartialEq, Eq)]
pub struct Released<P> {
    /// The packet.
    pub packet: P,
    /// When its last bit arrives at the far end, in nanoseconds.
    pub due_ns: u64,
    /// How long it waited in the buffer before its first bit was sent, in nanoseconds.
    pub waited_ns: u64,
}

/// Counts of one direction. Always `arrived = lost + dropped + delivered + inside`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct PipeCounters {
    /// Packets that reached the link.
    pub arrived_packets: u64,
    /// Bytes that reached the link.
    pub arrived_bytes: u64,
    /// Packets taken by random loss.
    pub lost_packets: u64,
    /// Packets refused by the full buffer.
    pub dropped_packets: u64,
    /// Packets that crossed.
    pub delivered_packets: u64,
    /// Bytes that crossed.
    pub delivered_bytes: u64,
    /// Most bytes that waited at once.
    pub queue_max_bytes: u64,
}

#[derive(Debug)]
struct Waiting<P> {
    packet: P,
    arrived_ns: u64,
}

impl<P: LinkSized> LinkSized for Waiting<P> {
    fn link_bytes(&self) -> u64 {
        self.packet.link_bytes()
    }
}

#[derive(Debug)]
struct InService<P> {
    packet: P,
    waited_ns: u64,
    ends_at: FixedNs,
}

/// One direction of the link.
#[derive(Debug)]
pub struct Pipe<P> {
    config: PipeConfig,
    loss: LossDraw,
    queue: ByteFifo<Waiting<P>>,
    service: Option<InService<P>>,
    /// When the serialiser last became free.
    free_at: FixedNs,
    flight: VecDeque<Released<P>>,
    last_due_ns: u64,
    last_arrival_ns: u64,
    counters: PipeCounters,
}

impl<P: LinkSized> Pipe<P> {
    /// An idle link. `config` has been validated by the caller.
    #[must_use]
    pub fn new(config: PipeConfig, seed: u64) -> Self {
        Self {
            config,
            loss: LossDraw::new(config.loss, seed),
            queue: ByteFifo::new(config.buffer_bytes),
            service: None,
            free_at: 0,
            flight: VecDeque::new(),
            last_due_ns: 0,
            last_arrival_ns: 0,
            counters: PipeCounters::default(),
        }
    }

    /// A packet reaches the link at `at_ns`. Arrivals are in order of time; one that is stamped
    /// before its predecessor (another CPU's clock) counts as simultaneous with it.
    pub fn arrive(&mut self, at_ns: u64, packet: P) -> Verdict<P> {
        let at_ns = at_ns.max(self.last_arrival_ns);
        self.last_arrival_ns = at_ns;
        self.serve_until(fixed(at_ns));

        let bytes = packet.link_bytes();
        self.counters.arrived_packets += 1;
        self.counters.arrived_bytes += bytes;
        if self.loss.next() {
            self.counters.lost_packets += 1;
            return Verdict::Lost(packet);
        }
        if self.service.is_none() {
            // serve_until left nothing waiting, so the line is free from `free_at` on.
            self.begin(Waiting { packet, arrived_ns: at_ns }, fixed(at_ns).max(self.free_at));
            return Verdict::Accepted;
        }
        if let Err(refused) = self.queue.push(Waiting { packet, arrived_ns: at_ns }) {
            self.counters.dropped_packets += 1;
            return Verdict::Dropped(refused.packet);
        }
        self.counters.queue_max_bytes = self.counters.queue_max_bytes.max(self.queue.bytes());
        Verdict::Accepted
    }

    /// When the next packet is due at the far end, in nanoseconds; `None` while the link is empty.
    #[must_use]
    pub fn next_due_ns(&self) -> Option<u64> {
        match (self.flight.front(), &self.service) {
            (Some(front), _) => Some(front.due_ns),
            (None, Some(service)) => Some(self.due_ns(service.ends_at)),
            (None, None) => None,
        }
    }

    /// The next packet that is due at `now_ns` or before.
    ///
    /// Serves the buffer only as far as packets due by then need it: what is read late but stamped
    /// earlier still meets the buffer as it was at its own arrival.
    pub fn pop_due(&mut self, now_ns: u64) -> Option<Released<P>> {
        self.serve_until(fixed(now_ns.saturating_sub(self.config.delay_ns)));
        if self.flight.front()?.due_ns > now_ns {
            return None;
        }
        let released = self.flight.pop_front()?;
        self.counters.delivered_packets += 1;
        self.counters.delivered_bytes += released.packet.link_bytes();
        Some(released)
    }

    /// Changes the link at `now_ns`. The packet being serialised finishes at the new rate; packets
    /// already propagating keep their due times, and none overtakes another.
    pub fn reconfigure(&mut self, now_ns: u64, config: PipeConfig) {
        let now = fixed(now_ns);
        self.serve_until(now);
        if let Some(service) = &mut self.service {
            let begun = service.ends_at.saturating_sub(now);
            let left = begun * u128::from(self.config.rate_bps) / u128::from(config.rate_bps);
            service.ends_at = now + left;
        }
        self.queue.set_limit_bytes(config.buffer_bytes);
        self.loss.set_probability(config.loss);
        self.config = config;
    }

    /// What has been counted so far.
    #[must_use]
    pub fn counters(&self) -> PipeCounters {
        self.counters
    }

    /// Packets in the buffer, on the serialiser and propagating.
    #[must_use]
    pub fn inside_packets(&self) -> u64 {
        let waiting = self.queue.len() + usize::from(self.service.is_some());
        (waiting + self.flight.len()) as u64
    }

    /// Bytes waiting in the buffer.
    #[must_use]
    pub fn queue_bytes(&self) -> u64 {
        self.queue.bytes()
    }

    fn serve_until(&mut self, now: FixedNs) {
        while self.service.as_ref().is_some_and(|service| service.ends_at <= now) {
            let Some(done) = self.service.take() else { return };
            let due_ns = self.due_ns(done.ends_at);
            self.last_due_ns = due_ns;
            self.free_at = done.ends_at;
            self.flight.push_back(Released {
                packet: done.packet,
                due_ns,
                waited_ns: done.waited_ns,
            });
            if let Some(next) = self.queue.pop() {
                self.begin(next, done.ends_at);
            }
        }
    }

    fn begin(&mut self, next: Waiting<P>, at: FixedNs) {
        let ends_at = at + serialisation(next.packet.link_bytes(), self.config.rate_bps);
        let waited_ns = whole_ns(at).saturating_sub(next.arrived_ns);
        self.service = Some(InService { packet: next.packet, waited_ns, ends_at });
    }

    fn due_ns(&self, ends_at: FixedNs) -> u64 {
        (whole_ns(ends_at) + self.config.delay_ns).max(self.last_due_ns)
    }
}

/// Independent losses of a fixed probability.
#[derive(Debug)]
struct LossDraw {
    rng: Pcg64Mcg,
    /// A draw below this is a loss; `1 << 64` is always, 0 never.
    below: u128,
}

impl LossDraw {
    fn new(probability: f64, seed: u64) -> Self {
        let mut draw = Self { rng: Pcg64Mcg::seed_from_u64(seed), below: 0 };
        draw.set_probability(probability);
        draw
    }

    fn set_probability(&mut self, probability: f64) {
        // 2^64 as a float is exact; the product is within the cast's range for 0..=1.
        self.below = (probability * 18_446_744_073_709_551_616.0) as u128;
    }

    fn next(&mut self) -> bool {
        // Drawn even when nothing can be lost: changing the probability in flight leaves the
        // sequence of draws what it was.
        u128::from(self.rng.next_u64()) < self.below
    }
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
