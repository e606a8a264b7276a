//! A flood of handshakes: bounded, counted, and hardly felt by flows that run.

use std::io::Read;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use millrace_e2e::admin::Metrics;
use millrace_e2e::origin::{Origin, source};
use millrace_e2e::pair::{Pair, PairBuilder};
use socket2::Socket;

use crate::peer::Peer;

/// What the regular flow is paced at, and what it must keep.
const RATE_MBPS: f64 = 40.0;
const KEPT: f64 = 0.8;
/// How long each rate is measured.
const MEASURED: Duration = Duration::from_secs(4);
/// First flights of as many connections; each begins one at a server that takes all.
const CONNECTIONS: usize = 5000;
/// Sent at a time, and how often.
const BURST: usize = 30;
const INTERVAL: Duration = Duration::from_millis(10);

fn rate_mbps(flow: &mut Socket) -> f64 {
    let (start, mut bytes, mut buffer) = (Instant::now(), 0, vec![0; 256 << 10]);
    while start.elapsed() < MEASURED {
        bytes += flow.read(&mut buffer).unwrap();
    }
    bytes as f64 * 8e-6 / start.elapsed().as_secs_f64()
}

/// The flow's rate alone and in the flood, the packets sent, and the most handshakes under way.
fn measure(limits: impl FnOnce(PairBuilder) -> PairBuilder, reason: &str, most_handshakes: f64) {
    let origin = Origin::start(source(1, 1 << 40));
    let constant = format!("{{ name = \"constant\", rate_mbps = {RATE_MBPS} }}");
    let builder = Pair::builder()
        .server("runtime.workers", 1)
        .client("runtime.workers", 1)
        .server("tunnel.congestion_control", constant)
        .server("log.level", "\"error\"");
    let mut pair = limits(builder).measured().start();
    let mut flow = pair.http().open(&origin.address().to_string()).unwrap();
    let packets: Vec<_> =
        (0..CONNECTIONS).flat_map(|_| Peer::new(&pair, true).first_flight()).collect();
    rate_mbps(&mut flow);
    let alone = rate_mbps(&mut flow);
    let rss = pair.server.rss_bytes();

    let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (stopped, count, server) = (stop.clone(), sent.clone(), pair.addresses.tunnel);
    let flood = std::thread::spawn(move || {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut packets = packets.iter().cycle();
        while !stopped.load(Ordering::Relaxed) {
            for packet in packets.by_ref().take(BURST) {
                socket.send_to(packet, server).unwrap();
            }
            count.fetch_add(BURST as u64, Ordering::Relaxed);
            std::thread::sleep(INTERVAL);
        }
    });
    let flooded = rate_mbps(&mut flow);
    let metrics = Metrics::fetch(pair.addresses.server_admin);
    stop.store(true, Ordering::Relaxed);
    flood.join().unwrap();

    let connecting = metrics.sum("millrace_connections", &[("state", "connecting")]);
    let answered = match reason {
        "retry" => metrics.sum("millrace_retries_sent_total", &[]),
        reason => metrics.sum("millrace_drops_total", &[("reason", reason)]),
    };
    let sent = sent.load(Ordering::Relaxed) as f64;
    println!(
        "{reason}: {alone:.1} Mbit/s alone, {flooded:.1} Mbit/s in a flood of {:.0} packets/s, \
         {connecting} handshakes under way, {answered} of {sent} counted, rss {rss} to {}",
        sent / MEASURED.as_secs_f64(),
        pair.server.rss_bytes()
    );
    assert!(sent > 3000.0, "no flood: {sent} packets");
    assert!(flooded >= KEPT * alone, "{flooded:.1} Mbit/s of {alone:.1} are left");
    assert!(connecting <= most_handshakes, "{connecting} handshakes under way");
    // The kernel drops some before the server can count them.
    assert!(answered > sent / 3.0, "{answered} of {sent} packets counted");
    assert!(pair.server.rss_bytes() < rss + (64 << 20));
    pair.assert_running();
}

#[test]
fn from_everywhere() {
    measure(
        |builder| {
            builder
                .server("limits.max_handshakes_per_source_ip", 100_000)
                .server("limits.handshake_rate_per_source_ip", 100_000)
        },
        "retry",
        64.0,
    );
}

#[test]
fn from_one_address() {
    measure(
        |builder| builder.server("limits.retry_threshold_handshakes", 1_000_000),
        "peer_handshakes",
        256.0,
    );
}
