//! The emulated link in virtual time: no clock, no I/O.
//!
//! A packet passes, in this order, random loss, a byte-limited drop-tail FIFO, a serialiser (of a
//! constant rate or a trace), and propagation with jitter. All times derive from the packet's arrival,
//! never from the time of a call: a late wake-up delays one release and shifts no later packet.

use std::collections::VecDeque;
use std::sync::Arc;

use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Serialize;

use super::config::PipeConfig;
use super::queue::{ByteFifo, LinkSized};
use super::schedule::{self, FixedNs, Schedule, TransmissionSlot, Work, fixed, whole_ns};
use crate::trace::RateTrace;

/// Outcome of a packet's arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArrivalOutcome<P> {
    /// It is in the buffer or being serialised.
    Accepted,
    /// It was lost at random.
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
    /// Packets lost at random.
    pub lost_packets: u64,
    /// Packets dropped by the full buffer.
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
    waiting: Waiting<P>,
    /// When its first bit left; a later change of the rate does not change that.
    began_at: FixedNs,
    /// The work to be carried in `slot`.
    work: Work,
    slot: TransmissionSlot,
    late_ns: u64,
}

/// One direction of the link.
#[derive(Debug)]
pub struct Pipe<P> {
    config: PipeConfig,
    schedule: Schedule,
    loss: LossDraw,
    jitter_rng: Pcg64Mcg,
    queue: ByteFifo<Waiting<P>>,
    service: Option<InService<P>>,
    /// When the serialiser last became free.
    free_at: FixedNs,
    flight: VecDeque<Released<P>>,
    last_due_ns: u64,
    last_arrival_ns: u64,
    counters: PipeCounters,
    /// Capacity before the current schedule.
    past_capacity: Work,
    /// When the current schedule started.
    schedule_since: FixedNs,
}

/// Jitter draws from its own generator, so that it does not change which packets are lost.
const JITTER_SEED: u64 = 0x6a69_7474_6572;

impl<P: LinkSized> Pipe<P> {
    /// An idle link. The caller has validated `config`.
    #[must_use]
    pub fn new(config: PipeConfig, seed: u64) -> Self {
        Self {
            config,
            schedule: Schedule::constant(config.rate_bps),
            loss: LossDraw::new(config.loss, seed),
            jitter_rng: Pcg64Mcg::seed_from_u64(seed ^ JITTER_SEED),
            queue: ByteFifo::new(config.buffer_bytes),
            service: None,
            free_at: 0,
            flight: VecDeque::new(),
            last_due_ns: 0,
            last_arrival_ns: 0,
            counters: PipeCounters::default(),
            past_capacity: 0,
            schedule_since: 0,
        }
    }

    /// A packet reaches the link at `at_ns`. Arrivals are in order of time; one that is stamped
    /// before its predecessor (another CPU's clock) counts as simultaneous with it.
    pub fn arrive(&mut self, at_ns: u64, packet: P) -> ArrivalOutcome<P> {
        let at_ns = at_ns.max(self.last_arrival_ns);
        self.last_arrival_ns = at_ns;
        let at = fixed(at_ns);
        self.serve_until(at);

        let bytes = packet.link_bytes();
        self.counters.arrived_packets += 1;
        self.counters.arrived_bytes += bytes;
        if self.loss.next() {
            self.counters.lost_packets += 1;
            return ArrivalOutcome::Lost(packet);
        }
        let waiting = Waiting { packet, arrived_ns: at_ns };
        if self.service.is_none() {
            if self.schedule.is_opportunities() && bytes > self.config.buffer_bytes {
                self.counters.dropped_packets += 1;
                return ArrivalOutcome::Dropped(waiting.packet);
            }
            // serve_until left nothing waiting, so the line is free from `free_at` on.
            self.schedule.on_idle();
            self.begin(waiting, at.max(self.free_at));
            self.note_queue(at);
            return ArrivalOutcome::Accepted;
        }
        if let Err(refused) = self.queue.push_beside(waiting, self.unbegun_bytes(at)) {
            self.counters.dropped_packets += 1;
            return ArrivalOutcome::Dropped(refused.packet);
        }
        self.note_queue(at);
        ArrivalOutcome::Accepted
    }

    /// When the next packet may be due at the far end, in nanoseconds; `None` while the link is
    /// empty. Exact unless packets may be reordered.
    #[must_use]
    pub fn next_due_ns(&self) -> Option<u64> {
        let on_the_line = |service: &InService<P>| match self.config.reorder {
            // A packet behind it may have less jitter and come first.
            true => whole_ns(service.slot.ends_at) + self.config.delay_ns,
            false => self.due_ns(service),
        };
        match (self.flight.front(), &self.service) {
            (Some(front), Some(service)) if self.config.reorder => {
                Some(front.due_ns.min(on_the_line(service)))
            }
            (Some(front), _) => Some(front.due_ns),
            (None, Some(service)) => Some(on_the_line(service)),
            (None, None) => None,
        }
    }

    /// The next packet that is due at `now_ns` or before.
    ///
    /// Serves the buffer only as far as packets due by then need it: a packet that is read late but stamped
    /// earlier still meets the buffer of its own arrival time.
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
    /// already propagating keep their due times, and none overtakes another. A trace stays in force
    /// unless `rate_bps` changes.
    pub fn reconfigure(&mut self, now_ns: u64, config: PipeConfig) {
        self.serve_until(fixed(now_ns));
        self.queue.set_limit_bytes(config.buffer_bytes);
        self.loss.set_probability(config.loss);
        let before = std::mem::replace(&mut self.config, config);
        if before.rate_bps != config.rate_bps {
            self.set_schedule(now_ns, Schedule::constant(config.rate_bps));
        }
    }

    /// Serialises at `rate_bps` from `now_ns` on.
    pub fn set_rate(&mut self, now_ns: u64, rate_bps: u64) {
        self.config.rate_bps = rate_bps;
        self.set_schedule(now_ns, Schedule::constant(rate_bps));
    }

    /// Serialises at the rates of `trace`, which starts at `now_ns`.
    pub fn follow(&mut self, now_ns: u64, trace: Arc<RateTrace>) {
        self.set_schedule(now_ns, Schedule::trace(trace, now_ns));
    }

    fn set_schedule(&mut self, now_ns: u64, schedule: Schedule) {
        let now = fixed(now_ns);
        self.serve_until(now);
        self.past_capacity += self.schedule.capacity(self.schedule_since, now);
        self.schedule_since = now;
        let old = std::mem::replace(&mut self.schedule, schedule);
        if let Some(service) = &mut self.service {
            let begun = service.slot.starts_at <= now;
            service.work = old.left(&service.slot, service.work, now);
            service.slot = self.schedule.plan(now, service.work);
            if !begun {
                service.began_at = service.slot.starts_at;
            }
        }
    }

    /// The current configuration.
    #[must_use]
    pub fn config(&self) -> PipeConfig {
        self.config
    }

    /// Bytes that the link could have carried until `now_ns`.
    #[must_use]
    pub fn capacity_bytes(&self, now_ns: u64) -> u64 {
        let present = self.schedule.capacity(self.schedule_since, fixed(now_ns));
        schedule::bytes(self.past_capacity + present)
    }

    /// The counts so far.
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

    /// The packets in the buffer, on the serialiser and propagating.
    pub fn inside(&self) -> impl Iterator<Item = &P> {
        let waiting = self.queue.iter().chain(self.service.as_ref().map(|held| &held.waiting));
        let flight = self.flight.iter().map(|released| &released.packet);
        waiting.map(|waiting| &waiting.packet).chain(flight)
    }

    /// Bytes waiting in the buffer at the time of the last arrival or release.
    #[must_use]
    pub fn queue_bytes(&self) -> u64 {
        self.queue.bytes() + self.unbegun_bytes(fixed(self.last_arrival_ns))
    }

    /// Bytes waiting in the buffer at `now_ns`. No packet may arrive before that time afterwards.
    pub fn queue_bytes_at(&mut self, now_ns: u64) -> u64 {
        self.serve_until(fixed(now_ns));
        self.queue.bytes() + self.unbegun_bytes(fixed(now_ns))
    }

    /// The next packet on the line, if it still waits in the buffer for its first bit to leave.
    fn unbegun_bytes(&self, now: FixedNs) -> u64 {
        let unbegun = self.service.as_ref().filter(|service| service.slot.starts_at > now);
        unbegun.map_or(0, |service| service.waiting.link_bytes())
    }

    fn note_queue(&mut self, now: FixedNs) {
        let bytes = self.queue.bytes() + self.unbegun_bytes(now);
        self.counters.queue_max_bytes = self.counters.queue_max_bytes.max(bytes);
    }

    fn serve_until(&mut self, now: FixedNs) {
        while self.service.as_ref().is_some_and(|service| service.slot.ends_at <= now) {
            let Some(done) = self.service.take() else { return };
            let due_ns = self.due_ns(&done);
            self.free_at = done.slot.ends_at;
            let waited_ns = whole_ns(done.began_at).saturating_sub(done.waiting.arrived_ns);
            self.fly(Released { packet: done.waiting.packet, due_ns, waited_ns });
            if let Some(next) = self.queue.pop() {
                self.begin(next, self.free_at);
            }
        }
    }

    fn begin(&mut self, waiting: Waiting<P>, at: FixedNs) {
        let work = schedule::work(waiting.packet.link_bytes());
        let slot = self.schedule.plan(at, work);
        let late_ns = self.draw_jitter_ns();
        self.service = Some(InService { waiting, began_at: slot.starts_at, work, slot, late_ns });
    }

    fn fly(&mut self, released: Released<P>) {
        self.last_due_ns = self.last_due_ns.max(released.due_ns);
        if self.flight.back().is_none_or(|last| last.due_ns <= released.due_ns) {
            self.flight.push_back(released);
            return;
        }
        let place = self.flight.partition_point(|other| other.due_ns <= released.due_ns);
        self.flight.insert(place, released);
    }

    fn due_ns(&self, service: &InService<P>) -> u64 {
        let due_ns = whole_ns(service.slot.ends_at) + self.config.delay_ns + service.late_ns;
        if self.config.reorder { due_ns } else { due_ns.max(self.last_due_ns) }
    }

    /// A delay from zero to the jitter, inclusive, evenly distributed.
    fn draw_jitter_ns(&mut self) -> u64 {
        if self.config.jitter_ns == 0 {
            return 0;
        }
        let draw = u128::from(self.jitter_rng.next_u64());
        ((draw * (u128::from(self.config.jitter_ns) + 1)) >> 64) as u64
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
        // Drawn even at probability zero, so that a change of the probability does not shift the
        // sequence of draws.
        u128::from(self.rng.next_u64()) < self.below
    }
}

#[cfg(test)]
#[path = "pipe_tests.rs"]
mod tests;
