//! What the link sees of a run from its beginning to its end: the flows one by one, and samples.

use std::collections::HashMap;
use std::time::Duration;

use millrace_cc::Bandwidth;
use millrace_sim::link::queue::LinkSized;
use millrace_sim::link::{PipeCounters, Released, Verdict};
use millrace_sim::{Agenda, Bottleneck, DelayTally, Delays, Item, LinkOutcome, LinkSample};

use super::frame::Frame;
use super::plan::Plan;

/// Of a packet that belongs to none.
pub(super) const NO_FLOW: u32 = u32::MAX;

/// A packet on the link.
#[derive(Debug)]
pub(super) struct Packet {
    pub(super) frame: Frame,
    pub(super) flow: u32,
}

impl LinkSized for Packet {
    fn link_bytes(&self) -> u64 {
        self.frame.link_bytes()
    }
}

/// What there was to see of a run.
#[derive(Debug, Clone, Default)]
pub struct Course {
    /// The bottleneck after the warm-up.
    pub link: LinkOutcome,
    /// The flows after the warm-up, in the order of the plan.
    pub flows: Vec<FlowSeen>,
    /// From the beginning on, warm-up included.
    pub samples: Vec<CourseSample>,
}

/// A flow's packets in the direction of its data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlowSeen {
    /// Packets that reached the link.
    pub sent_packets: u64,
    /// Packets that left it at the far end.
    pub delivered_packets: u64,
    /// The same in bytes of the network layer.
    pub delivered_bytes: u64,
    /// Packets that the full buffer refused.
    pub dropped_packets: u64,
    /// Packets that chance took.
    pub chance_lost_packets: u64,
    /// Time in the buffer.
    pub queueing: Delays,
}

/// What there was to see since the sample before.
#[derive(Debug, Clone, PartialEq)]
pub struct CourseSample {
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
    /// Of these, packets that the buffer or chance took.
    pub gone_packets: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    sent: u64,
    delivered: u64,
    delivered_bytes: u64,
    dropped: u64,
    lost: u64,
}

#[derive(Debug, Default)]
struct Tally {
    counts: Counts,
    at_warmup: Counts,
    at_sample: Counts,
    queueing: DelayTally,
}

/// A run under way.
pub(super) struct Watch {
    plan: Plan,
    by_host: HashMap<u32, u32>,
    agenda: Agenda,
    began_ns: Option<u64>,
    over: bool,
    tallies: Vec<Tally>,
    /// Counters and capacity of the bottleneck.
    at_warmup: (PipeCounters, u64),
    at_sample: (PipeCounters, u64),
    course: Course,
}

impl Watch {
    pub(super) fn new(plan: Plan) -> Self {
        let hosts = (0..).zip(&plan.flows).map(|(index, flow)| (flow.host, index));
        Self {
            by_host: hosts.collect(),
            agenda: Agenda::new(&plan.setup),
            began_ns: None,
            over: false,
            tallies: plan.flows.iter().map(|_| Tally::default()).collect(),
            at_warmup: Default::default(),
            at_sample: Default::default(),
            course: Course::default(),
            plan,
        }
    }

    /// From `now_ns` on the run is under way.
    pub(super) fn begin(&mut self, now_ns: u64, bottleneck: &mut Bottleneck<Packet>) {
        bottleneck.begin_trace(now_ns);
        let state = (bottleneck.pipe.counters(), bottleneck.pipe.capacity_bytes(now_ns));
        (self.at_warmup, self.at_sample) = (state, state);
        self.tallies.iter_mut().for_each(|tally| *tally = Tally::default());
        self.began_ns = Some(now_ns);
    }

    fn is_under_way(&self) -> bool {
        self.began_ns.is_some() && !self.over
    }

    /// Which flow a frame belongs to that goes to the client's side (`downwards`) or to the server's.
    pub(super) fn flow_of(&self, frame: &Frame, downwards: bool) -> u32 {
        if self.by_host.is_empty() {
            return NO_FLOW;
        }
        let host = frame.addresses().map(|[from, to]| if downwards { from } else { to });
        host.and_then(|host| self.by_host.get(&host)).copied().unwrap_or(NO_FLOW)
    }

    /// The flow's own further propagation.
    pub(super) fn extra_ns(&self, flow: u32) -> u64 {
        let flow = self.plan.flows.get(flow as usize);
        flow.map_or(0, |flow| flow.extra_rtt.as_nanos() as u64)
    }

    fn tally(&mut self, flow: u32, downwards: bool) -> Option<&mut Tally> {
        let index = flow as usize;
        let is_data = self.plan.flows.get(index)?.upwards != downwards;
        if is_data && self.is_under_way() { self.tallies.get_mut(index) } else { None }
    }

    pub(super) fn arrived<P>(&mut self, flow: u32, downwards: bool, verdict: &Verdict<P>) {
        let Some(Tally { counts, .. }) = self.tally(flow, downwards) else { return };
        counts.sent += 1;
        match verdict {
            Verdict::Accepted => {}
            Verdict::Lost(_) => counts.lost += 1,
            Verdict::Dropped(_) => counts.dropped += 1,
        }
    }

    pub(super) fn released(&mut self, downwards: bool, released: &Released<Packet>) {
        let Some(tally) = self.tally(released.packet.flow, downwards) else { return };
        tally.counts.delivered += 1;
        tally.counts.delivered_bytes += released.packet.link_bytes();
        tally.queueing.record(released.waited_ns);
    }

    /// When there is something to do next.
    pub(super) fn next_ns(&self) -> Option<u64> {
        let began_ns = self.began_ns.filter(|_| !self.over)?;
        let at_ns = self.agenda.next_ns().min(self.plan.setup.duration.as_nanos() as u64);
        Some(began_ns.saturating_add(at_ns))
    }

    /// Does what is due. Answers whether the bottleneck has changed.
    pub(super) fn on_time(&mut self, now_ns: u64, bottleneck: &mut Bottleneck<Packet>) -> bool {
        let Some(began_ns) = self.began_ns.filter(|_| !self.over) else { return false };
        let since_ns = now_ns.saturating_sub(began_ns);
        let end_ns = self.plan.setup.duration.as_nanos() as u64;
        let mut changed = false;
        loop {
            // What is done late is done as of the moment at which it was due.
            let at_ns = self.agenda.next_ns();
            if at_ns > since_ns.min(end_ns) {
                break;
            }
            let due_ns = began_ns + at_ns;
            match self.agenda.pop(at_ns) {
                Some(Item::Sample) => self.sample(due_ns, bottleneck),
                // Whatever else would happen at the very end doesn't.
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

    fn on_warmed_up(&mut self, at_ns: u64, bottleneck: &Bottleneck<Packet>) {
        self.at_warmup = (bottleneck.pipe.counters(), bottleneck.pipe.capacity_bytes(at_ns));
        for tally in &mut self.tallies {
            tally.at_warmup = tally.counts;
            tally.queueing.clear();
        }
    }

    fn sample(&mut self, at_ns: u64, bottleneck: &Bottleneck<Packet>) {
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
        let share = |tally: &mut Tally| {
            let now = tally.counts;
            let before = std::mem::replace(&mut tally.at_sample, now);
            FlowShare {
                delivered_bytes: now.delivered_bytes - before.delivered_bytes,
                sent_packets: now.sent - before.sent,
                gone_packets: now.lost + now.dropped - before.lost - before.dropped,
            }
        };
        let flows = self.tallies.iter_mut().map(share).collect();
        self.course.samples.push(CourseSample { link, flows });
    }

    fn close(&mut self, at_ns: u64, bottleneck: &Bottleneck<Packet>) {
        let pipe = &bottleneck.pipe;
        let (total, (before, capacity_before)) = (pipe.counters(), self.at_warmup);
        let capacity_bytes = pipe.capacity_bytes(at_ns) - capacity_before;
        let delivered_bytes = total.delivered_bytes - before.delivered_bytes;
        self.course.link = LinkOutcome {
            capacity_bytes,
            delivered_bytes,
            utilisation: delivered_bytes as f64 / capacity_bytes.max(1) as f64,
            arrived_packets: total.arrived_packets - before.arrived_packets,
            delivered_packets: total.delivered_packets - before.delivered_packets,
            dropped_packets: total.dropped_packets - before.dropped_packets,
            chance_lost_packets: total.lost_packets - before.lost_packets,
            inside_packets: pipe.inside_packets(),
            queue_max_bytes: total.queue_max_bytes,
        };
        let seen = |tally: &Tally| {
            let (now, before) = (tally.counts, tally.at_warmup);
            FlowSeen {
                sent_packets: now.sent - before.sent,
                delivered_packets: now.delivered - before.delivered,
                delivered_bytes: now.delivered_bytes - before.delivered_bytes,
                dropped_packets: now.dropped - before.dropped,
                chance_lost_packets: now.lost - before.lost,
                queueing: tally.queueing.summary(),
            }
        };
        self.course.flows = self.tallies.iter().map(seen).collect();
    }

    /// What there was to see, if the run came to its end.
    pub(super) fn course(self) -> Option<Course> {
        self.over.then_some(self.course)
    }
}

/// Longest run; bounds what is kept of it.
pub const LONGEST: Duration = Duration::from_secs(3600);

#[cfg(test)]
#[path = "course_tests.rs"]
mod tests;
