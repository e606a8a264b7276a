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

/// The names in the text.
fn names(text: &str) -> Vec<&str> {
    let helps = text.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split(' ').next());
    helps.filter(|name| name.starts_with("millrace_")).collect()
}

/// The text of a process with a server and a Selector, which are counted once there is one.
fn with_server_and_selector() -> String {
    let metrics = metrics();
    let servers = metrics.servers(&["server-1".to_owned()]).unwrap();
    metrics.watch_selector(Arc::default());
    let text = metrics.render().unwrap();
    drop(servers);
    text
}

#[test]
fn every_series_is_there_from_the_start_with_value_0() {
    let text = with_server_and_selector();
    let samples = || {
        let values = text.lines().filter_map(|line| line.rsplit_once(' '));
        values.filter(|(series, _)| {
            series.starts_with("millrace_") && !series.starts_with("millrace_build_info")
        })
    };
    for (series, value) in samples() {
        assert_eq!(value, "0", "{series} in\n{text}");
    }
    assert!(names(&text).len() > 40, "{text}");
    for name in names(&text) {
        let is_its = |line: &str| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with([' ', '{']) || rest.starts_with("_count "))
        };
        assert!(text.lines().any(is_its), "no sample of {name} in\n{text}");
    }
}

#[test]
fn labels_keep_their_names() {
    let metrics = metrics();
    for series in [
        "millrace_flows_finished_total{outcome=\"complete\"}",
        "millrace_flows_finished_total{outcome=\"memory\"}",
        "millrace_flows_classified_total{class=\"rtsp\"}",
        "millrace_flows_recognised_total{protocol=\"late_rtsp\"}",
        "millrace_connections{state=\"established\"}",
        "millrace_handshake_failures_total{reason=\"expired\"}",
        "millrace_known_client_tokens_total{result=\"same_address\"}",
        "millrace_destinations_denied_total{reason=\"loopback\"}",
        "millrace_protocol_errors_total{parser=\"http3\"}",
        "millrace_drops_total{reason=\"flow_limit\"}",
        "millrace_path_mtu_decreases_total{reason=\"black_hole\"}",
        "millrace_rtsp_frames_dropped_total{medium=\"video\"}",
        "millrace_datagram_repairs_total{event=\"retransmitted\"}",
        "millrace_flow_bytes_total{direction=\"up\"}",
        "millrace_tunnel_bytes_total{direction=\"sent\"}",
    ] {
        assert_eq!(value(&metrics, series), Some(0), "{series}");
    }
}

#[test]
fn process_and_build_are_shown() {
    let metrics = metrics();
    assert_eq!(
        value(&metrics, "millrace_build_info{program=\"millrace-test\",version=\"1.2.3\"}"),
        Some(1)
    );
    assert!(value(&metrics, "process_open_fds").unwrap() > 0);
    assert!(value(&metrics, "process_resident_memory_bytes").unwrap() > 0);
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
