//! A path in virtual time, packet by packet: senders with a QUIC-like loss recovery, one
//! bottleneck with a drop-tail queue, chance loss, and receivers that acknowledge every
//! second packet. The same seed gives the same run.

mod sender;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use millrace_cc::{Bandwidth, Controller, ControllerConfig, PathStart, Time};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use sender::Sender;

/// Size of every packet.
pub const PACKET_BYTES: u64 = 1350;
/// Longest that a receiver holds an acknowledgement back (RFC 9000, Section 18.2).
pub const MAX_ACK_DELAY: Duration = Duration::from_millis(25);

/// The bottleneck and what surrounds it.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub rate: Bandwidth,
    pub rtt: Duration,
    pub buffer_bytes: u64,
    pub loss: f64,
    /// Each packet is late by up to this, evenly; order is kept.
    pub jitter: Duration,
    /// A receiver acknowledges after so many packets.
    pub ack_every: u32,
}

impl Link {
    pub fn new(mbps: f64, rtt_ms: f64, buffer_bytes: u64, loss: f64) -> Self {
        Self {
            rate: Bandwidth::from_mbps(mbps),
            rtt: Duration::from_secs_f64(rtt_ms / 1e3),
            buffer_bytes,
            loss,
            jitter: Duration::ZERO,
            ack_every: 2,
        }
    }
}

/// What a flow has to send.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    /// More than it can.
    Bulk,
    /// This many bytes each period; the next ones wait until the last have arrived.
    Segments { bytes: u64, period: Duration },
    /// Packets at a constant rate.
    Constant { rate: Bandwidth },
}

/// One flow's record.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// Moment at the receiver and bytes, per packet.
    pub arrivals: Vec<(Time, u64)>,
    /// Seconds from request to complete arrival, per segment.
    pub segment_s: Vec<f64>,
    /// Moment and pacing rate in Mbit/s, at each change of it.
    pub rates: Vec<(Time, f64)>,
    pub sent_packets: u64,
    pub lost_packets: u64,
}

impl Record {
    /// Goodput between two moments, in seconds.
    pub fn mbps(&self, from_s: f64, to_s: f64) -> f64 {
        let inside = |at: &Time| (from_s..to_s).contains(&at.as_secs_f64());
        let bytes: u64 =
            self.arrivals.iter().filter(|(at, _)| inside(at)).map(|(_, bytes)| bytes).sum();
        bytes as f64 * 8.0 / 1e6 / (to_s - from_s)
    }

    pub fn loss(&self) -> f64 {
        self.lost_packets as f64 / self.sent_packets.max(1) as f64
    }
}

/// What happened in a run.
#[derive(Debug, Default)]
pub struct Run {
    pub flows: Vec<Record>,
    /// Moment and queueing delay of each packet that the bottleneck took.
    pub queueing: Vec<(Time, Duration)>,
}

impl Run {
    /// 95th percentile of the queueing delay after `from_s`, in milliseconds.
    pub fn p95_queueing_ms(&self, from_s: f64) -> f64 {
        let after = self.queueing.iter().filter(|(at, _)| at.as_secs_f64() >= from_s);
        let mut delays: Vec<_> = after.map(|(_, delay)| delay.as_secs_f64() * 1e3).collect();
        delays.sort_by(f64::total_cmp);
        delays.get(delays.len() * 95 / 100).copied().unwrap_or(0.0)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A packet reaches the receiver.
    Arrival { flow: usize, number: u64 },
    /// An acknowledgement reaches the sender.
    Ack { flow: usize, numbers: Vec<u64> },
    /// A held-back acknowledgement is due.
    AckTimer { flow: usize, round: u64 },
    /// Pacing, loss timer or source may have something to do.
    Wake { flow: usize },
    /// The link becomes the n-th of the schedule.
    Change { to: usize },
}

#[derive(Debug, Default)]
struct Receiver {
    unacked: Vec<u64>,
    expected: u64,
    round: u64,
}

/// Runs flows over a link.
pub struct Path {
    link: Link,
    schedule: Vec<(f64, Link)>,
    now: Time,
    order: u64,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    rng: Pcg64Mcg,
    free_at: Time,
    last_arrival: Time,
    senders: Vec<Sender>,
    receivers: Vec<Receiver>,
    run: Run,
}

impl Path {
    pub fn new(link: Link, seed: u64) -> Self {
        Self {
            link,
            schedule: Vec::new(),
            now: Time::ZERO,
            order: 0,
            events: BinaryHeap::new(),
            rng: Pcg64Mcg::seed_from_u64(seed),
            free_at: Time::ZERO,
            last_arrival: Time::ZERO,
            senders: Vec::new(),
            receivers: Vec::new(),
            run: Run::default(),
        }
    }

    /// Lets the link become another one.
    pub fn change(mut self, at_s: f64, link: Link) -> Self {
        self.schedule.push((at_s, link));
        self
    }

    /// Adds a flow that starts at `start_s`.
    pub fn flow(mut self, config: &dyn ControllerConfig, source: Source, start_s: f64) -> Self {
        let at = Time::ZERO + Duration::from_secs_f64(start_s);
        let start = PathStart {
            mtu_bytes: PACKET_BYTES,
            initial_window_bytes: 10 * PACKET_BYTES,
            initial_rtt: Duration::from_millis(333),
            seed: self.rng.next_u64(),
        };
        let controller: Box<dyn Controller> = config.build(at, &start);
        self.senders.push(Sender::new(controller, source, at));
        self.receivers.push(Receiver::default());
        self.run.flows.push(Record::default());
        let flow = self.senders.len() - 1;
        self.at(at, Event::Wake { flow });
        self
    }

    fn at(&mut self, time: Time, event: Event) {
        self.order += 1;
        self.events.push(Reverse((time, self.order, event)));
    }

    /// Runs for `duration_s` seconds.
    pub fn run(mut self, duration_s: f64) -> Run {
        for to in 0..self.schedule.len() {
            let at = Time::ZERO + Duration::from_secs_f64(self.schedule[to].0);
            self.at(at, Event::Change { to });
        }
        let end = Time::ZERO + Duration::from_secs_f64(duration_s);
        while let Some(Reverse((time, _, event))) = self.events.pop() {
            if time > end {
                break;
            }
            self.now = time;
            self.on(event);
        }
        for (sender, record) in self.senders.iter_mut().zip(&mut self.run.flows) {
            let Record { arrivals, .. } = std::mem::take(record);
            *record = Record { arrivals, ..std::mem::take(&mut sender.record) };
        }
        self.run
    }

    fn on(&mut self, event: Event) {
        match event {
            Event::Change { to } => self.link = self.schedule[to].1,
            Event::Arrival { flow, number } => self.on_arrival(flow, number),
            Event::AckTimer { flow, round } => {
                if self.receivers[flow].round == round {
                    self.acknowledge(flow);
                }
            }
            Event::Ack { flow, numbers } => {
                self.senders[flow].on_ack(self.now, &numbers);
                self.drive(flow);
            }
            Event::Wake { flow } => {
                // Later wake-ups than the one that is asked for are stale.
                if self.senders[flow].wake_at == Some(self.now)
                    || self.senders[flow].wake_at.is_none()
                {
                    self.senders[flow].wake_at = None;
                    self.drive(flow);
                }
            }
        }
    }

    fn drive(&mut self, flow: usize) {
        self.senders[flow].on_time(self.now);
        while let Some(number) = self.senders[flow].send(self.now) {
            self.transmit(flow, number);
        }
        if let Some(wake) = self.senders[flow].next_wake(self.now)
            && self.senders[flow].wake_at.is_none_or(|at| wake < at)
        {
            self.senders[flow].wake_at = Some(wake);
            self.at(wake, Event::Wake { flow });
        }
    }

    fn chance(&mut self) -> f64 {
        (self.rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn transmit(&mut self, flow: usize, number: u64) {
        let waits = self.free_at.since(self.now);
        if self.link.rate.bytes_in(waits) + PACKET_BYTES > self.link.buffer_bytes.max(PACKET_BYTES)
        {
            return;
        }
        self.run.queueing.push((self.now, waits));
        self.free_at = self.free_at.max(self.now) + self.link.rate.time_for(PACKET_BYTES);
        if self.chance() < self.link.loss {
            return;
        }
        let late = self.link.jitter.mul_f64(self.chance());
        let arrival = (self.free_at + self.link.rtt / 2 + late).max(self.last_arrival);
        self.last_arrival = arrival;
        self.at(arrival, Event::Arrival { flow, number });
    }

    fn on_arrival(&mut self, flow: usize, number: u64) {
        self.run.flows[flow].arrivals.push((self.now, PACKET_BYTES));
        let receiver = &mut self.receivers[flow];
        let in_order = number == receiver.expected;
        receiver.expected = number + 1;
        receiver.unacked.push(number);
        if !in_order || receiver.unacked.len() >= self.link.ack_every as usize {
            self.acknowledge(flow);
        } else if receiver.unacked.len() == 1 {
            let round = receiver.round;
            self.at(self.now + MAX_ACK_DELAY, Event::AckTimer { flow, round });
        }
    }

    fn acknowledge(&mut self, flow: usize) {
        let receiver = &mut self.receivers[flow];
        receiver.round += 1;
        let numbers = std::mem::take(&mut receiver.unacked);
        self.at(self.now + self.link.rtt / 2, Event::Ack { flow, numbers });
    }
}
