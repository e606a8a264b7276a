//! Traces: capacity of links that follow them, and rejection of malformed files.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::{constant, demo, outcome, setup};
use millrace_sim::{FlowSetup, LinkRate, LinkSetup, RateTrace, Setup};

fn following(trace: RateTrace) -> LinkSetup {
    LinkSetup { rate: LinkRate::Trace(Arc::new(trace)), ..demo() }
}

/// Many times what the trace carries, for so many seconds.
fn overload(trace: RateTrace, seconds: u64) -> Setup {
    setup(following(trace), vec![FlowSetup::bulk(constant(30.0))], seconds)
}

#[test]
fn each_opportunity_carries_a_packet_and_the_trace_loops() {
    // Three packets each 10 ms; the next turn begins where the last line was.
    let trace = RateTrace::mahimahi("t", "1\n4\n10\n").unwrap();
    let setup = Setup { warmup: Duration::from_secs(1), ..overload(trace, 11) };
    let outcome = outcome(&setup);
    assert_eq!(outcome.link.capacity_bytes, 3 * 1000 * 1500);
    assert_eq!(outcome.link.delivered_packets, 3000);
    assert_eq!(outcome.link.utilisation, 1.0);
    // 300 packets a second, 100 of them waiting.
    let queueing = outcome.flows[0].queueing;
    assert!(queueing.min > Duration::from_millis(323), "{queueing:?}");
    assert!(queueing.max <= Duration::from_millis(336), "{queueing:?}");
}

#[test]
fn an_opportunity_that_finds_nothing_is_lost() {
    // One packet a second arrives; there are 100 opportunities.
    let trace = RateTrace::mahimahi("t", "10\n").unwrap();
    let slow = FlowSetup::bulk(constant(0.012));
    let outcome = outcome(&setup(following(trace), vec![slow], 60));
    let flow = &outcome.flows[0];
    assert_eq!((flow.sent_packets, flow.delivered_packets), (60, 60));
    // Sent at the moment of an opportunity, a packet takes the next one.
    assert_eq!(flow.queueing.min, Duration::from_millis(10));
    assert_eq!(flow.queueing.max, Duration::from_millis(10));
    assert_eq!(outcome.link.capacity_bytes, 6000 * 1500);
}

#[test]
fn small_packets_share_an_opportunity_and_large_ones_span_several() {
    for (packet_bytes, per_100) in [(500, 300), (750, 200), (1000, 150), (3000, 50)] {
        let trace = RateTrace::mahimahi("t", "10\n").unwrap();
        let flow = FlowSetup { packet_bytes, ..FlowSetup::bulk(constant(30.0)) };
        let mut setup = setup(following(trace), vec![flow], 22);
        setup.warmup = Duration::from_secs(2);
        let delivered = outcome(&setup).link.delivered_packets;
        assert!(delivered.abs_diff(20 * per_100) <= 1, "{packet_bytes}: {delivered}");
    }
}

#[test]
fn a_throughput_trace_carries_its_rates_for_their_times() {
    // 6 Mbit/s for 1 s, nothing for 0.5 s, 2.4 Mbit/s for 0.5 s: 7.2 Mbit each 2 s.
    let trace = RateTrace::throughput("t", "5 6\n6.0 0\n6.5\t2.4\n").unwrap();
    let setup = Setup { warmup: Duration::from_secs(4), ..overload(trace, 24) };
    let outcome = outcome(&setup);
    assert_eq!(outcome.link.capacity_bytes, 10 * 900_000);
    assert!(outcome.link.delivered_packets.abs_diff(6000) <= 1);
    assert!(outcome.link.utilisation > 0.999 && outcome.link.utilisation < 1.001);
}

#[test]
fn changes_lead_into_a_trace_and_out_of_it() {
    let trace = RateTrace::throughput("t", "0 3\n1 3\n").unwrap();
    let mut setup = setup(demo(), vec![FlowSetup::bulk(constant(30.0))], 30);
    let to = |rate| millrace_sim::LinkChange { rate: Some(rate), ..Default::default() };
    let twelve = millrace_cc::Bandwidth::from_mbps(12.0);
    setup.changes = vec![
        (Duration::from_secs(10), to(LinkRate::Trace(Arc::new(trace)))),
        (Duration::from_secs(20), to(LinkRate::Constant(twelve))),
    ];
    let link = outcome(&setup).link;
    assert_eq!(link.capacity_bytes, 10 * (1_500_000 + 375_000 + 1_500_000));
    // All but the first 51 ms, in which nothing had arrived yet.
    assert!(link.delivered_bytes.abs_diff(link.capacity_bytes - 50 * 1500) <= 3000, "{link:?}");
}

#[test]
fn csv_with_and_without_a_header_is_a_throughput_trace() {
    let plain = RateTrace::throughput("t", "0 6\n1 0\n1.5 2.4\n").unwrap();
    for text in [
        "time,mbps\n0,6\n1,0\n1.5,2.4\n",
        "\u{feff}\"Time (s)\";\"Rate (Mbit/s)\"\r\n0;6\r\n1;0\r\n1.5;2.4\r\n",
        "seconds\tthroughput\n0\t6\n1\t0\n1.5\t2.4\n",
        "0, 6\n1, 0\n1.5, 2.4",
    ] {
        assert_eq!(RateTrace::throughput("t", text).unwrap(), plain, "{text:?}");
    }
    for (text, problem) in [
        (
            "time_ms,mbps\n0,6\n",
            "t:1: the header says \"time_ms\", expected seconds in the first column",
        ),
        ("time,kbps\n0,6\n", "t:1: the header says \"kbps\", expected Mbit/s in the second column"),
        ("time,cell,mbps\n0,1,6\n", "names 3 columns, expected 2: seconds and Mbit/s"),
        ("time,mbps\ntime,mbps\n0,6\n", "t:2: \"time\" is no number"),
        ("time,mbps\n", "t:0: the file is empty"),
    ] {
        let shown = RateTrace::throughput("t", text).unwrap_err().to_string();
        assert!(shown.contains(problem), "{shown}");
    }
    let shown = RateTrace::mahimahi("t", "time,mbps\n0,6\n").unwrap_err().to_string();
    assert!(shown.ends_with("seconds and Mbit/s are trace_format = \"throughput\""), "{shown}");
}

#[test]
fn malformed_lines_are_refused_with_file_and_line() {
    for (text, line, problem) in [
        ("1\nx\n", 2, "no whole number"),
        ("1\n-2\n", 2, "no whole number"),
        ("1\n2.5\n", 2, "no whole number"),
        ("1\n\n2\n", 2, "no whole number"),
        ("1 2\n", 1, "no whole number"),
        ("5\n7\n6\n", 3, "goes back"),
        ("99999999999\n", 1, "no whole number"),
        ("", 0, "empty"),
        ("0\n0\n", 0, "all opportunities"),
    ] {
        let error = RateTrace::mahimahi("lte.down", text).unwrap_err();
        let shown = error.to_string();
        assert!(shown.starts_with(&format!("lte.down:{line}: ")), "{shown}");
        assert!(shown.contains(problem), "{shown}");
    }
    for (text, line, problem) in [
        ("0 1\n1 x\n", 2, "no number"),
        ("0 1\n1\n", 2, "is not"),
        ("0 1 2\n", 1, "is not"),
        ("0 1\n1 -1\n", 2, "out of range"),
        ("0 NaN\n", 1, "out of range"),
        ("0 1\n-1 1\n", 2, "out of range"),
        ("3 1\n5 1\n4 1\n", 3, "goes back"),
        ("3 1\n2 1\n", 2, "goes back"),
        ("", 0, "empty"),
        ("0 0\n1 0\n", 0, "above zero"),
        ("0 1\n1000000000 1\n", 2, "too long"),
    ] {
        let error = RateTrace::throughput("fcc.txt", text).unwrap_err();
        let shown = error.to_string();
        assert!(shown.starts_with(&format!("fcc.txt:{line}: ")), "{shown}");
        assert!(shown.contains(problem), "{shown}");
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = RateTrace::mahimahi_file(Path::new("no/such/file")).unwrap_err();
    assert!(error.to_string().starts_with("no/such/file:0: "), "{error}");
}
