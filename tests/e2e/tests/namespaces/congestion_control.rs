//! Every algorithm drives the server over a real link, whichever way it was chosen.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use millrace_cc::registry::{self, Spec};
use millrace_e2e::origin::source;
use millrace_e2e::{data, test_lock, wait};
use millrace_lab::emulator::LinkConfig;
use millrace_lab::topology::{CLIENT_EDGE_INSIDE, ORIGIN};
use serde_json::Value;

use crate::world::{Options, World};

const BYTES: u64 = 3_000_000;
const SEED: u64 = 7;
const RATE_MBPS: f64 = 20.0;
/// Pairs of programs that run side by side, each over a link of its own.
const SIDE_BY_SIDE: usize = 4;
/// What each algorithm achieves at least: half of what Reno's response function has it at in
/// steady state, 1.22 packets / (round trip x sqrt(loss)) = 4 Mbit/s (RFC 5348, Section 3.1,
/// simplified), and four times what a window of two packets would carry.
const LEAST_MBPS: f64 = 2.0;
/// What those achieve at least that do not take 0.5 % of random loss for congestion.
const LEAST_MBPS_WITHOUT_REGARD_TO_LOSS: f64 = 8.0;

/// 20 Mbit/s, 50 ms, a buffer of one bandwidth-delay product, 0.5 % of loss towards the client.
fn link(seed: u64) -> LinkConfig {
    LinkConfig::new(20_000_000, 50_000_000, 125_000, 0.005, 0.0, seed)
}

/// A `static` listener to the origin, with more keys.
fn listen_section(port: u16, keys: &str) -> String {
    format!(
        "[[listen]]\nmode = \"static\"\naddress = \"{CLIENT_EDGE_INSIDE}:{port}\"\n\
         destination = \"{ORIGIN}:80\"\n{keys}\n"
    )
}

/// How one transfer went, and what the server said of its flow in the middle of it.
struct Transfer {
    mbps: f64,
    flow: Value,
}

/// Fetches the pattern through the listener at `port`.
fn fetch(world: &World, port: u16) -> Result<Transfer, String> {
    let flow = World::connect(&world.topology.player, &format!("{CLIENT_EDGE_INSIDE}:{port}"))
        .map_err(|error| format!("no flow: {error}"))?;
    let own =
        flow.local_addr().ok().and_then(|own| own.as_socket()).ok_or("no address")?.to_string();
    let started = Instant::now();
    let at_most = Duration::from_secs_f64(BYTES as f64 * 8.0 / 1e6 / LEAST_MBPS + 1.0);
    std::thread::scope(|scope| {
        let received = scope.spawn(|| (data::receive(&flow), started.elapsed()));
        // The transfer goes on meanwhile.
        let shown = wait::until(at_most, || {
            let flows = world.server_flows();
            let is_ours = |flow: &&Value| flow["client"].as_str() == Some(&own);
            let flow = flows["flows"].as_array()?.iter().find(is_ours)?.clone();
            (flow["bytes_down"].as_u64()? > 0).then_some(flow)
        });
        let (sum, took) = received.join().map_err(|_| "the receiver panicked".to_owned())?;
        let sum = sum.map_err(|error| format!("broke off: {error}"))?;
        let sent = data::send(std::io::sink(), SEED, BYTES).map_err(|error| error.to_string())?;
        if sum != sent {
            return Err(format!("received {sum:?} instead of {sent:?}"));
        }
        let flow = shown.ok_or("the server never showed the flow")?;
        Ok(Transfer { mbps: BYTES as f64 * 8.0 / took.as_secs_f64() / 1e6, flow })
    })
}

fn regards_loss(name: &str) -> bool {
    ["reno", "cubic", "vegas", "westwood", "illinois", "hybla"].contains(&name)
}

/// One algorithm as the server's default.
fn as_default(world: &mut World, name: &str) -> Result<f64, String> {
    let (spec, written) = match name {
        "constant" => (
            Spec::named(name).with("rate_mbps", 15.0),
            "{ name = \"constant\", rate_mbps = 15.0 }".to_owned(),
        ),
        _ => (Spec::named(name), format!("{name:?}")),
    };
    let algorithm = registry::find(&spec).map_err(|error| error.to_string())?.name();
    world.restart(&Options {
        listen: &listen_section(8080, ""),
        allow: &["198.18.3.0/24"],
        server: &format!("congestion_control = {written}\n"),
    });
    let Transfer { mbps, flow } = fetch(world, 8080)?;
    if flow["algorithm"] != algorithm {
        return Err(format!("the server used {} instead of {algorithm}", flow["algorithm"]));
    }
    let has_state = flow["controller"]["state"].as_str().is_some_and(|state| !state.is_empty());
    if !has_state && algorithm != "bbr2" {
        return Err(format!("no state is shown: {flow}"));
    }
    let least =
        if regards_loss(algorithm) { LEAST_MBPS } else { LEAST_MBPS_WITHOUT_REGARD_TO_LOSS };
    if !(least..=RATE_MBPS).contains(&mbps) {
        return Err(format!("{mbps:.1} Mbit/s, not {least} to {RATE_MBPS}"));
    }
    Ok(mbps)
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn every_algorithm_carries_a_transfer_over_a_lossy_link() {
    let _lock = test_lock::exclusive();
    let names = registry::names();
    assert!(names.len() > 5, "{names:?}");
    let queue: Mutex<VecDeque<_>> = Mutex::new(names.iter().copied().collect());
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for seed in 1..=SIDE_BY_SIDE as u64 {
            let (queue, results) = (&queue, &results);
            scope.spawn(move || {
                let first = Options {
                    listen: &listen_section(8080, ""),
                    allow: &["198.18.3.0/24"],
                    server: "",
                };
                let mut world = World::measured(link(seed), &first);
                let _origin = world.origin(80, source(SEED, BYTES));
                let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                while let Some(name) = next() {
                    let result = as_default(&mut world, name);
                    results.lock().unwrap().push((name, result));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap();
    results.sort_by_key(|(name, _)| *name);
    for (name, result) in &results {
        match result {
            Ok(mbps) => println!("{name:>18}  {mbps:5.1} Mbit/s"),
            Err(problem) => println!("{name:>18}  {problem}"),
        }
    }
    let carried: Vec<_> = results.iter().map(|(name, _)| *name).collect();
    assert_eq!(carried, names);
    assert!(results.iter().all(|(_, result)| result.is_ok()));
}

/// Two algorithms, each by the class of the flow and by what the flow's listener asks for.
#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn a_class_and_a_flow_choose_their_algorithm() {
    let _lock = test_lock::exclusive();
    let listen = [
        listen_section(8081, "class = \"dash\""),
        listen_section(8082, "class = \"rtsp\""),
        listen_section(8083, "congestion_control = \"vivace-latency\""),
        // The rate that the client gives is for its own part; the server has another.
        listen_section(8084, "congestion_control = { name = \"constant\", rate_mbps = 1 }"),
        listen_section(8085, ""),
    ];
    let server = "congestion_control = \"cubic\"\n\
         selectable_congestion_control = [\n\
           \"vivace-latency\", { name = \"constant\", rate_mbps = 12 }\n]\n\
         [tunnel.class.dash]\ncongestion_control = \"vivace-latency\"\n\
         [tunnel.class.rtsp]\ncongestion_control = { name = \"constant\", rate_mbps = 8 }\n";
    let options = Options { listen: &listen.concat(), allow: &["198.18.3.0/24"], server };
    let world = World::measured(link(5), &options);
    let _origin = world.origin(80, source(SEED, BYTES));
    let expected = [
        (8081, "vivace-latency", None),
        (8082, "constant", Some(8.0)),
        (8083, "vivace-latency", None),
        (8084, "constant", Some(12.0)),
        (8085, "cubic", None),
    ];
    for (port, algorithm, rate_mbps) in expected {
        let Transfer { mbps, flow } = fetch(&world, port).unwrap();
        println!("{port}: {algorithm} {mbps:.1} Mbit/s");
        assert_eq!(flow["algorithm"], algorithm, "{port}: {flow}");
        if let Some(rate_mbps) = rate_mbps {
            let pacing = flow["pacing_mbps"].as_f64().unwrap();
            assert!((pacing - rate_mbps).abs() < 0.01, "{port}: paced at {pacing} Mbit/s");
            // Retransmissions, headers, and the round trips at both ends of a short transfer.
            let least = rate_mbps * 0.75;
            assert!((least..=rate_mbps).contains(&mbps), "{port}: {mbps} Mbit/s");
        }
    }
}
