use millrace_sim::{LinkChange, LinkRate, LinkSetup, Setup};

use super::super::plan::{FlowPlan, ReversePath};
use super::*;

const MS: u64 = 1_000_000;
/// Not the beginning of time: a run begins when its flows are ready.
const BEGIN_NS: u64 = 7_000 * MS;
const CLIENT: u32 = 1;
const HOSTS: [u32; 2] = [0xc613_0001, 0xc613_0002];

/// 12 Mbit/s, which is a full packet each millisecond; from 1 s on half of it. 2 s, half a second of
/// which does not count.
fn plan(flows: [bool; 2]) -> LinkPlan {
    let link = LinkSetup::new(Bandwidth::from_mbps(12.0), Duration::from_millis(20), 15_000);
    let mut setup = Setup::new(link, Vec::new(), Duration::from_secs(2));
    setup.warmup = Duration::from_millis(500);
    let half = LinkChange {
        rate: Some(LinkRate::Constant(Bandwidth::from_mbps(6.0))),
        ..LinkChange::default()
    };
    setup.changes = vec![(Duration::from_secs(1), half)];
    let flow = |index: usize| FlowPlan {
        host: HOSTS[index],
        upwards: flows[index],
        extra_rtt: Duration::ZERO,
    };
    LinkPlan { setup, loss_seed: None, reverse: ReversePath::Free, flows: vec![flow(0), flow(1)] }
}

struct TestLink {
    recorder: RunRecorder,
    bottleneck: Bottleneck<LinkPacket>,
    now_ns: u64,
}

impl TestLink {
    fn new(plan: LinkPlan) -> Self {
        let bottleneck = Bottleneck::new(&plan.setup, 0);
        Self { recorder: RunRecorder::new(plan), bottleneck, now_ns: 0 }
    }

    fn begin(&mut self) {
        self.recorder.begin(BEGIN_NS, &mut self.bottleneck);
    }

    /// Releases packets and handles events that are due by then.
    fn until(&mut self, at_ns: u64) {
        while self.now_ns < at_ns {
            let due = self.bottleneck.pipe.next_due_ns().unwrap_or(at_ns);
            let next = self.recorder.next_ns().unwrap_or(at_ns);
            self.now_ns = due.min(next).clamp(self.now_ns + 1, at_ns);
            self.recorder.advance_to(self.now_ns, &mut self.bottleneck);
            while let Some(released) = self.bottleneck.pipe.pop_due(self.now_ns) {
                self.recorder.released(true, &released);
            }
        }
    }

    fn down(&mut self, at_ns: u64, host: u32) {
        self.until(at_ns);
        let frame = EthernetFrame::ipv4(host, CLIENT, 1500);
        let flow = self.recorder.flow_of(&frame, true);
        let verdict = self.bottleneck.pipe.arrive(at_ns, LinkPacket { frame, flow });
        self.recorder.arrived(flow, true, &verdict);
    }
}

#[test]
fn each_flow_is_accounted_for_from_the_beginning_to_the_end() {
    let mut link = TestLink::new(plan([false, false]));
    // Before the beginning, and from an unknown host: they cross and belong to no flow.
    link.down(BEGIN_NS - 100 * MS, HOSTS[0]);
    link.until(BEGIN_NS);
    link.begin();
    link.down(BEGIN_NS, 99);
    for number in 0..500 {
        let at_ns = BEGIN_NS + number * 4 * MS;
        link.down(at_ns, HOSTS[0]);
        // Beside the other one, so that it waits for it: 1 ms, and 2 ms at half of the rate.
        link.down(at_ns, HOSTS[1]);
    }
    link.until(BEGIN_NS + 2_100 * MS);
    let trace = link.recorder.into_trace().expect("the run is over");
    assert_eq!(trace.samples.len(), 20);
    let capacities: Vec<f64> = trace.samples.iter().map(|it| it.link.capacity.mbps()).collect();
    assert!(capacities[..10].iter().all(|mbps| (mbps - 12.0).abs() < 0.01), "{capacities:?}");
    assert!(capacities[10..].iter().all(|mbps| (mbps - 6.0).abs() < 0.01), "{capacities:?}");

    // 1.5 s of one packet each 4 ms; what is still on its way at the end has not been delivered.
    let [one, other] = trace.flows[..] else { panic!("{trace:?}") };
    for seen in [one, other] {
        assert_eq!(
            (seen.sent_packets, seen.dropped_packets, seen.random_lost_packets),
            (375, 0, 0)
        );
        assert!((372..=378).contains(&seen.delivered_packets), "{seen:?}");
        assert_eq!(seen.delivered_bytes, 1500 * seen.delivered_packets);
    }
    assert_eq!(one.queueing.max, Duration::ZERO);
    assert_eq!(other.queueing.min, Duration::from_millis(1));
    assert_eq!(other.queueing.max, Duration::from_millis(2));
    let delivered: u64 = trace.samples.iter().map(|sample| sample.flows[0].delivered_bytes).sum();
    // All 2 s of them, but for the last ones.
    assert!((495 * 1500..=500 * 1500).contains(&delivered), "{delivered}");
    assert_eq!(trace.link.arrived_packets, 750);
    let capacity_bytes = 1_500_000 / 2 + 750_000;
    assert!(trace.link.capacity_bytes.abs_diff(capacity_bytes) < 2, "{:?}", trace.link);
}

#[test]
fn what_the_buffer_refuses_is_counted_to_its_flow() {
    let mut link = TestLink::new(plan([false, false]));
    link.until(BEGIN_NS);
    link.begin();
    link.until(BEGIN_NS + 600 * MS);
    // One on the line, ten waiting, the rest refused.
    for _ in 0..15 {
        link.down(BEGIN_NS + 600 * MS, HOSTS[1]);
    }
    link.until(BEGIN_NS + 3_000 * MS);
    let trace = link.recorder.into_trace().expect("the run is over");
    assert_eq!(trace.flows[1].sent_packets, 15);
    assert_eq!(trace.flows[1].dropped_packets, 4);
    assert_eq!(trace.flows[1].delivered_packets, 11);
    assert_eq!(trace.flows[0], FlowTotals::default());
    let gone: u64 = trace.samples.iter().map(|sample| sample.flows[1].gone_packets).sum();
    assert_eq!(gone, 4);
}

#[test]
fn only_the_direction_of_its_data_counts_for_a_flow() {
    let mut link = TestLink::new(plan([true, false]));
    link.until(BEGIN_NS);
    link.begin();
    link.until(BEGIN_NS + 600 * MS);
    link.down(BEGIN_NS + 600 * MS, HOSTS[0]);
    let up = EthernetFrame::ipv4(CLIENT, HOSTS[0], 1500);
    assert_eq!(link.recorder.flow_of(&up, false), 0);
    link.recorder.arrived(0, false, &ArrivalOutcome::<LinkPacket>::Accepted);
    link.until(BEGIN_NS + 3_000 * MS);
    let trace = link.recorder.into_trace().expect("the run is over");
    assert_eq!(trace.flows[0].sent_packets, 1, "the one that went up");
}

#[test]
fn a_run_that_was_stopped_early_has_no_trace() {
    let mut link = TestLink::new(plan([false, false]));
    link.begin();
    link.until(BEGIN_NS + 1_000 * MS);
    assert!(link.recorder.into_trace().is_none());
}

#[test]
fn frames_tell_their_flow_in_either_version_of_ip() {
    let recorder = RunRecorder::new(plan([false, false]));
    assert_eq!(recorder.flow_of(&EthernetFrame::ipv4(HOSTS[1], CLIENT, 100), true), 1);
    assert_eq!(recorder.flow_of(&EthernetFrame::ipv6(HOSTS[1], CLIENT, 100), true), 1);
    assert_eq!(recorder.flow_of(&EthernetFrame::ipv6(CLIENT, HOSTS[0], 100), false), 0);
    assert_eq!(recorder.flow_of(&EthernetFrame::ipv4(HOSTS[1], CLIENT, 100), false), NO_FLOW);
    // Too short to have addresses.
    assert_eq!(recorder.flow_of(&EthernetFrame::ipv4(HOSTS[1], CLIENT, 15), true), NO_FLOW);
}
