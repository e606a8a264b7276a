//! What a player says of itself caps the rate at which it gets its video (`dash.rate_cap`).

use std::io::{BufRead, BufReader, Read, Write};
use std::time::{Duration, Instant};

use millrace_e2e::admin::{self, Metrics};
use millrace_e2e::data::pattern;
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::{Pair, PairBuilder};
use serde_json::Value;
use socket2::Socket;

/// Two seconds at the cap.
const SEGMENT_BYTES: usize = 3_000_000;
const SEED: u64 = 31;
/// 1.5 times the highest bitrate, 8 Mbit/s.
const CAP_MBPS: f64 = 12.0;
/// A player with much in its buffer.
const CALM: &str = "bl%3D60000%2Cot%3Dv%2Cst%3Dv%2Ctb%3D8000";
/// Least rate that shows that nothing is capped.
const UNCAPPED_MBPS: f64 = 4.0 * CAP_MBPS;

/// Answers each request with a segment.
fn serve_segments(mut stream: Socket) {
    let segment = pattern(SEED, SEGMENT_BYTES);
    let mut requests = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    while requests.read_line(&mut line).is_ok_and(|read| read > 0) {
        if line == "\r\n" {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {SEGMENT_BYTES}\r\n\r\n");
            if stream.write_all(&[head.as_bytes(), &segment].concat()).is_err() {
                return;
            }
        }
        line.clear();
    }
}

/// Players' flows share one connection.
fn pair(origin: &Origin) -> PairBuilder {
    Pair::builder()
        .static_destination(origin.address())
        .listener(0, "class = \"dash\"")
        .both("runtime.workers", 1)
        .measured()
}

fn open(pair: &Pair, origin: &Origin) -> Socket {
    pair.listeners[0].open(&origin.address().to_string()).unwrap()
}

/// Gets a segment with this CMCD, and calls `during` in the middle of it. Returns the rate in Mbit/s.
fn fetch(player: &mut Socket, cmcd: Option<&str>, mut during: impl FnMut()) -> f64 {
    let query = cmcd.map_or(String::new(), |cmcd| format!("?CMCD={cmcd}"));
    let request = format!("GET /1.m4s{query} HTTP/1.1\r\nHost: origin\r\n\r\n");
    player.write_all(request.as_bytes()).unwrap();
    let mut answer = BufReader::new(player.try_clone().unwrap());
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(answer.read_line(&mut head).unwrap() > 0, "{head}");
    }
    let began = Instant::now();
    let mut body = vec![0; SEGMENT_BYTES];
    let (first, second) = body.split_at_mut(SEGMENT_BYTES / 2);
    answer.read_exact(first).unwrap();
    during();
    answer.read_exact(second).unwrap();
    let took = began.elapsed();
    assert!(body == pattern(SEED, SEGMENT_BYTES), "other bytes came");
    SEGMENT_BYTES as f64 * 8.0 / 1e6 / took.as_secs_f64()
}

fn assert_at_cap(mbps: f64, cap_mbps: f64) {
    assert!((0.95 * cap_mbps..1.03 * cap_mbps).contains(&mbps), "{mbps}, cap {cap_mbps} Mbit/s");
}

fn flows(pair: &Pair) -> Vec<Value> {
    admin::flows(pair.addresses.server_admin)["flows"].as_array().unwrap().clone()
}

#[test]
fn rate_follows_the_cap_that_each_request_sets() {
    let origin = Origin::start(serve_segments);
    let pair = pair(&origin).server("dash.rate_cap", true).start();
    let mut player = open(&pair, &origin);
    let mut shown = Value::Null;
    let mbps = fetch(&mut player, Some(CALM), || {
        shown = flows(&pair)[0]["player"]["rate_cap_mbps"].clone();
    });
    assert_eq!(shown, CAP_MBPS);
    assert_at_cap(mbps, CAP_MBPS);
    assert_at_cap(fetch(&mut player, Some(&format!("{CALM}%2Crtp%3D30000")), || {}), 30.0);
    assert_at_cap(
        fetch(&mut player, Some("bl%3D60000%2Ctb%3D%2816000%3Bv%29%2Cv%3D2"), || {}),
        24.0,
    );
    let counted = Metrics::fetch(pair.addresses.server_admin);
    assert_eq!(counted.sum("millrace_rate_cap_requests_total", &[("result", "capped")]), 3.0);
}

#[test]
fn other_flows_of_the_connection_are_not_capped() {
    let origin = Origin::start(serve_segments);
    let pair = pair(&origin).server("dash.rate_cap", true).start();
    let (mut capped, mut other) = (open(&pair, &origin), open(&pair, &origin));
    let mut other_mbps = 0.0;
    let mut connections = Vec::new();
    let mbps = fetch(&mut capped, Some(CALM), || {
        other_mbps = fetch(&mut other, None, || {});
        connections = flows(&pair).iter().map(|flow| flow["connection"].clone()).collect();
    });
    assert_eq!(connections.len(), 2);
    assert_eq!(connections[0], connections[1]);
    assert!(other_mbps > UNCAPPED_MBPS, "{other_mbps} Mbit/s");
    assert_at_cap(mbps, CAP_MBPS);
}

#[test]
fn requests_that_must_not_wait_are_not_capped() {
    let origin = Origin::start(serve_segments);
    let pair = pair(&origin).server("dash.rate_cap", true).start();
    let mut player = open(&pair, &origin);
    for (cmcd, result) in [
        (Some("bl%3D60000%2Csu%2Ctb%3D8000"), "urgent"),
        (Some("bl%3D60000%2Cst%3Dl%2Ctb%3D8000"), "live"),
        (Some("bl%3D60000%2Cst%3Dll%2Ctb%3D8000"), "live"),
        (Some("bl%3D60000%2Cst%3Dv"), "unknown_top_rate"),
        (Some("bl%3D9900%2Ctb%3D8000"), "low_buffer"),
        (Some("tb%3D8000"), "low_buffer"),
        (None, "no_report"),
    ] {
        // Each has to remove a cap.
        assert_at_cap(fetch(&mut player, Some(CALM), || {}), CAP_MBPS);
        let mut shown = Value::Null;
        let mbps = fetch(&mut player, cmcd, || {
            shown = flows(&pair)[0]["player"]["rate_cap_mbps"].clone();
        });
        assert!(mbps > UNCAPPED_MBPS, "{result}: {mbps} Mbit/s");
        assert_eq!(shown, Value::Null, "{result}");
        let counted = Metrics::fetch(pair.addresses.server_admin);
        let counted = counted.sum("millrace_rate_cap_requests_total", &[("result", result)]);
        assert!(counted >= 1.0, "{result}");
    }
}

#[test]
fn cap_ends_while_the_answer_is_under_way_when_the_buffer_falls_to_ten_seconds() {
    let origin = Origin::start(serve_segments);
    let pair = pair(&origin).server("dash.rate_cap", true).start();
    let mut player = open(&pair, &origin);
    let began = Instant::now();
    fetch(&mut player, Some("bl%3D11000%2Ctb%3D8000"), || {});
    let took = began.elapsed();
    let expected = Duration::from_millis(900)..Duration::from_millis(1500);
    assert!(expected.contains(&took), "{took:?}; a cap without end would take 2 s");
}

#[test]
fn nothing_is_capped_without_the_key() {
    let origin = Origin::start(serve_segments);
    let pair = pair(&origin).start();
    let mut player = open(&pair, &origin);
    let mut shown = Value::Null;
    let mbps = fetch(&mut player, Some(CALM), || shown = flows(&pair)[0]["player"].clone());
    assert!(mbps > UNCAPPED_MBPS, "{mbps} Mbit/s");
    assert_eq!((&shown["top_bitrate_kbps"], &shown["rate_cap_mbps"]), (&8000.into(), &Value::Null));
    let counted = Metrics::fetch(pair.addresses.server_admin);
    assert_eq!(counted.sum("millrace_rate_cap_requests_total", &[]), 0.0);
}
