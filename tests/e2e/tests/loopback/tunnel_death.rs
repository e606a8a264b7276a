//! The tunnel dies while flows run: they end with a reset on both sides, never as if complete, and
//! new ones work when it is back.

use std::io::{Read, Write};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use millrace_e2e::data::{self, Sum};
use millrace_e2e::listeners::{Refusal, TestListener};
use millrace_e2e::origin::{Origin, answer_with_hash};
use millrace_e2e::pair::{Pair, PairBuilder};
use millrace_e2e::relay::RelayOptions;
use millrace_e2e::tcp::{self, End};
use millrace_e2e::wait;

/// More than a test lives to see.
const ENDLESS: u64 = 1 << 40;
/// A rate at which nothing fills up before the tunnel dies.
const SLOW: &str = "{ name = \"constant\", rate_mbps = 40 }";

/// How a connection of the origin ended, and what it had got.
type Told = mpsc::Receiver<(Sum, End)>;

fn builder() -> PairBuilder {
    Pair::builder()
        .both("tunnel.congestion_control", SLOW)
        .both("tunnel.idle_timeout_s", 2)
        .client("tunnel.keepalive_s", 1)
        .client("tunnel.reconnect_max_s", 1)
        .client("tunnel.connect_timeout_s", 2)
}

/// Sends endlessly and says how it ended.
fn source() -> (Origin, Told) {
    let (tell, told) = mpsc::channel();
    let origin = Origin::start(move |stream| {
        let error = data::send(&stream, 13, ENDLESS).unwrap_err();
        tell.send((Sum { bytes: 0, sha256: [0; 32] }, End::of(Some(&error)))).unwrap();
    });
    (origin, told)
}

/// Receives and says how it ended.
fn sink() -> (Origin, Told) {
    let (tell, told) = mpsc::channel();
    let origin = Origin::start(move |stream| {
        let (sum, error) = data::receive_until_error(&stream);
        tell.send((sum, End::of(error.as_ref()))).unwrap();
    });
    (origin, told)
}

/// Runs one download and one upload through every listener on TCP, does `kill` once all of them move,
/// and checks the ends on both sides.
fn all_flows_are_reset(pair: &mut Pair, kill: impl FnOnce(&mut Pair), check_origins: bool) {
    let ((down, sent), (up, received)) = (source(), sink());
    let listeners: Vec<TestListener> = pair.listeners[1..4].to_vec();
    let (moving, moves) = mpsc::channel();
    let count = listeners.len();
    let ends: Vec<(String, End)> = std::thread::scope(|scope| {
        let mut flows = Vec::new();
        for listener in listeners {
            let download = listener.open(&down.address().to_string()).unwrap();
            let upload = listener.open(&up.address().to_string()).unwrap();
            let (name, moving_down, moving_up) =
                (format!("{listener:?}"), moving.clone(), moving.clone());
            let up_name = name.clone();
            flows.push(scope.spawn(move || {
                let mut start = [0; 50_000];
                (&download).read_exact(&mut start).unwrap();
                moving_down.send(()).unwrap();
                let (_, error) = data::receive_until_error(&download);
                (format!("download by {name}"), End::of(error.as_ref()))
            }));
            flows.push(scope.spawn(move || {
                data::send(&upload, 14, 50_000).unwrap();
                moving_up.send(()).unwrap();
                let error = data::send(&upload, 15, ENDLESS).unwrap_err();
                (format!("upload by {up_name}"), End::of(Some(&error)))
            }));
        }
        for _ in 0..2 * count {
            moves.recv_timeout(tcp::IO_TIMEOUT).unwrap();
        }
        std::thread::sleep(Duration::from_millis(200));
        kill(pair);
        flows.into_iter().map(|flow| flow.join().unwrap()).collect()
    });
    for (name, end) in ends {
        assert_eq!(end, End::Reset, "{name}");
    }
    for _ in 0..if check_origins { count } else { 0 } {
        let (_, end) = sent.recv_timeout(tcp::IO_TIMEOUT).unwrap();
        assert_eq!(end, End::Reset, "the origin of a download");
        let (sum, end) = received.recv_timeout(tcp::IO_TIMEOUT).unwrap();
        assert_eq!(end, End::Reset, "the origin of an upload, after {} bytes", sum.bytes);
    }
}

/// A flow works end to end, at the latest when every connection has been replaced.
fn a_flow_works(pair: &Pair) {
    let origin = Origin::start(answer_with_hash);
    let flow =
        wait::until(wait::DEFAULT_TIMEOUT, || pair.http().open(&origin.address().to_string()).ok());
    let flow = flow.expect("a new flow opens");
    let sent = data::send(&flow, 16, 1_000_000).unwrap();
    flow.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(tcp::drain(&flow), (sent.to_string().into_bytes(), End::Eof));
}

#[test]
fn a_killed_server_resets_all_flows_and_the_client_comes_back() {
    let mut pair = builder().start();
    a_flow_works(&pair);
    // After a kill the kernel closes the server's sockets, not the server.
    all_flows_are_reset(&mut pair, |pair| pair.server.kill(), false);
    assert!(pair.client.is_running());
    // With no server the client refuses at once, in words.
    let started = Instant::now();
    match pair.http().open("127.0.0.1:9") {
        Err(Refusal::Http { status: 503, head }) => {
            assert!(head.contains("destination_unavailable"), "{head}");
        }
        other => panic!("{other:?}"),
    }
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    assert!(matches!(pair.listeners[2].open("127.0.0.1:9"), Err(Refusal::Socks(1))));
    pair.start_server_again();
    pair.wait_healthy(wait::DEFAULT_TIMEOUT);
    a_flow_works(&pair);
}

#[test]
fn a_killed_client_resets_all_flows_at_the_origin() {
    let mut pair = builder().start();
    let (origin, told) = sink();
    let mut flow = pair.http().open(&origin.address().to_string()).unwrap();
    data::send(&flow, 17, 100_000).unwrap();
    flow.write_all(b"not the end").unwrap();
    std::thread::sleep(Duration::from_millis(300));
    pair.client.kill();
    let (sum, end) = told.recv_timeout(tcp::IO_TIMEOUT).unwrap();
    assert_eq!(end, End::Reset, "the origin got {} bytes and an end", sum.bytes);
    assert!(pair.server.is_running());
    pair.start_client_again();
    pair.wait_healthy(wait::DEFAULT_TIMEOUT);
    a_flow_works(&pair);
}

#[test]
fn a_path_that_swallows_everything_resets_all_flows_on_both_sides() {
    let mut pair = builder().relay(RelayOptions::default()).start();
    let cut = |pair: &mut Pair| pair.relay.as_ref().unwrap().swallow(true);
    all_flows_are_reset(&mut pair, cut, true);
    pair.assert_running();
    pair.relay.as_ref().unwrap().swallow(false);
    pair.wait_healthy(wait::DEFAULT_TIMEOUT);
    a_flow_works(&pair);
}

/// An outage that is shorter than the idle timeout costs time and nothing else.
#[test]
fn a_short_outage_ends_nothing() {
    let pair = builder().both("tunnel.idle_timeout_s", 20).relay(RelayOptions::default()).start();
    let origin = Origin::start(millrace_e2e::origin::source(18, 10_000_000));
    let mut flow = pair.http().open(&origin.address().to_string()).unwrap();
    let mut start = [0; 100_000];
    flow.read_exact(&mut start).unwrap();
    let relay = pair.relay.as_ref().unwrap();
    relay.swallow(true);
    std::thread::sleep(Duration::from_secs(1));
    relay.swallow(false);
    let mut whole = start.to_vec();
    flow.read_to_end(&mut whole).unwrap();
    assert!(relay.swallowed() > 0);
    assert!(whole == data::pattern(18, 10_000_000), "other bytes after the outage");
}
