//! What operators see: `/metrics`, `/flows`, `/healthz`.

use std::collections::HashSet;
use std::io::{Read, Write};

use millrace_e2e::admin::{self, Metrics};
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::Pair;
use millrace_e2e::{tcp, wait};
use serde_json::Value;

#[test]
fn metrics_count_what_flows_carry() {
    let origin = Origin::echo();
    let pair = Pair::builder().start();
    let admins = [pair.addresses.client_admin, pair.addresses.server_admin];
    let before = admins.map(Metrics::fetch);
    let mut flow = pair.http().open(&origin.address().to_string()).unwrap();
    let bytes = vec![7; 100_000];
    flow.write_all(&bytes).unwrap();
    flow.read_exact(&mut vec![0; bytes.len()]).unwrap();
    for (admin, before) in admins.into_iter().zip(before) {
        let grown = |now: &Metrics, name: &str, labels: &[(&str, &str)]| {
            now.sum(name, labels) - before.sum(name, labels)
        };
        // Counted when they have been handed over, which is when this end may have them already.
        wait::for_true("all bytes are counted", wait::DEFAULT_TIMEOUT, || {
            let now = Metrics::fetch(admin);
            let of =
                |direction| grown(&now, "millrace_flow_bytes_total", &[("direction", direction)]);
            (of("up"), of("down")) == (100_000.0, 100_000.0)
        });
        let now = Metrics::fetch(admin);
        assert_eq!(grown(&now, "millrace_flows_opened_total", &[]), 1.0);
        assert_eq!(now.sum("millrace_flows_active", &[]), 1.0);
        assert!(now.sum("millrace_connections", &[("state", "established")]) >= 1.0);
        // Headers and acknowledgements come on top of the bytes.
        assert!(grown(&now, "millrace_tunnel_bytes_total", &[("direction", "sent")]) > 100_000.0);
        assert!(grown(&now, "millrace_packets_received_total", &[]) > 0.0);
        assert!(now.sum("millrace_memory_cap_bytes", &[]) == 1024e6);
        assert!(now.has("millrace_build_info") && now.has("process_resident_memory_bytes"));
    }
    drop(flow);
    for admin in admins {
        wait::for_true("no flow is active", wait::DEFAULT_TIMEOUT, || {
            Metrics::fetch(admin).sum("millrace_flows_active", &[]) == 0.0
        });
    }
}

#[test]
fn flows_show_each_flow_with_its_bytes() {
    let origin = Origin::echo();
    let pair = Pair::builder().start();
    let to = origin.address().to_string();
    // By SOCKS, whose class in these tests is rtsp.
    let mut flow = pair.listeners[2].open(&to).unwrap();
    flow.write_all(&[1; 5000]).unwrap();
    flow.read_exact(&mut [0; 5000]).unwrap();
    for admin in [pair.addresses.client_admin, pair.addresses.server_admin] {
        let shown = wait::until(wait::DEFAULT_TIMEOUT, || {
            let flows = admin::flows(admin);
            let flows = flows["flows"].as_array().cloned().unwrap_or_default();
            (flows.len() == 1 && flows[0]["bytes_down"] == 5000).then(|| flows[0].clone())
        });
        let shown = shown.unwrap_or_else(|| panic!("{}", admin::flows(admin)));
        assert_eq!(shown["bytes_up"], 5000, "{shown}");
        assert_eq!(shown["destination"], Value::from(to.clone()), "{shown}");
        assert_eq!(shown["class"], "rtsp", "{shown}");
        assert_eq!(shown["state"], "open", "{shown}");
        assert_eq!(shown["algorithm"], "cubic", "{shown}");
        let client = flow.local_addr().unwrap().as_socket().unwrap().to_string();
        assert_eq!(shown["client"], Value::from(client), "{shown}");
        assert!(shown["age_s"].as_f64().is_some_and(|age| age > 0.0), "{shown}");
        assert!(shown["rtt_ms"].as_f64().is_some_and(|rtt| rtt > 0.0 && rtt < 1000.0), "{shown}");
    }
    flow.shutdown(std::net::Shutdown::Write).unwrap();
    flow.read_to_end(&mut Vec::new()).unwrap();
    for admin in [pair.addresses.client_admin, pair.addresses.server_admin] {
        wait::for_true("the flow is gone", wait::DEFAULT_TIMEOUT, || {
            admin::flows(admin)["flows"].as_array().is_some_and(Vec::is_empty)
        });
    }
}

#[test]
fn status_of_both_ends_keeps_flows_that_ended() {
    let origin = Origin::echo();
    let pair = Pair::builder().start();
    let to = origin.address().to_string();
    let admins = [("client", pair.addresses.client_admin), ("server", pair.addresses.server_admin)];
    let [mut complete, cut] = [5000, 700].map(|bytes| {
        let mut flow = pair.http().open(&to).unwrap();
        flow.write_all(&vec![1; bytes]).unwrap();
        flow.read_exact(&mut vec![0; bytes]).unwrap();
        flow
    });
    for (role, admin) in admins {
        let status = admin::json(admin, "/status");
        assert_eq!(status["role"], role, "{status}");
        assert_eq!(status["healthy"], true, "{status}");
        assert!(status["version"].as_str().is_some_and(|it| it.starts_with("0.1.0")), "{status}");
        assert_eq!(status["ended_flows"], Value::Array(Vec::new()), "both flows still run");
    }
    complete.shutdown(std::net::Shutdown::Write).unwrap();
    complete.read_to_end(&mut Vec::new()).unwrap();
    tcp::reset(cut);
    for (role, admin) in admins {
        let ended = wait::until(wait::DEFAULT_TIMEOUT, || {
            let status = admin::json(admin, "/status");
            let ended = status["ended_flows"].as_array()?.clone();
            (ended.len() == 2).then_some(ended)
        });
        let ended = ended.unwrap_or_else(|| panic!("{}", admin::json(admin, "/status")));
        let reset = if role == "client" { "tcp_reset" } else { "peer_reset" };
        for (outcome, bytes) in [("complete", 5000), (reset, 700)] {
            let flow = ended.iter().find(|flow| flow["outcome"] == outcome);
            let flow = flow.unwrap_or_else(|| panic!("{role}: no {outcome} in {ended:?}"));
            assert_eq!(flow["destination"], Value::from(to.clone()), "{role}: {flow}");
            assert_eq!(flow["algorithm"], "cubic", "{role}: {flow}");
            assert_eq!((&flow["bytes_up"], &flow["bytes_down"]), (&bytes.into(), &bytes.into()));
            assert!(flow["duration_s"].as_f64().is_some_and(|it| it > 0.0), "{role}: {flow}");
        }
        let totals = admin::json(admin, "/status")["totals"].clone();
        assert_eq!((&totals["bytes_up"], &totals["flows_complete"]), (&5700.into(), &1.into()));
        assert_eq!(totals["flows_failed"][reset], 1, "{role}: {totals}");
    }
}

/// A PROXY header's source is the client that is shown, at the server too.
#[test]
fn the_client_named_by_a_proxy_header_is_shown() {
    let origin = Origin::echo();
    let pair = Pair::builder().start();
    let mut flow = pair.listeners[4].open(&origin.address().to_string()).unwrap();
    flow.write_all(b"x").unwrap();
    flow.read_exact(&mut [0]).unwrap();
    for admin in [pair.addresses.client_admin, pair.addresses.server_admin] {
        let flows = admin::flows(admin);
        assert_eq!(flows["flows"][0]["client"], "192.0.2.9:40000", "{flows}");
    }
}

#[test]
fn a_client_without_server_is_unhealthy() {
    let mut pair =
        Pair::builder().client("tunnel.idle_timeout_s", 2).client("tunnel.keepalive_s", 1).start();
    pair.server.kill();
    wait::for_true("the client is unhealthy", wait::DEFAULT_TIMEOUT, || {
        matches!(admin::get(pair.addresses.client_admin, "/healthz"), Ok((503, _)))
    });
    pair.start_server_again();
    pair.wait_healthy(wait::DEFAULT_TIMEOUT);
}

#[test]
fn there_is_a_page_for_people_and_other_paths_are_not_found() {
    let pair = Pair::builder().start();
    for admin in [pair.addresses.client_admin, pair.addresses.server_admin] {
        let (status, page) = admin::get(admin, "/").unwrap();
        assert!(status == 200 && page.contains("dashboard.js"), "{status}: {page}");
        assert_eq!(admin::get(admin, "/index.html").unwrap().0, 404);
    }
}

#[test]
fn flows_of_different_workers_have_different_numbers() {
    const FLOWS: usize = 32;
    let origin = Origin::echo();
    let pair = Pair::builder().both("runtime.workers", 4).start();
    let to = origin.address().to_string();
    let open = |_| {
        let mut flow = pair.http().open(&to).unwrap();
        flow.write_all(b"x").unwrap();
        flow.read_exact(&mut [0]).unwrap();
        flow
    };
    let _flows: Vec<_> = (0..FLOWS).map(open).collect();
    for admin in [pair.addresses.client_admin, pair.addresses.server_admin] {
        let shown = admin::flows(admin);
        let shown = shown["flows"].as_array().unwrap();
        let numbers: HashSet<_> = shown.iter().map(|flow| flow["id"].as_u64().unwrap()).collect();
        let connections: HashSet<_> =
            shown.iter().map(|flow| flow["connection"].as_str().unwrap()).collect();
        assert!(connections.len() > 1, "all flows are on one connection");
        assert_eq!(numbers.len(), FLOWS, "{shown:?}");
    }
}
