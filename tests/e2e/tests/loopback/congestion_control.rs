//! Which congestion control a flow's connection has, at both ends.

use std::io::{Read, Write};

use millrace_e2e::admin::{self, Metrics};
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::Pair;
use millrace_e2e::wait::{self, DEFAULT_TIMEOUT};
use serde_json::Value;
use socket2::Socket;

/// A flow that has carried a byte there and back.
fn open(pair: &Pair, listener: usize, origin: &Origin) -> Socket {
    let mut flow = pair.listeners[listener].open(&origin.address().to_string()).unwrap();
    flow.write_all(b"x").unwrap();
    flow.read_exact(&mut [0]).unwrap();
    flow
}

/// The only flow, as server and client show it.
fn shown(pair: &Pair) -> [Value; 2] {
    [pair.addresses.server_admin, pair.addresses.client_admin].map(|admin| {
        let flows = admin::flows(admin);
        let flows = flows["flows"].as_array().unwrap();
        assert_eq!(flows.len(), 1, "{flows:?}");
        flows[0].clone()
    })
}

/// The flow is over at both ends.
fn close(pair: &Pair, flow: Socket) {
    drop(flow);
    for admin in [pair.addresses.server_admin, pair.addresses.client_admin] {
        wait::for_true("the flow is over", DEFAULT_TIMEOUT, || {
            admin::flows(admin)["flows"].as_array().is_some_and(Vec::is_empty)
        });
    }
}

#[test]
fn default_class_and_listener_choose() {
    let origin = Origin::echo();
    let pair = Pair::builder()
        .static_destination(origin.address())
        .server("tunnel.congestion_control", "\"reno\"")
        .server("tunnel.class.rtsp.congestion_control", "{ name = \"constant\", rate_mbps = 50 }")
        .server("tunnel.selectable_congestion_control", "[\"vivace-latency\"]")
        .client("tunnel.class.rtsp.congestion_control", "\"bbr2\"")
        .listener(0, "congestion_control = \"vivace-latency\"")
        .listener(4, "congestion_control = { name = \"constant\", rate_mbps = 40 }")
        .start();
    let expected = [
        // The listener's, which the server allows.
        (0, "vivace-latency", "vivace-latency"),
        // Both defaults.
        (1, "reno", "cubic"),
        // The class's.
        (2, "constant", "bbr2"),
        // A class without one of its own.
        (3, "reno", "cubic"),
        // The listener's, which the server does not allow.
        (4, "reno", "constant"),
    ];
    for (listener, at_server, at_client) in expected {
        let flow = open(&pair, listener, &origin);
        let [server, client] = shown(&pair);
        assert_eq!(server["algorithm"], at_server, "listener {listener}: {server}");
        assert_eq!(client["algorithm"], at_client, "listener {listener}: {client}");
        close(&pair, flow);
    }
    let refused = || {
        Metrics::fetch(pair.addresses.server_admin)
            .sum("millrace_congestion_control_refused_total", &[])
    };
    assert_eq!(refused(), 1.0);
    close(&pair, open(&pair, 4, &origin));
    assert_eq!(refused(), 2.0);
    let complaints = pair.server.log_text().matches("is not selectable").count();
    assert_eq!(complaints, 1, "logged for each flow");
}

/// Without a list of its own the server allows every algorithm that needs no parameter.
#[test]
fn what_needs_no_parameter_may_be_asked_for() {
    let origin = Origin::echo();
    let pair = Pair::builder()
        .static_destination(origin.address())
        .listener(0, "congestion_control = \"bbr2\"")
        .listener(1, "congestion_control = { name = \"constant\", rate_mbps = 40 }")
        .start();
    for (listener, at_server) in [(0, "bbr2"), (1, "cubic")] {
        let flow = open(&pair, listener, &origin);
        assert_eq!(shown(&pair)[0]["algorithm"], at_server);
        close(&pair, flow);
    }
}

/// With a connection for each flow, the next flow's congestion control takes a living path over.
#[test]
fn a_connection_changes_its_algorithm_between_flows() {
    let origin = Origin::echo();
    let pair = Pair::builder()
        .static_destination(origin.address())
        .client("tunnel.connections", "\"per_flow\"")
        .client("tunnel.idle_connections_per_server", 1)
        // One event loop, one warm connection.
        .both("runtime.workers", 1)
        .listener(0, "congestion_control = \"vivace-latency\"")
        .listener(1, "congestion_control = \"bbr2\"")
        .start();
    let mut connections = Vec::new();
    let flows = [(0, "vivace-latency"), (3, "cubic"), (1, "bbr2"), (0, "vivace-latency")];
    // On a busy machine the spare connection may be ready before the one that has just become idle.
    for (listener, algorithm) in flows.into_iter().cycle().take(5 * flows.len()) {
        let mut flow = open(&pair, listener, &origin);
        // More than an initial window, both ways: the path has something to hand over.
        let sent = millrace_e2e::data::pattern(3, 1_000_000);
        let mut received = vec![0; sent.len()];
        let mut reader = flow.try_clone().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| reader.read_exact(&mut received).unwrap());
            flow.write_all(&sent).unwrap();
        });
        drop(reader);
        assert!(received == sent, "listener {listener}: other bytes came back");
        for shown in shown(&pair) {
            assert_eq!(shown["algorithm"], algorithm, "listener {listener}: {shown}");
        }
        let connection = shown(&pair)[0]["connection"].clone();
        close(&pair, flow);
        let is_used_again = connections.contains(&connection);
        connections.push(connection);
        if is_used_again && connections.len() >= flows.len() {
            return;
        }
    }
    panic!("no connection was used again: {connections:?}");
}

/// An operator turns a connection that runs to other algorithms, with bytes under way all the time.
#[test]
fn a_connection_that_runs_is_turned_by_hand_and_stays() {
    let origin = Origin::echo();
    let pair = Pair::builder()
        .static_destination(origin.address())
        .both("tunnel.congestion_control", "\"cubic\"")
        .both("runtime.workers", 1)
        .listener(0, "congestion_control = \"vivace-latency\"")
        .start();
    let mut flow = open(&pair, 1, &origin);
    let admins = [pair.addresses.server_admin, pair.addresses.client_admin];
    let turn = |method: &str, rest: &str| {
        admins.map(|admin| {
            let flows = admin::flows(admin);
            let connection = flows["flows"][0]["connection"].as_str().unwrap();
            let path = format!("/congestion_control/{connection}{rest}");
            admin::request(admin, method, &path).unwrap()
        })
    };
    let sent = millrace_e2e::data::pattern(5, 40_000_000);
    let mut received = vec![0; sent.len()];
    let mut reader = flow.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| reader.read_exact(&mut received).unwrap());
        let writer = scope.spawn(|| flow.write_all(&sent).unwrap());
        for algorithm in ["bbr", "westwood", "vivace-latency", "iris-min", "bbr2", "copa", "cubic"]
        {
            for (status, body) in turn("PUT", &format!("?algorithm={algorithm}")) {
                assert_eq!(status, 200, "{body}");
                assert_eq!(body, format!("{{\"algorithm\":\"{algorithm}\",\"pinned\":true}}"));
            }
            for shown in shown(&pair) {
                assert_eq!(
                    (&shown["algorithm"], &shown["pinned"]),
                    (&algorithm.into(), &true.into())
                );
            }
        }
        // What there is not.
        for (status, body) in turn("PUT", "?algorithm=fast") {
            assert_eq!(status, 400, "{body}");
        }
        writer.join().unwrap();
    });
    assert!(received == sent, "other bytes came back");
    for (status, body) in turn("DELETE", "") {
        assert_eq!((status, body.as_str()), (200, "{\"algorithm\":\"cubic\",\"pinned\":false}"));
    }
    drop(reader);
    close(&pair, flow);
}

/// What people see of a controller, at both ends.
#[test]
fn the_controller_is_shown_with_its_figures() {
    let origin = Origin::echo();
    let pair = Pair::builder()
        .static_destination(origin.address())
        .both("tunnel.congestion_control", "\"vivace-latency\"")
        .start();
    let flow = open(&pair, 1, &origin);
    for shown in shown(&pair) {
        let controller = &shown["controller"];
        assert!(controller["state"].as_str().is_some_and(|state| !state.is_empty()), "{shown}");
        assert!(controller["figures"].as_object().is_some_and(|it| !it.is_empty()), "{shown}");
        assert!(controller["min_rtt_ms"].as_f64().is_some_and(|rtt| rtt > 0.0), "{shown}");
        assert!(shown["pacing_mbps"].as_f64().is_some_and(|rate| rate > 0.0), "{shown}");
        assert!(shown["cwnd_bytes"].as_u64().is_some_and(|window| window > 2000), "{shown}");
    }
    close(&pair, flow);
}
