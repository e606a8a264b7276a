use std::thread;

use super::*;

/// The value of one series, as the text has it.
fn value(metrics: &Metrics, series: &str) -> Option<u64> {
    let text = metrics.render().unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
    Some(line.parse().unwrap())
}

fn metrics() -> Arc<Metrics> {
    Metrics::new("millrace-test", "1.2.3").unwrap()
}

#[test]
fn every_series_is_there_from_the_start() {
    let metrics = metrics();
    let text = metrics.render().unwrap();
    let series = [
        "millrace_flows_opened_total",
        "millrace_flows_finished_total{outcome=\"complete\"}",
        "millrace_flows_active",
        "millrace_flows_finished_total{outcome=\"denied\"}",
        "millrace_flows_finished_total{outcome=\"internal\"}",
        "millrace_flows_classified_total{class=\"rtsp\"}",
        "millrace_flows_recognised_total{protocol=\"late_rtsp\"}",
        "millrace_connections{state=\"established\"}",
        "millrace_handshake_failures_total{reason=\"expired\"}",
        "millrace_known_client_tokens_total{result=\"same_address\"}",
        "millrace_destinations_denied_total{reason=\"loopback\"}",
        "millrace_protocol_errors_total{parser=\"http3\"}",
        "millrace_drops_total{reason=\"flow_limit\"}",
        "millrace_path_mtu_decreases_total{reason=\"black_hole\"}",
        "millrace_datagram_capsules_total",
        "millrace_rtsp_frames_dropped_total{medium=\"video\"}",
        "millrace_rtsp_queue_wait_seconds_count",
        "millrace_datagram_repairs_total{event=\"retransmitted\"}",
        "millrace_datagram_repairs_total{event=\"duplicate\"}",
        "millrace_datagram_repairs_total{event=\"corrected\"}",
        "millrace_memory_used_bytes",
        "millrace_memory_cap_bytes",
        "millrace_flow_bytes_total{direction=\"up\"}",
        "millrace_tunnel_bytes_total{direction=\"sent\"}",
        "millrace_packets_sent_total",
        "millrace_packets_received_total",
        "millrace_packets_lost_total",
        "millrace_datagram_send_errors_total",
    ];
    for series in series {
        assert_eq!(value(&metrics, series), Some(0), "{series} in\n{text}");
    }
    assert_eq!(
        value(&metrics, "millrace_build_info{program=\"millrace-test\",version=\"1.2.3\"}"),
        Some(1)
    );
    assert!(value(&metrics, "process_open_fds").unwrap() > 0);
    assert!(value(&metrics, "process_resident_memory_bytes").unwrap() > 0);
}

/// Those of servers and Selectors are there once there is one.
#[test]
fn every_series_is_documented() {
    let page = include_str!("../../../docs/operate/operations.md");
    let text = metrics().render().unwrap();
    let names =
        text.lines().filter_map(|line| line.strip_prefix("# HELP millrace_")?.split(' ').next());
    let missing: Vec<_> =
        names.filter(|name| !page.contains(&format!("| `millrace_{name}` |"))).collect();
    assert!(missing.is_empty(), "not in docs/operate/operations.md: {missing:?}");
}

fn distinct<L: Label>() {
    for (index, value) in L::ALL.iter().enumerate() {
        let same = L::ALL.iter().filter(|other| other.as_str() == value.as_str()).count();
        assert_eq!(same, 1, "{}", value.as_str());
        assert!(L::ALL[index] == *value);
    }
}

#[test]
fn each_value_of_a_label_has_a_counter_of_its_own() {
    distinct::<FlowFailure>();
    distinct::<FlowRecognition>();
    distinct::<Class>();
    distinct::<ConnectionState>();
    distinct::<HandshakeFailure>();
    distinct::<KnownClientToken>();
    distinct::<DeniedReason>();
    distinct::<Parser>();
    distinct::<DroppedMedium>();
    distinct::<Drop>();
    distinct::<DatagramRepair>();
    let metrics = metrics();
    metrics.flows_finished.of(FlowFailure::Refused.into()).inc();
    metrics.connections.of(ConnectionState::Draining).set(3);
    assert_eq!(value(&metrics, "millrace_flows_finished_total{outcome=\"refused\"}"), Some(1));
    assert_eq!(value(&metrics, "millrace_flows_finished_total{outcome=\"denied\"}"), Some(0));
    assert_eq!(value(&metrics, "millrace_connections{state=\"draining\"}"), Some(3));
}

#[test]
fn workers_are_summed_up_and_stay_counted_when_they_end() {
    let metrics = metrics();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let counters = metrics.worker();
                for _ in 0..10_000 {
                    counters.packets_sent.add(1);
                    counters.bytes_down.add(1452);
                }
            });
        }
        scope.spawn(|| (0..50).for_each(|_| drop(metrics.render())));
    });
    for _ in 0..2 {
        assert_eq!(value(&metrics, "millrace_packets_sent_total"), Some(40_000));
        assert_eq!(
            value(&metrics, "millrace_flow_bytes_total{direction=\"down\"}"),
            Some(40_000 * 1452)
        );
    }
}
