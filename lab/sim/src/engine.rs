mod conservation;
mod players;

use std::time::Duration;

use millrace_cc::{Bandwidth, Time};
use rand_core::RngCore;

use crate::bottleneck::Bottleneck;
use crate::event_queue::{EventQueue, Item};
use crate::flow::FlowRun;
use crate::link::queue::LinkSized;
use crate::link::{ArrivalOutcome, PipeCounters};
use crate::outcome::ratio;
use crate::sender::Departure;
use crate::timers::{NEVER, Timers};
use crate::{
    FlowSample, HEADER_BYTES, LinkOutcome, LinkSample, Observer, Order, PacketDelivered,
    SegmentDone, Setup, SimulationOutcome, Supervisor,
};

/// A packet on the link.
#[derive(Clone, Copy, Debug)]
struct Packet {
    departure: Departure,
    flow: u32,
}

impl LinkSized for Packet {
    fn link_bytes(&self) -> u64 {
        self.departure.payload_bytes + HEADER_BYTES
    }
}

/// Indices of the timers: three shared ones, then four for each flow.
const EVENT_QUEUE: usize = 0;
const LINK: usize = 1;
const SUPERVISOR: usize = 2;
const SHARED: usize = 3;
const PER_FLOW: usize = 4;

/// Timers of a flow, in the order in which they fire at the same time.
#[derive(Clone, Copy)]
enum Of {
    /// An acknowledgement reaches the sender.
    Ack = 0,
    /// The longest delay of an acknowledgement is over.
    AckDelay = 1,
    /// Pacing, loss, probe or source.
    Sender = 2,
    /// The player, or what it asks for reaches the sender.
    Player = 3,
}

fn place(flow: usize, of: Of) -> usize {
    SHARED + flow * PER_FLOW + of as usize
}

/// A run under way.
pub(crate) struct Engine<'a> {
    setup: &'a Setup,
    observer: &'a mut dyn Observer,
    supervisor: &'a mut dyn Supervisor,
    now_ns: u64,
    timers: Timers,
    event_queue: EventQueue,
    bottleneck: Bottleneck<Packet>,
    /// Probability of loss of acknowledgements, as the bound of a draw of 64 bits.
    reverse_below: u128,
    flows: Vec<FlowRun>,
    samples: Vec<FlowSample>,
    at_warmup: (PipeCounters, u64),
    at_sample: (PipeCounters, u64),
}

impl<'a> Engine<'a> {
    /// `setup` has been validated.
    pub(crate) fn new(
        setup: &'a Setup,
        observer: &'a mut dyn Observer,
        supervisor: &'a mut dyn Supervisor,
    ) -> Self {
        let flows: Vec<_> = (0..).zip(&setup.flows).collect();
        let run = |(index, flow): &(usize, &_)| {
            FlowRun::new(setup, *index, flow, supervisor.watches(*index))
        };
        let runs: Vec<FlowRun> = flows.iter().map(run).collect();
        Self {
            setup,
            observer,
            supervisor,
            now_ns: 0,
            timers: Timers::new(SHARED + PER_FLOW * flows.len()),
            event_queue: EventQueue::new(setup),
            bottleneck: Bottleneck::new(setup, 0),
            reverse_below: below(setup.link.loss_reverse),
            flows: runs,
            samples: vec![FlowSample::default(); flows.len()],
            at_warmup: Default::default(),
            at_sample: Default::default(),
        }
    }

    pub(crate) fn run(mut self) -> SimulationOutcome {
        let end_ns = self.setup.duration.as_nanos() as u64;
        self.timers.set(EVENT_QUEUE, self.event_queue.next_ns());
        if self.flows.iter().any(|flow| flow.is_watched) {
            self.timers.set(SUPERVISOR, 0);
        }
        loop {
            let (at_ns, place) = self.timers.first();
            if at_ns >= end_ns {
                break;
            }
            self.now_ns = at_ns;
            match place {
                EVENT_QUEUE => {
                    self.on_scheduled_events();
                    if self.observer.is_satisfied() {
                        return self.outcome();
                    }
                }
                LINK => self.on_link(),
                SUPERVISOR => self.on_supervisor(),
                _ => {
                    let (flow, of) = ((place - SHARED) / PER_FLOW, (place - SHARED) % PER_FLOW);
                    match of {
                        of if of == Of::Ack as usize => self.on_acks(flow),
                        of if of == Of::AckDelay as usize => self.acknowledge(flow),
                        of if of == Of::Player as usize => self.on_player(flow),
                        _ => self.drive(flow),
                    }
                }
            }
        }
        self.now_ns = end_ns;
        // A sample at the very end is due; other events at that time are not.
        if self.event_queue.next_ns() == end_ns && end_ns.is_multiple_of(self.sample_ns()) {
            self.sample();
        }
        self.assert_conserved();
        self.outcome()
    }

    fn now(&self) -> Time {
        Time::from_nanos(self.now_ns)
    }

    fn sample_ns(&self) -> u64 {
        self.setup.sample_every.as_nanos() as u64
    }

    fn on_scheduled_events(&mut self) {
        while let Some(item) = self.event_queue.pop(self.now_ns) {
            match item {
                Item::Change(change) => {
                    self.bottleneck.change(self.now_ns, &change);
                    self.changed();
                }
                Item::Redraw => {
                    self.bottleneck.redraw(self.now_ns);
                    self.changed();
                }
                Item::Start(flow) => {
                    self.flows[flow].started = true;
                    let now = self.now();
                    if self.flows[flow].is_watched {
                        self.supervisor.started(flow, now);
                    }
                    self.drive(flow);
                    self.schedule_player(flow);
                }
                Item::Stop(flow) => {
                    self.flows[flow].sender.stop();
                    self.timers.set(place(flow, Of::Sender), NEVER);
                    self.timers.set(place(flow, Of::Player), NEVER);
                }
                Item::Ask(flow, order) => {
                    let now = self.now();
                    let sender = &mut self.flows[flow].sender;
                    match order {
                        Order::Tune(tuning) => sender.tune(tuning),
                        Order::Migrate(to) => sender.migrate(now, &*to),
                    }
                    if self.flows[flow].started {
                        self.drive(flow);
                    }
                }
                Item::WarmedUp => {
                    let _ = self.bottleneck.pipe.queue_bytes_at(self.now_ns);
                    let capacity_bytes = self.bottleneck.pipe.capacity_bytes(self.now_ns);
                    self.at_warmup = (self.bottleneck.pipe.counters(), capacity_bytes);
                    self.flows.iter_mut().for_each(FlowRun::on_warmed_up);
                }
                Item::Sample => self.sample(),
            }
        }
        self.timers.set(EVENT_QUEUE, self.event_queue.next_ns());
    }

    fn on_supervisor(&mut self) {
        let now = self.now();
        for (index, to) in self.supervisor.evaluate(now) {
            self.flows[index].sender.migrate(now, &*to);
            self.drive(index);
        }
        let wait_ns = self.supervisor.interval().as_nanos() as u64;
        self.timers.set(SUPERVISOR, self.now_ns + wait_ns.max(1));
    }

    /// After the bottleneck has changed.
    fn changed(&mut self) {
        self.reverse_below = below(self.bottleneck.link().loss_reverse);
        self.schedule_link();
    }

    fn schedule_link(&mut self) {
        self.timers.set(LINK, self.bottleneck.pipe.next_due_ns().unwrap_or(NEVER));
    }

    fn on_link(&mut self) {
        while let Some(released) = self.bottleneck.pipe.pop_due(self.now_ns) {
            self.deliver(&released.packet, released.waited_ns);
        }
        self.schedule_link();
    }

    fn deliver(&mut self, packet: &Packet, waited_ns: u64) {
        let index = packet.flow as usize;
        let flow = &mut self.flows[index];
        let Departure { number, unit, payload_bytes, at: sent } = packet.departure;
        let (at_once, is_new) = flow.receiver.on_packet(self.now_ns, number, unit);
        flow.counts.delivered += 1;
        flow.counts.delivered_bytes += packet.link_bytes();
        flow.queueing.record(waited_ns);
        self.observer.delivered(&PacketDelivered {
            flow: index,
            sent,
            at: Time::from_nanos(self.now_ns),
            bytes: packet.link_bytes(),
            waited: Duration::from_nanos(waited_ns),
        });
        if is_new {
            flow.counts.goodput_bytes += payload_bytes;
            self.on_new_data(index);
        }
        if at_once {
            self.acknowledge(index);
        } else {
            let deadline_ns = self.flows[index].receiver.deadline_ns();
            self.timers.set(place(index, Of::AckDelay), deadline_ns.unwrap_or(NEVER));
        }
    }

    /// Time of a flow's acknowledgements and requests on the way back. Both ways together are the round trip, odd
    /// nanosecond included.
    fn back_ns(&self, index: usize) -> u64 {
        let rtt_ns = self.bottleneck.link().rtt.as_nanos() as u64;
        rtt_ns - rtt_ns / 2 + self.flows[index].extra_rtt_ns
    }

    fn on_new_data(&mut self, index: usize) {
        self.give_to_player(index);
        let flow = &mut self.flows[index];
        // A flow's own propagation is entirely on the return path. Only the receiver's times differ: they are
        // earlier by half of it.
        let completed = Time::from_nanos(self.now_ns + flow.extra_rtt_ns / 2);
        flow.count_frames(completed);
        let Some(request) = flow.completed_segment() else { return };
        flow.counts.segments += 1;
        flow.segment_time.record((completed - request.requested).as_nanos() as u64);
        self.observer.segment(&SegmentDone {
            flow: index,
            number: request.number,
            due: request.due,
            requested: request.requested,
            completed,
        });
    }

    fn acknowledge(&mut self, index: usize) {
        let back_ns = self.back_ns(index);
        let flow = &mut self.flows[index];
        let lost = u128::from(flow.reverse_loss.next_u64()) < self.reverse_below;
        flow.receiver.acknowledge(self.now_ns, back_ns, lost);
        self.timers.set(place(index, Of::AckDelay), NEVER);
        let next_ns = flow.receiver.next_ack_ns();
        self.timers.set(place(index, Of::Ack), next_ns.unwrap_or(NEVER));
    }

    fn on_acks(&mut self, index: usize) {
        let now = self.now();
        let flow = &mut self.flows[index];
        while let Some((ack, numbers)) = flow.receiver.pop_ack(self.now_ns) {
            if flow.sender.is_stopped() {
                continue;
            }
            let samples = flow.sender.counts;
            flow.sender.on_ack(now, &ack, numbers);
            if flow.is_watched {
                self.supervisor.ingest(index, now, flow.sender.path());
            }
            if flow.sender.counts.rtt_samples > samples.rtt_samples {
                flow.rtt.record(flow.sender.counts.rtt_sum_ns - samples.rtt_sum_ns);
            }
        }
        let next_ns = flow.receiver.next_ack_ns();
        self.timers.set(place(index, Of::Ack), next_ns.unwrap_or(NEVER));
        self.drive(index);
    }

    /// Runs a sender until it has nothing more to do at the current time.
    fn drive(&mut self, index: usize) {
        let now = self.now();
        let flow = &mut self.flows[index];
        if !flow.is_active() {
            self.timers.set(place(index, Of::Sender), NEVER);
            return;
        }
        flow.sender.advance_to(now);
        let mut sent = false;
        while let Some(departure) = flow.sender.send(now) {
            sent = true;
            let packet = Packet { departure, flow: index as u32 };
            match self.bottleneck.pipe.arrive(self.now_ns, packet) {
                ArrivalOutcome::Accepted => {}
                ArrivalOutcome::Lost(_) => flow.counts.random_lost += 1,
                ArrivalOutcome::Dropped(_) => flow.counts.dropped += 1,
            }
        }
        // Everything that is due now is done: the next wake-up is later.
        let wake_ns = flow.next_wake_ns().map_or(NEVER, |at_ns| at_ns.max(self.now_ns + 1));
        self.timers.set(place(index, Of::Sender), wake_ns);
        if sent {
            self.schedule_link();
        }
    }

    fn sample(&mut self) {
        let every = self.setup.sample_every;
        let queue_bytes = self.bottleneck.pipe.queue_bytes_at(self.now_ns);
        let (counters, capacity_bytes) =
            (self.bottleneck.pipe.counters(), self.bottleneck.pipe.capacity_bytes(self.now_ns));
        let (before, capacity_before) =
            std::mem::replace(&mut self.at_sample, (counters, capacity_bytes));
        let rate = |bytes| Bandwidth::from_bytes_and_time(bytes, every);
        let link = LinkSample {
            capacity: rate(capacity_bytes - capacity_before),
            throughput: rate(counters.delivered_bytes - before.delivered_bytes),
            queue_bytes,
            dropped_packets: counters.dropped_packets - before.dropped_packets,
            rtt: self.bottleneck.link().rtt,
            loss: self.bottleneck.link().loss,
        };
        let now = self.now();
        for (flow, sample) in self.flows.iter_mut().zip(&mut self.samples) {
            flow.sample(now, every, sample);
        }
        self.observer.sample(Time::from_nanos(self.now_ns), &link, &self.samples);
    }

    fn outcome(&self) -> SimulationOutcome {
        let (total, capacity_bytes) =
            (self.bottleneck.pipe.counters(), self.bottleneck.pipe.capacity_bytes(self.now_ns));
        let (before, capacity_before) = &self.at_warmup;
        let capacity_bytes = capacity_bytes - capacity_before;
        let delivered_bytes = total.delivered_bytes - before.delivered_bytes;
        let flows = self.flows.iter().zip(&self.setup.flows);
        SimulationOutcome {
            link: LinkOutcome {
                capacity_bytes,
                delivered_bytes,
                utilisation: ratio(delivered_bytes, capacity_bytes),
                arrived_packets: total.arrived_packets - before.arrived_packets,
                delivered_packets: total.delivered_packets - before.delivered_packets,
                dropped_packets: total.dropped_packets - before.dropped_packets,
                random_lost_packets: total.lost_packets - before.lost_packets,
                inside_packets: self.bottleneck.pipe.inside_packets(),
                queue_max_bytes: total.queue_max_bytes,
            },
            flows: flows.map(|(run, flow)| run.outcome(self.setup, flow)).collect(),
            simulated_packets: total.arrived_packets,
        }
    }
}

fn below(probability: f64) -> u128 {
    // 2^64 as a float is exact; the product is within the cast's range for 0..=1.
    (probability * 18_446_744_073_709_551_616.0) as u128
}
