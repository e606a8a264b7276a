//! The record of a run at the link: totals of each flow, and samples.

use std::collections::HashMap;
use std::time::Duration;

use millrace_cc::Bandwidth;
use millrace_sim::link::queue::LinkSized;
use millrace_sim::link::{ArrivalOutcome, PipeCounters, Released};
use millrace_sim::{Bottleneck, DelayTally, Delays, EventQueue, Item, LinkOutcome, LinkSample};

use super::frame::EthernetFrame;
use super::plan::LinkPlan;

/// Flow number of packets that belong to no flow.
pub(super) const NO_FLOW: u32 = u32::MAX;

/// A packet on the link.
#[derive(Debug)]
pub(super) struct LinkPacket {
    pub(super) frame: EthernetFrame,
    pub(super) flow: u32,
}

impl LinkSized for LinkPacket {
    fn link_bytes(&self) -> u64 {
        self.frame.link_bytes()
    }
}

/// The record of a run.
#[derive(Debug, Clone, Default)]
pub struct LinkTrace {
    /// The bottleneck after the warm-up.
    pub link: LinkOutcome,
    /// The flows after the warm-up, in the order of the plan.
    pub flows: Vec<FlowTotals>,
    /// From the beginning on, warm-up included.
    pub samples: Vec<EmulatedLinkSample>,
}

/// A flow's packets in the direction of its data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlowTotals {
    /// Packets that reached the link.
    pub sent_packets: u64,
    /// Packets that left it at the receiver's end.
    pub delivered_packets: u64,
    /// The same in bytes of the network layer.
    pub delivered_bytes: u64,
    /// Packets that the full buffer refused.
    pub dropped_packets: u64,
    /// Packets lost at random.
    pub random_lost_packets: u64,
    /// Time in the buffer.
    pub queueing: Delays,
}

/// Figures of the time since the previous sample.
#[derive(Debug, Clone, PartialEq)]
pub struct EmulatedLinkSample {
    /// Of the bottleneck.
    pub link: LinkSample,
    /// Of the flows, in the order of the plan.
    pub flows: Vec<FlowShare>,
}

/// A flow's part of a sample.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlowShare {
    /// Bytes of the network layer that left the link.
    pub delivered_bytes: u64,
    /// Packets that reached it.
    pub sent_packets: u64,
    /// Of these, packets dropped by the buffer or lost at random.
    pub gone_packets: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct PacketCounts {
    sent: u64,
    delivered: u64,
    delivered_bytes: u64,
    dropped: u64,
    lost: u64,
}

#[derive(Debug, Default)]
struct FlowTally {
    counts: PacketCounts,
    at_warmup: PacketCounts,
    at_sample: PacketCounts,
    queueing: DelayTally,
}

/// Records a run while it lasts.
pub(super) struct RunRecorder {
    plan: LinkPlan,
    by_host: HashMap<u32, u32>,
    event_queue: EventQueue,
    began_ns: Option<u64>,
    over: bool,
    tallies: Vec<FlowTally>,
    /// Counters and capacity of the bottleneck.
    at_warmup: (PipeCounters, u64),
    at_sample: (PipeCounters, u64),
    trace: LinkTrace,
}

impl RunRecorder {
    pub(super) fn new(plan: LinkPlan) -> Self {
        let hosts = (0..).zip(&plan.flows).map(|(index, flow)| (flow.host, index));
        Self {
            by_host: hosts.collect(),
            event_queue: EventQueue::new(&plan.setup),
            began_ns: None,
            over: false,
            tallies: plan.flows.iter().map(|_| FlowTally::default()).collect(),
            at_warmup: Default::default(),
            at_sample: Default::default(),
            trace: LinkTrace::default(),
            plan,
        }
    }

    /// From `now_ns` on the run is under way.
    pub(super) fn begin(&mut self, now_ns: u64, bottleneck: &mut Bottleneck<LinkPacket>) {
        bottleneck.begin_trace(now_ns);
        let state = (bottleneck.pipe.counters(), bottleneck.pipe.capacity_bytes(now_ns));
        (self.at_warmup, self.at_sample) = (state, state);
        self.tallies.iter_mut().for_each(|tally| *tally = FlowTally::default());
        self.began_ns = Some(now_ns);
    }

    fn is_under_way(&self) -> bool {
        self.began_ns.is_some() && !self.over
    }

    /// Which flow a frame belongs to that goes to the client's side (`downwards`) or to the server's.
    pub(super) fn flow_of(&self, frame: &EthernetFrame, downwards: bool) -> u32 {
        if self.by_host.is_empty() {
            return NO_FLOW;
        }
        let host = frame.addresses().map(|[from, to]| if downwards { from } else { to });
        host.and_then(|host| self.by_host.get(&host)).copied().unwrap_or(NO_FLOW)
    }

    /// The flow's extra propagation.
    pub(super) fn extra_ns(&self, flow: u32) -> u64 {
        let flow = self.plan.flows.get(flow as usize);
        flow.map_or(0, |flow| flow.extra_rtt.as_nanos() as u64)
    }

    fn tally(&mut self, flow: u32, downwards: bool) -> Option<&mut FlowTally> {
        let index = flow as usize;
        let is_data = self.plan.flows.get(index)?.upwards != downwards;
        if is_data && self.is_under_way() { self.tallies.get_mut(index) } else { None }
    }

    pub(super) fn arrived<P>(&mut self, flow: u32, downwards: bool, verdict: &ArrivalOutcome<P>) {
        let Some(FlowTally { counts, .. }) = self.tally(flow, downwards) else { return };
        counts.sent += 1;
        match verdict {
            ArrivalOutcome::Accepted => {}
            ArrivalOutcome::Lost(_) => counts.lost += 1,
            ArrivalOutcome::Dropped(_) => counts.dropped += 1,
        }
    }

    pub(super) fn released(&mut self, downwards: bool, released: &Released<LinkPacket>) {
        let Some(tally) = self.tally(released.packet.flow, downwards) else { return };
        tally.counts.delivered += 1;
        tally.counts.delivered_bytes += released.packet.link_bytes();
        tally.queueing.record(released.waited_ns);
    }

    /// Time of the next event.
    pub(super) fn next_ns(&self) -> Option<u64> {
        let began_ns = self.began_ns.filter(|_| !self.over)?;
        let at_ns = self.event_queue.next_ns().min(self.plan.setup.duration.as_nanos() as u64);
        Some(began_ns.saturating_add(at_ns))
    }

    /// Handles the events up to `now_ns`. Answers whether the bottleneck has changed.
    pub(super) fn advance_to(
        &mut self,
        now_ns: u64,
        bottleneck: &mut Bottleneck<LinkPacket>,
    ) -> bool {
        let Some(began_ns) = self.began_ns.filter(|_| !self.over) else { return false };
        let since_ns = now_ns.saturating_sub(began_ns);
        let end_ns = self.plan.setup.duration.as_nanos() as u64;
        let mut changed = false;
        loop {
            // An event that is handled late counts from the moment at which it was due.
            let at_ns = self.event_queue.next_ns();
            if at_ns > since_ns.min(end_ns) {
                break;
            }
            let due_ns = began_ns + at_ns;
            match self.event_queue.pop(at_ns) {
                Some(Item::Sample) => self.sample(due_ns, bottleneck),
                // Of the events at the very end only the sample counts.
                _ if at_ns == end_ns => break,
                Some(Item::Change(change)) => {
                    bottleneck.change(due_ns, &change);
                    changed = true;
                }
                Some(Item::Redraw) => {
                    bottleneck.redraw(due_ns);
                    changed = true;
                }
                Some(Item::WarmedUp) => self.on_warmed_up(due_ns, bottleneck),
                Some(Item::Start(_) | Item::Stop(_) | Item::Ask(..)) | None => {}
            }
        }
        if since_ns >= end_ns {
            self.over = true;
            self.close(began_ns + end_ns, bottleneck);
        }
        changed
    }

    fn on_warmed_up(&mut self, at_ns: u64, bottleneck: &Bottleneck<LinkPacket>) {
        self.at_warmup = (bottleneck.pipe.counters(), bottleneck.pipe.capacity_bytes(at_ns));
        for tally in &mut self.tallies {
            tally.at_warmup = tally.counts;
            tally.queueing.clear();
        }
    }

    fn sample(&mut self, at_ns: u64, bottleneck: &Bottleneck<LinkPacket>) {
        let every = self.plan.setup.sample_every;
        let pipe = &bottleneck.pipe;
        let (counters, capacity_bytes) = (pipe.counters(), pipe.capacity_bytes(at_ns));
        let (before, capacity_before) =
            std::mem::replace(&mut self.at_sample, (counters, capacity_bytes));
        let rate = |bytes| Bandwidth::from_bytes_and_time(bytes, every);
        let link = LinkSample {
            capacity: rate(capacity_bytes - capacity_before),
            throughput: rate(counters.delivered_bytes - before.delivered_bytes),
            queue_bytes: pipe.queue_bytes(),
            dropped_packets: counters.dropped_packets - before.dropped_packets,
            rtt: bottleneck.link().rtt,
            loss: bottleneck.link().loss,
        };
        let share = |tally: &mut FlowTally| {
            let now = tally.counts;
            let before = std::mem::replace(&mut tally.at_sample, now);
            FlowShare {
                delivered_bytes: now.delivered_bytes - before.delivered_bytes,
                sent_packets: now.sent - before.sent,
                gone_packets: now.lost + now.dropped - before.lost - before.dropped,
            }
        };
        let flows = self.tallies.iter_mut().map(share).collect();
        self.trace.samples.push(EmulatedLinkSample { link, flows });
    }

    fn close(&mut self, at_ns: u64, bottleneck: &Bottleneck<LinkPacket>) {
        let pipe = &bottleneck.pipe;
        let (total, (before, capacity_before)) = (pipe.counters(), self.at_warmup);
        let capacity_bytes = pipe.capacity_bytes(at_ns) - capacity_before;
        let delivered_bytes = total.delivered_bytes - before.delivered_bytes;
        self.trace.link = LinkOutcome {
            capacity_bytes,
            delivered_bytes,
            utilisation: delivered_bytes as f64 / capacity_bytes.max(1) as f64,
            arrived_packets: total.arrived_packets - before.arrived_packets,
            delivered_packets: total.delivered_packets - before.delivered_packets,
            dropped_packets: total.dropped_packets - before.dropped_packets,
            random_lost_packets: total.lost_packets - before.lost_packets,
            inside_packets: pipe.inside_packets(),
            queue_max_bytes: total.queue_max_bytes,
        };
        let seen = |tally: &FlowTally| {
            let (now, before) = (tally.counts, tally.at_warmup);
            FlowTotals {
                sent_packets: now.sent - before.sent,
                delivered_packets: now.delivered - before.delivered,
                delivered_bytes: now.delivered_bytes - before.delivered_bytes,
                dropped_packets: now.dropped - before.dropped,
                random_lost_packets: now.lost - before.lost,
                queueing: tally.queueing.summary(),
            }
        };
        self.trace.flows = self.tallies.iter().map(seen).collect();
    }

    /// The record, if the run has ended.
    pub(super) fn into_trace(self) -> Option<LinkTrace> {
        self.over.then_some(self.trace)
    }
}

/// Longest run; bounds the samples in memory.
pub const MAX_RUN_TIME: Duration = Duration::from_secs(3600);

#[cfg(test)]
#[path = "link_trace_tests.rs"]
mod tests;
