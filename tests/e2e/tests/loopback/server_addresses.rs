//! A server's name with several addresses, of which one answers.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use millrace_e2e::admin::Metrics;
use millrace_e2e::dns::{Answer, NameServer};
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::{Pair, PairBuilder};
use millrace_e2e::program::Program;
use millrace_e2e::{binaries, tcp, wait};

/// A pair whose client knows its server as `edge.test`.
fn by_name(dns: &NameServer, port: u16) -> PairBuilder {
    Pair::builder()
        .tunnel_port(port)
        .client("tunnel.servers", format!("[\"edge.test:{port}\"]"))
        .client("resolver.nameservers", format!("[\"{}\"]", dns.address()))
        .client("tunnel.connect_timeout_s", 2)
}

fn both_families() -> Answer {
    Answer::Addresses(vec!["::1".parse().unwrap(), "127.0.0.1".parse().unwrap()], 60)
}

#[test]
fn the_second_address_is_used_when_the_first_does_not_answer() {
    let dns = NameServer::start(&[("edge.test", both_families())]);
    let origin = Origin::echo();
    let pair = by_name(&dns, tcp::unused_port()).static_destination(origin.address());
    let pair = pair.unhealthy().start();
    let started = Instant::now();
    pair.wait_healthy(Duration::from_secs(3));
    println!("healthy after {:?}", started.elapsed());
    for listener in &pair.listeners[1..3] {
        listener.open(&origin.address().to_string()).unwrap();
    }
    let mut command = binaries::client();
    command.args(["doctor", "--json", "--config"]).arg(pair.dir().join("client.toml"));
    let ended = Program::run("doctor", command, Duration::from_secs(30));
    let found: serde_json::Value = serde_json::from_str(&ended.output).unwrap();
    let has = |verdict: &str, said: &str| {
        found["findings"].as_array().unwrap().iter().any(|it| {
            it["verdict"] == verdict && it["found"].as_str().is_some_and(|it| it.contains(said))
        })
    };
    assert!(has("ok", "127.0.0.1:") && has("warning", "no connection to [::1]:"), "{found:#}");
    assert_eq!(ended.code, Some(0), "{found:#}");
}

#[test]
fn the_name_is_resolved_again_when_its_server_is_gone() {
    let dns = NameServer::start(&[("edge.test", both_families())]);
    let origin = Origin::echo();
    let port = tcp::unused_port();
    let mut pair = by_name(&dns, port).client("runtime.workers", 1).start();
    let moved = SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), port));
    let mut second = pair.start_another_server(moved);
    // The answer that the client has is good for 60 s, and its server is gone.
    dns.set("edge.test", Answer::Addresses(vec![moved.ip()], 60));
    let failures = |pair: &Pair| {
        let client = Metrics::fetch(pair.addresses.client_admin);
        client.sum("millrace_server_connect_errors_total", &[])
    };
    let before = failures(&pair);
    pair.server.kill();
    assert!(second.is_running());
    wait::for_true("the client notices", wait::DEFAULT_TIMEOUT, || failures(&pair) > before);
    pair.wait_healthy(Duration::from_secs(3));
    pair.http().open(&origin.address().to_string()).unwrap();
}
