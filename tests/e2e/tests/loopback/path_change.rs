//! A NAT that loses its mappings: the server sees the client at another port, the connection moves,
//! and flows go on.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use millrace_e2e::admin::{self, Metrics};
use millrace_e2e::origin::{Origin, answer_with_hash, source};
use millrace_e2e::pair::{Pair, PairBuilder};
use millrace_e2e::relay::{Faults, RelayOptions};
use millrace_e2e::{data, wait};
use socket2::Socket;

/// More than a connection has paths and connection IDs.
const REBINDS: usize = 20;
/// What goes through between two changes.
const PART_BYTES: usize = 400_000;
const BYTES: usize = PART_BYTES * (REBINDS + 1);

fn pair(options: RelayOptions) -> PairBuilder {
    Pair::builder()
        .both("tunnel.congestion_control", "{ name = \"constant\", rate_mbps = 60 }")
        .both("runtime.workers", 2)
        .both("log.level", "\"debug\"")
        .relay(options)
}

fn open(pair: &Pair, origin: &Origin) -> Socket {
    let flow = pair.http().open(&origin.address().to_string()).unwrap();
    flow.set_read_timeout(Some(wait::DEFAULT_TIMEOUT)).unwrap();
    flow.set_write_timeout(Some(wait::DEFAULT_TIMEOUT)).unwrap();
    flow
}

fn rebind(pair: &Pair) {
    pair.relay.as_ref().unwrap().rebind();
}

/// The server's name for the connection of the only flow.
fn connection(pair: &Pair) -> serde_json::Value {
    admin::flows(pair.addresses.server_admin)["flows"][0]["connection"].clone()
}

/// The mapping changes after each part of a download.
fn download(options: RelayOptions) -> Pair {
    let pair = pair(options).start();
    let origin = Origin::start(source(21, BYTES as u64));
    let mut flow = open(&pair, &origin);
    let mut whole = vec![0; BYTES];
    let before = connection(&pair);
    for (index, part) in whole.chunks_mut(PART_BYTES).enumerate() {
        let read = flow.read_exact(part);
        read.unwrap_or_else(|error| panic!("after {index} changes: {error}"));
        if index == REBINDS / 2 {
            assert_eq!(connection(&pair), before, "the flow is on another connection");
        }
        rebind(&pair);
    }
    assert!(whole == data::pattern(21, BYTES), "other bytes after the change");
    assert_eq!(flow.read(&mut [0]).unwrap(), 0);
    pair
}

#[test]
fn a_download_goes_on_when_the_nat_rebinds() {
    let pair = download(RelayOptions::default());
    assert!(pair.server.log_text().contains("peer migrated"));
    let client = Metrics::fetch(pair.addresses.client_admin);
    assert_eq!(client.failed_flows(), 0.0);
}

/// The first packets on a new path are lost now and then, those that prove it too.
#[test]
fn a_download_goes_on_when_the_nat_rebinds_and_packets_are_lost() {
    let one_way = Duration::from_millis(5);
    download(RelayOptions { one_way, loss_permille: 10, ..Default::default() });
}

#[test]
fn an_upload_goes_on_when_the_nat_rebinds() {
    let pair = pair(RelayOptions::default()).start();
    let origin = Origin::start(answer_with_hash);
    let mut flow = open(&pair, &origin);
    let whole = data::pattern(22, BYTES);
    for (index, part) in whole.chunks(PART_BYTES).enumerate() {
        let written = flow.write_all(part);
        written.unwrap_or_else(|error| panic!("after {index} changes: {error}"));
        rebind(&pair);
    }
    flow.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    flow.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, data::receive(whole.as_slice()).unwrap().to_string());
}

/// Only the server has something to send, and can't know where to: the client tells it by the PING
/// that it sends after `health_interval_ms` of silence. In some of the turns the mapping changes
/// once more while the server validates the path (RFC 9000, Section 8.2).
#[test]
fn a_flow_that_waits_is_reached_after_the_nat_rebinds() {
    let pair = pair(RelayOptions::default()).start();
    let (say, said) = channel::<u8>();
    let said = Mutex::new(said);
    let origin = Origin::start(move |mut socket| {
        while let Ok(byte) = said.lock().unwrap().recv() {
            socket.write_all(&[byte]).unwrap();
        }
    });
    let mut flow = open(&pair, &origin);
    for turn in 0..8 {
        rebind(&pair);
        say.send(turn).unwrap();
        if turn % 2 == 1 {
            follows(&pair);
            rebind(&pair);
        }
        let mut byte = [0];
        flow.read_exact(&mut byte).unwrap_or_else(|error| panic!("in turn {turn}: {error}"));
        assert_eq!(byte, [turn]);
    }
}

/// Waits until the relay has carried something towards the server since its last change.
fn follows(pair: &Pair) {
    wait::for_true("a packet from the new address", wait::DEFAULT_TIMEOUT, || {
        pair.relay.as_ref().unwrap().has_sent()
    });
}

/// A handshake needs a path that stays (RFC 9000, Section 9): the next attempt has one.
#[test]
fn the_tunnel_comes_up_after_the_nat_rebinds_in_handshakes() {
    let one_way = Duration::from_millis(20);
    let pair = pair(RelayOptions { one_way, ..Default::default() }).unhealthy().start();
    let healthy = || matches!(admin::get(pair.addresses.client_admin, "/healthz"), Ok((200, _)));
    wait::until(Duration::from_millis(500), || {
        rebind(&pair);
        healthy().then_some(())
    });
    pair.wait_healthy(wait::DEFAULT_TIMEOUT);
    let origin = Origin::start(source(23, 1000));
    let to = origin.address().to_string();
    // Other connections than the first may still have to find out.
    let flow = wait::until(wait::DEFAULT_TIMEOUT, || pair.http().open(&to).ok());
    let mut bytes = Vec::new();
    flow.expect("a flow").read_to_end(&mut bytes).unwrap();
    assert!(bytes == data::pattern(23, 1000));
}

/// Bytes that a flow moves before it rests, and flows at a time in each direction.
const BURST_BYTES: usize = 10_000;
const FLOWS_EACH_WAY: u64 = 20;

/// Moves [`BURST_BYTES`] over a flow.
type Burst = fn(&Socket);

/// A path on which much goes wrong, with a short round trip: packets are lost, come twice and late, and those of more
/// than 1,222 bytes do not arrive.
const BAD_PATH: Faults = Faults {
    corrupt_permille: 0,
    duplicate_permille: 63,
    reorder_permille: 74,
    lose_permille: 18,
    max_datagram_bytes: 1222,
};

/// Opens flows one after the other until it is told to stop; each moves some bursts.
fn keep_busy(stop: &AtomicBool, number: u64, open: impl Fn() -> Socket, burst: Burst) {
    let mut turn = number;
    while !stop.load(Ordering::Relaxed) {
        let flow = open();
        for _ in 0..turn % 20 {
            burst(&flow);
            std::thread::sleep(Duration::from_millis(5));
        }
        turn += 7;
        std::thread::sleep(Duration::from_millis(37 * turn % 800));
    }
}

/// Both ends then have to find out the size and the address at the same time: packets that prove an address must not be
/// larger than the path carries, or none ever comes through.
#[test]
fn connections_are_heard_when_the_nat_rebinds_and_the_path_mtu_falls_at_once() {
    let pair = Pair::builder()
        .client("tunnel.health_interval_ms", 300)
        .client("tunnel.health_timeout_ms", 2500)
        .client("runtime.workers", 8)
        .relay(RelayOptions::default())
        .measured()
        .start();
    let (source, sink) = (Origin::start(source(24, 1 << 40)), Origin::start(answer_with_hash));
    let bursts: [(&Origin, Burst); 2] = [
        (&source, |mut flow| drop(flow.read_exact(&mut [0; BURST_BYTES]))),
        (&sink, |mut flow| drop(flow.write_all(&[0; BURST_BYTES]))),
    ];
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..FLOWS_EACH_WAY {
            for (origin, burst) in bursts {
                let (pair, stop) = (&pair, &stop);
                scope.spawn(move || keep_busy(stop, number, || open(pair, origin), burst));
            }
        }
        let relay = pair.relay.as_ref().unwrap();
        for _ in 0..2 {
            relay.set_faults(BAD_PATH);
            rebind(&pair);
            std::thread::sleep(Duration::from_millis(3300));
            rebind(&pair);
            std::thread::sleep(Duration::from_millis(3300));
            relay.set_faults(Faults::default());
            std::thread::sleep(Duration::from_millis(500));
        }
        stop.store(true, Ordering::Relaxed);
    });
    let log = pair.client.log_text();
    assert!(log.contains("path MTU fell"), "the path has changed nothing");
    assert!(!log.contains("server unresponsive"), "{log}");
}
