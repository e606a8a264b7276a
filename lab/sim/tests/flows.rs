//! Senders, receivers and changes of the link: times and counts with closed forms.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{constant, demo, link, logged, outcome, setup};
use millrace_cc::{Bandwidth, Time, registry};
use millrace_sim::{
    AckPolicy, DataSource, EncoderSetup, FlowSetup, LinkChange, LinkRate, LinkSetup,
    RandomLinkChange, Setup,
};

const MS: Duration = Duration::from_millis(1);

fn named(name: &str) -> Arc<dyn millrace_cc::ControllerConfig> {
    specified(&registry::Spec::named(name))
}

fn specified(spec: &registry::Spec) -> Arc<dyn millrace_cc::ControllerConfig> {
    match registry::find(spec) {
        Ok(registry::Algorithm::Controller(config)) => config,
        other => panic!("{spec:?}: {other:?}"),
    }
}

fn seconds(at: u64) -> Time {
    Time::ZERO + Duration::from_secs(at)
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_one_does_not() {
    let mixed = |seed| {
        let lossy = LinkSetup { loss: 0.01, loss_reverse: 0.05, jitter: 2 * MS, ..demo() };
        let video = DataSource::Segments { bytes: 200_000, period: Duration::from_millis(800) };
        let flows = vec![
            FlowSetup::bulk(named("vivace")),
            FlowSetup { start: 3000 * MS, extra_rtt: 40 * MS, ..FlowSetup::bulk(named("vivace")) },
            FlowSetup { source: video, ..FlowSetup::bulk(constant(3.0)) },
        ];
        let random_change = Some(RandomLinkChange {
            every: Duration::from_secs(2),
            rate: Some(Bandwidth::from_mbps(5.0)..=Bandwidth::from_mbps(20.0)),
            rtt: Some(20 * MS..=80 * MS),
            loss: None,
        });
        let setup = Setup { seed, random_change, ..setup(lossy, flows, 20) };
        let (outcome, log) = logged(&setup);
        format!("{outcome:?}{log:?}")
    };
    let first = mixed(1);
    assert_eq!(first, mixed(1));
    assert_ne!(first, mixed(2));
}

#[test]
fn link_changes_do_not_depend_on_the_algorithm() {
    let outcome = |mbps| {
        let mut setup = setup(demo(), vec![FlowSetup::bulk(constant(mbps))], 100);
        setup.random_change = Some(RandomLinkChange {
            every: Duration::from_secs(5),
            rate: Some(Bandwidth::from_mbps(10.0)..=Bandwidth::from_mbps(100.0)),
            rtt: Some(10 * MS..=100 * MS),
            loss: Some(0.0..=0.01),
        });
        let (_, log) = logged(&setup);
        log.samples
            .iter()
            .map(|(_, link, _)| (link.capacity, link.rtt, link.loss))
            .collect::<Vec<_>>()
    };
    let link = outcome(5.0);
    assert_eq!(link, outcome(50.0));
    // 20 draws of each; a sample sees the values of the draw before it.
    let mut rtts: Vec<_> = link.iter().map(|(_, rtt, _)| *rtt).collect();
    rtts.dedup();
    assert_eq!(rtts.len(), 20);
    assert!(rtts.iter().all(|rtt| (10 * MS..=100 * MS).contains(rtt)));
    let mean = rtts.iter().sum::<Duration>().as_secs_f64() / 20.0;
    // Standard deviation of the mean of 20: 26 ms over the root of 20.
    assert!((mean - 0.055).abs() < 4.0 * 0.026 / 20_f64.sqrt(), "{mean}");
    let rates = link.iter().map(|(rate, _, _)| rate.mbps());
    assert!(rates.clone().all(|mbps| (9.99..=100.01).contains(&mbps)));
    assert!(rates.clone().fold(0.0, f64::max) > 80.0 && rates.fold(100.0, f64::min) < 30.0);
}

#[test]
fn a_change_of_the_rtt_comes_with_the_packets_that_are_sent_after_it() {
    let mut setup = setup(demo(), vec![FlowSetup::bulk(constant(6.0))], 20);
    let to = |rtt| LinkChange { rtt: Some(rtt), ..LinkChange::default() };
    setup.changes =
        vec![(Duration::from_secs(5), to(200 * MS)), (Duration::from_secs(10), to(20 * MS))];
    let (outcome, log) = logged(&setup);
    let rtt_at = |second| {
        let (_, link, flows) = log.samples.iter().find(|(at, ..)| *at == seconds(second)).unwrap();
        (link.rtt, flows[0].rtt.unwrap())
    };
    assert_eq!(rtt_at(4), (100 * MS, 101 * MS));
    assert_eq!(rtt_at(9), (200 * MS, 201 * MS));
    assert_eq!(rtt_at(19), (20 * MS, 21 * MS));
    // A shorter path lets nothing overtake: no loss is declared, in either direction.
    let flow = &outcome.flows[0];
    assert_eq!((flow.declared_lost_packets, flow.spurious_losses), (0, 0));
    assert_eq!(flow.rtt.max, 201 * MS);
}

#[test]
fn a_flow_is_there_from_its_start_to_its_stop() {
    let second = FlowSetup {
        start: Duration::from_secs(10),
        stop: Some(Duration::from_secs(20)),
        ..FlowSetup::bulk(constant(3.0))
    };
    let (outcome, log) = logged(&setup(demo(), vec![FlowSetup::bulk(constant(6.0)), second], 30));
    let flow = &outcome.flows[1];
    assert_eq!(flow.active, Duration::from_secs(10));
    // A packet each 4 ms, the first at the start.
    assert_eq!((flow.sent_packets, flow.delivered_packets), (2500, 2500));
    assert_eq!(flow.throughput, Bandwidth::from_mbps(3.0));
    for (at, _, flows) in &log.samples {
        let (there, sent) = (flows[1].active, flows[1].sent_packets > 0);
        let inside = *at > seconds(10) && *at <= seconds(20);
        assert_eq!(sent, inside, "{at:?}");
        assert!(there == inside || *at == seconds(20) || *at == seconds(10), "{at:?}");
    }
}

/// Acknowledgements that come together release a burst, which a buffer of ten packets does not hold.
#[test]
fn an_unpaced_sender_sends_as_acknowledgements_come() {
    for name in ["cubic", "reno", "vegas", "illinois", "hybla", "westwood"] {
        let throughput = |paced: bool| {
            let algorithm = specified(&registry::Spec::named(name).with("paced", paced));
            let ack = AckPolicy { aggregation: 10 * MS, ..AckPolicy::default() };
            let flow = FlowSetup { ack, ..FlowSetup::bulk(algorithm) };
            let outcome = outcome(&setup(link(50.0, 40, 15_000), vec![flow], 20));
            outcome.flows[0].throughput.mbps()
        };
        let (paced, unpaced) = (throughput(true), throughput(false));
        assert!(unpaced < 0.7 * paced, "{name}: {unpaced} and {paced} Mbit/s");
    }
}

#[test]
fn extra_rtt_is_the_flows_own() {
    let distant = FlowSetup { extra_rtt: 55 * MS, ..FlowSetup::bulk(constant(2.0)) };
    let outcome = outcome(&setup(demo(), vec![FlowSetup::bulk(constant(2.0)), distant], 30));
    let [base, distant] = [0, 1].map(|flow: usize| outcome.flows[flow].rtt);
    assert_eq!((base.min, distant.max), (101 * MS, 157 * MS));
    // Both send at the same moments, and the first is served first.
    assert_eq!((base.max, distant.min), (101 * MS, 157 * MS));
}

#[test]
fn acknowledgements_come_as_often_as_the_policy_says() {
    // A packet each 2 ms.
    let samples = |ack| {
        let flow = FlowSetup { ack, ..FlowSetup::bulk(constant(6.0)) };
        outcome(&setup(demo(), vec![flow], 60)).flows[0].rtt
    };
    let every = |every| AckPolicy { every, ..AckPolicy::default() };
    let [each, second, tenth] = [1, 2, 10].map(|packets| samples(every(packets)));
    assert!(each.count.abs_diff(2 * second.count) <= 2, "{each:?} {second:?}");
    assert!(each.count.abs_diff(10 * tenth.count) <= 10, "{each:?} {tenth:?}");
    assert_eq!(tenth.max, 101 * MS, "the largest is acknowledged as it comes");
    // After 25 ms, with 13 packets, the last of them 1 ms old.
    let delayed = samples(every(1000));
    assert!(delayed.count.abs_diff(each.count / 13) <= 1, "{delayed:?}");
    assert_eq!((delayed.min, delayed.max), (102 * MS, 102 * MS));
    // Held back to multiples of 20 ms: each acknowledgement is its own sample.
    let held = samples(AckPolicy { aggregation: 20 * MS, ..every(2) });
    assert!(held.max < 121 * MS && held.min >= 101 * MS && held.max > held.min + 15 * MS);
}

#[test]
fn jitter_is_even_and_keeps_the_order_unless_asked() {
    for reorder in [false, true] {
        let late = LinkSetup { jitter: 10 * MS, reorder, ..link(100.0, 100, 150_000) };
        // A packet each 4 ms, each acknowledged.
        let ack = AckPolicy { every: 1, ..AckPolicy::default() };
        let flow = FlowSetup { ack, ..FlowSetup::bulk(constant(3.0)) };
        let outcome = outcome(&setup(late, vec![flow], 100));
        let flow = &outcome.flows[0];
        let base = Duration::from_micros(100_120);
        assert!(flow.rtt.min < base + MS && flow.rtt.min >= base, "{:?}", flow.rtt);
        assert!(flow.rtt.max > base + 9 * MS && flow.rtt.max <= base + 10 * MS);
        assert_eq!(flow.random_lost_packets + flow.dropped_packets, 0);
        if !reorder {
            assert_eq!(flow.declared_lost_packets, 0);
            assert!(flow.rtt.mean > base + 5 * MS, "waiting for others adds: {:?}", flow.rtt);
        }
    }
}

#[test]
fn spurious_losses_are_detected_and_tolerated() {
    // 12 packets in 1 ms, so that 20 ms of jitter lets hundreds overtake one.
    let late = LinkSetup { jitter: 20 * MS, reorder: true, ..link(150.0, 30, 1_500_000) };
    let outcome = outcome(&setup(late, vec![FlowSetup::bulk(constant(100.0))], 5));
    let flow = &outcome.flows[0];
    assert!(flow.declared_lost_packets > 1000, "{flow:?}");
    assert_eq!(flow.random_lost_packets + flow.dropped_packets, 0);
    // All but the last ones, whose acknowledgements have not arrived yet.
    assert!(flow.declared_lost_packets - flow.spurious_losses < 1000, "{flow:?}");
}

#[test]
fn what_is_lost_is_sent_again_and_counts_once() {
    let lossy = LinkSetup { loss: 0.05, ..demo() };
    let outcome = outcome(&setup(lossy, vec![FlowSetup::bulk(constant(6.0))], 100));
    let flow = &outcome.flows[0];
    // What was lost in the last RTT has not been sent again.
    assert!(flow.retransmitted_packets.abs_diff(flow.random_lost_packets) < 30, "{flow:?}");
    let unique = flow.goodput.bits_per_s() as f64 / 1452.0;
    let arrived = flow.throughput.bits_per_s() as f64 / 1500.0;
    assert!(unique <= arrived && unique > 0.9995 * arrived, "{unique} {arrived}");
}

#[test]
fn segments_take_the_time_that_their_bytes_take() {
    // 100 packets of 1452 bytes, less a byte, at a packet each 2 ms: the last leaves after 198 ms,
    // takes 1 ms less a bit on the line, and 50 ms and its own propagation to arrive.
    let source = DataSource::Segments { bytes: 145_199, period: Duration::from_secs(1) };
    let flow = FlowSetup { source, extra_rtt: 20 * MS, ..FlowSetup::bulk(constant(6.0)) };
    let (outcome, log) = logged(&setup(demo(), vec![flow], 30));
    assert_eq!((log.segments.len(), outcome.flows[0].segments), (30, 30));
    for (number, segment) in (0..).zip(&log.segments) {
        assert_eq!((segment.flow, segment.number), (0, number));
        assert_eq!((segment.due, segment.requested), (seconds(number), seconds(number)));
    }
    let time = log.segments[0].completed - log.segments[0].requested;
    let exact =
        198 * MS + Duration::from_nanos(1499 * 8 * 1_000_000_000 / 12_000_000 + 1) + 60 * MS;
    assert!(time.abs_diff(exact) <= Duration::from_nanos(2), "{time:?} {exact:?}");
    // The pacer's credit lets one packet more leave at once after each pause.
    assert!(outcome.flows[0].segment_time.max <= time);
    assert_eq!(outcome.flows[0].goodput, Bandwidth::from_bytes_per_s(145_199));
}

#[test]
fn a_segment_waits_for_the_one_before_and_then_catches_up() {
    // 4 Mbit a second over 3 Mbit/s.
    let source = DataSource::Segments { bytes: 500_000, period: Duration::from_secs(1) };
    let flow = FlowSetup { source, ..FlowSetup::bulk(constant(3.0)) };
    let (_, log) = logged(&setup(demo(), vec![flow], 60));
    assert!(log.segments.windows(2).all(|pair| pair[1].requested >= pair[0].completed));
    assert!(log.segments.iter().skip(1).all(|segment| segment.requested > segment.due));
    assert!((40..=43).contains(&log.segments.len()), "{}", log.segments.len());
}

#[test]
fn constant_source_produces_exactly_its_rate() {
    let source = DataSource::Constant { rate: Bandwidth::from_mbps(2.0) };
    let flow = FlowSetup { source, ..FlowSetup::bulk(constant(50.0)) };
    let outcome = outcome(&setup(demo(), vec![flow], 100));
    let flow = &outcome.flows[0];
    assert_eq!(flow.sent_packets, 2_000_000 / 8 * 100 / 1452);
    assert_eq!(flow.queueing.max, Duration::ZERO);
}

/// A frame each 20 ms, between 0.1 and 8 Mbit/s.
fn encoder() -> DataSource {
    DataSource::Encoder(EncoderSetup {
        frame_time: 20 * MS,
        rate_share: 1.0,
        min_rate: Bandwidth::from_mbps(0.1),
        max_rate: Bandwidth::from_mbps(8.0),
    })
}

#[test]
fn encoder_frames_take_the_time_that_their_bytes_take() {
    // Ten packets, one each 2 ms: the last leaves after 18 ms, takes 1 ms on the line and 50 ms to arrive. The pacer's
    // credit lets one packet more leave at once.
    let flow = FlowSetup { source: encoder(), ..FlowSetup::bulk(constant(6.0)) };
    let mut setup = setup(demo(), vec![flow], 22);
    setup.warmup = Duration::from_secs(2);
    let outcome = outcome(&setup);
    let frames = outcome.flows[0].frames;
    assert_eq!((frames.late, frames.skipped), (0, 0));
    assert!((999..=1001).contains(&frames.frames), "{frames:?}");
    assert!((67 * MS..=69 * MS).contains(&frames.delay.p50), "{frames:?}");
    let mbps = outcome.flows[0].throughput.mbps();
    assert!((5.9..6.1).contains(&mbps), "{mbps}");
}

#[test]
fn an_encoder_follows_the_rate_of_the_link() {
    let flow = FlowSetup { source: encoder(), ..FlowSetup::bulk(named("bbr")) };
    let mut setup = setup(demo(), vec![flow], 40);
    let rate = Some(LinkRate::Constant(Bandwidth::from_mbps(3.0)));
    setup.changes = vec![(Duration::from_secs(20), LinkChange { rate, ..LinkChange::default() })];
    let (outcome, log) = logged(&setup);
    let mbps = |from: u64, to: u64| {
        let inside =
            log.samples.iter().filter(|(at, ..)| *at > seconds(from) && *at <= seconds(to));
        let rates: Vec<f64> = inside.map(|(_, _, flows)| flows[0].goodput.mbps()).collect();
        rates.iter().sum::<f64>() / rates.len() as f64
    };
    let (before, after) = (mbps(10, 20), mbps(30, 40));
    assert!((7.0..8.1).contains(&before), "{before} of 8 Mbit/s");
    assert!((2.0..3.0).contains(&after), "{after} of 3 Mbit/s");
    assert!(outcome.flows[0].frames.late > 0, "those of the change");
}

#[test]
fn a_dead_link_is_probed_ever_more_slowly_and_recovers() {
    let mut setup = setup(demo(), vec![FlowSetup::bulk(constant(6.0))], 60);
    let to = |loss| LinkChange { loss: Some(loss), ..LinkChange::default() };
    setup.changes = vec![(Duration::from_secs(10), to(1.0)), (Duration::from_secs(20), to(0.0))];
    let (outcome, log) = logged(&setup);
    let flow = &outcome.flows[0];
    // Each wait is twice the one before, from about 0.13 s on: 10 s hold six.
    assert!((5..=8).contains(&flow.probe_timeouts), "{}", flow.probe_timeouts);
    let late = log.samples.iter().filter(|(at, ..)| *at > seconds(30));
    assert!(late.clone().all(|(_, _, flows)| flows[0].throughput.mbps() > 5.8));
}

#[test]
fn invalid_setups_are_rejected_with_the_reason() {
    let good = || setup(demo(), vec![FlowSetup::bulk(constant(1.0))], 10);
    assert_eq!(good().validate(), Ok(()));
    let bad = |change: fn(&mut Setup), reason: &str| {
        let mut setup = good();
        change(&mut setup);
        let error = setup.validate().unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    };
    bad(|setup| setup.duration = Duration::ZERO, "duration");
    bad(|setup| setup.warmup = setup.duration, "warmup");
    bad(|setup| setup.flows.clear(), "0 flows");
    bad(|setup| setup.link.loss = 1.1, "loss of 1.1");
    bad(|setup| setup.link.loss_reverse = f64::NAN, "reverse");
    bad(|setup| setup.link.rtt = Duration::from_secs(21), "rtt");
    bad(|setup| setup.flows[0].ack.every = 0, "flow 0");
    let late = |setup: &mut Setup| {
        setup.flows[0].start = Duration::from_secs(2);
        setup.flows[0].stop = Some(Duration::from_secs(1));
    };
    bad(late, "flow 0: stops");
    bad(|setup| setup.sample_every = Duration::ZERO, "sample");
}
