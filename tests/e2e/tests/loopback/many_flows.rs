//! Many flows at once and one after the other: all are right, and nothing is left behind.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use millrace_e2e::admin::Metrics;
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::Pair;
use millrace_e2e::{data, tcp, wait};
use socket2::Socket;

const MIB: u64 = 1 << 20;

/// What each of the concurrent flows sends, and gets back.
const FLOW_BYTES: usize = 64 * 1024;

#[test]
fn a_thousand_flows_at_once_are_right_and_memory_comes_back() {
    const FLOWS: usize = 1000;
    let origin = Origin::echo();
    let pair = Pair::builder().alone().start();
    // What the first flows cost once (connections, pools) is not what is looked for.
    for round in 0..20 {
        finish_flow(open_flow(&pair, round, &origin), round);
    }
    let rss = || [pair.client.rss_bytes(), pair.server.rss_bytes()];
    let before = rss();
    // First halves, all of them open; then the second ones.
    let flows = on_threads(FLOWS, |seed| open_flow(&pair, seed, &origin));
    let metrics = [pair.addresses.client_admin, pair.addresses.server_admin].map(Metrics::fetch);
    let during = rss();
    for metrics in metrics {
        assert_eq!(metrics.sum("millrace_flows_active", &[]), FLOWS as f64);
    }
    let flows: Vec<_> = flows.into_iter().map(|flow| Mutex::new(Some(flow))).collect();
    on_threads(FLOWS, |seed| finish_flow(flows[seed].lock().unwrap().take().unwrap(), seed));
    println!("rss: before {before:?}, with {FLOWS} flows {during:?}");
    for (before, during) in before.into_iter().zip(during) {
        // 64 KiB for each idle flow is the promise; here they have carried data too.
        let most = before + FLOWS as u64 * 128 * 1024;
        assert!(during <= most, "{during} bytes resident with {FLOWS} flows, before {before}");
    }
    wait::for_true("all flows are gone", wait::DEFAULT_TIMEOUT, || {
        let admins = [pair.addresses.client_admin, pair.addresses.server_admin];
        admins.iter().all(|at| Metrics::fetch(*at).sum("millrace_flows_active", &[]) == 0.0)
    });
    let has_fallen = |after: u64, before: u64| after <= before + before / 2 + 16 * MIB;
    let after = wait::until(wait::DEFAULT_TIMEOUT, || {
        let after = rss();
        (0..2).all(|i| has_fallen(after[i], before[i])).then_some(after)
    });
    println!("rss: after {:?}", rss());
    assert!(after.is_some(), "memory before {before:?}, after {:?}", rss());
}

/// More than the handshakes that a server lets one address begin at a time.
#[test]
fn five_hundred_flows_with_a_connection_each_begin_at_once() {
    const FLOWS: usize = 500;
    let origin = Origin::echo();
    let pair = Pair::builder().client("tunnel.connections", "\"per_flow\"").alone().start();
    let flows = on_threads(FLOWS, |seed| Mutex::new(Some(open_flow(&pair, seed, &origin))));
    let server = Metrics::fetch(pair.addresses.server_admin);
    let established = [("state", "established")];
    assert!(server.sum("millrace_connections", &established) >= FLOWS as f64);
    on_threads(FLOWS, |seed| finish_flow(flows[seed].lock().unwrap().take().unwrap(), seed));
}

/// Does `work` on as many threads at once, and answers what came of it.
fn on_threads<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let work = &work;
        let start = |seed| {
            let thread = std::thread::Builder::new().stack_size(256 * 1024);
            thread.spawn_scoped(scope, move || work(seed)).unwrap()
        };
        let threads: Vec<_> = (0..count).map(start).collect();
        let done: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        let failed = done.iter().filter(|done| done.is_err()).count();
        assert_eq!(failed, 0, "flows of {count} that failed");
        done.into_iter().flatten().collect()
    })
}

/// Opens a flow to an echo and sends the first half of a pattern there and back.
fn open_flow(pair: &Pair, seed: usize, origin: &Origin) -> Socket {
    let listener = &pair.listeners[1 + seed % 4];
    let flow = listener.open(&origin.address().to_string());
    let flow = flow.unwrap_or_else(|error| panic!("flow {seed} by {listener:?}: {error:?}"));
    there_and_back(&flow, seed, 0..FLOW_BYTES / 2);
    flow
}

/// Sends the second half, and ends the flow.
fn finish_flow(flow: Socket, seed: usize) {
    there_and_back(&flow, seed, FLOW_BYTES / 2..FLOW_BYTES);
    flow.shutdown(Shutdown::Write).unwrap();
    assert_eq!(tcp::drain(&flow), (vec![], tcp::End::Eof), "end of flow {seed}");
}

fn there_and_back(mut flow: &Socket, seed: usize, part: std::ops::Range<usize>) {
    let sent = data::pattern(seed as u64, FLOW_BYTES);
    let mut received = vec![0; part.len()];
    let done = flow.write_all(&sent[part.clone()]).and_then(|()| flow.read_exact(&mut received));
    done.unwrap_or_else(|error| panic!("bytes {part:?} of flow {seed}: {error}"));
    assert!(sent[part] == received, "flow {seed} got other bytes than it sent");
}

#[test]
fn ten_thousand_flows_in_turn_leave_no_descriptor_and_no_memory() {
    const FLOWS: usize = 10_000;
    let pair = Pair::builder().alone().start();
    let origin = Origin::start(|mut stream| {
        let mut request = [0; 4];
        if stream.read_exact(&mut request).is_ok() {
            stream.write_all(&request).ok();
        }
    });
    in_turn(&pair, FLOWS, |number| small_flow(&pair, number, &origin));
    let client = Metrics::fetch(pair.addresses.client_admin);
    assert!(
        client.sum("millrace_flows_finished_total", &[("outcome", "complete")]) >= FLOWS as f64
    );
}

#[test]
fn flows_that_are_cut_off_in_turn_leave_no_descriptor_and_no_memory() {
    const FLOWS: usize = 20_000;
    let pair = Pair::builder().alone().start();
    let origin = Origin::start(|mut stream| {
        let mut ender = [0];
        match stream.read_exact(&mut ender) {
            Ok(()) if ender == BY_ORIGIN => tcp::reset(stream),
            Ok(()) => {
                while stream.write_all(&ender).is_ok() {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            Err(_) => {}
        }
    });
    in_turn(&pair, FLOWS, |number| cut_off(&pair, number, &origin));
    let client = Metrics::fetch(pair.addresses.client_admin);
    assert!(client.failed_flows() >= FLOWS as f64);
}

/// Runs flows, a few at a time, and looks after each fifth of them for what they left.
fn in_turn(pair: &Pair, flows: usize, run: impl Fn(u32) + Sync) {
    const PARALLEL: usize = 8;
    let step = flows / 5;
    let next = AtomicUsize::new(0);
    let run_until = |end: usize| {
        std::thread::scope(|scope| {
            for _ in 0..PARALLEL {
                scope.spawn(|| {
                    while next.load(Ordering::Relaxed) < end {
                        let flow = next.fetch_add(1, Ordering::Relaxed);
                        run(flow as u32);
                    }
                });
            }
        });
        wait::for_true("all flows are gone", wait::DEFAULT_TIMEOUT, || {
            let admins = [pair.addresses.client_admin, pair.addresses.server_admin];
            admins.iter().all(|at| Metrics::fetch(*at).sum("millrace_flows_active", &[]) == 0.0)
        });
        let programs = [&pair.client, &pair.server];
        (programs.map(|p| p.descriptors()), programs.map(|p| p.rss_bytes()))
    };
    let (descriptors, first_rss) = run_until(step);
    let mut last_rss = first_rss;
    for end in (2 * step..=flows).step_by(step) {
        let (now, rss) = run_until(end);
        println!("after {end} flows: descriptors {now:?}, rss {rss:?}");
        // Admin connections come and go.
        for (now, first) in now.iter().zip(&descriptors) {
            assert!(*now <= first + 4, "{now} descriptors after {end} flows, {first} after {step}");
        }
        last_rss = rss;
    }
    for (first, last) in first_rss.iter().zip(&last_rss) {
        let most = first + MIB;
        assert!(*last <= most, "memory after {step} flows {first}, after {flows} {last}");
    }
}

fn small_flow(pair: &Pair, number: u32, origin: &Origin) {
    let listener = &pair.listeners[1 + number as usize % 4];
    let mut flow = listener.open(&origin.address().to_string()).unwrap();
    flow.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    flow.write_all(&number.to_be_bytes()).unwrap();
    let (answer, end) = tcp::drain(&flow);
    assert_eq!((answer, end), (number.to_be_bytes().to_vec(), tcp::End::Eof), "flow {number}");
}

/// The end that cuts a flow off.
const BY_ORIGIN: [u8; 1] = [1];
/// See [`BY_ORIGIN`].
const BY_CLIENT: [u8; 1] = [2];

fn cut_off(pair: &Pair, number: u32, origin: &Origin) {
    // Not the Unix socket, which can't carry a reset.
    let listener = &pair.listeners[1 + number as usize / 3 % 3];
    let mut flow = listener.open(&origin.address().to_string()).unwrap();
    if number.is_multiple_of(3) {
        flow.write_all(&BY_ORIGIN).unwrap();
        return assert_eq!(tcp::drain(&flow), (vec![], tcp::End::Reset), "flow {number}");
    }
    flow.write_all(&BY_CLIENT).unwrap();
    flow.read_exact(&mut [0]).unwrap();
    if number % 3 == 1 {
        // What it sends has an end in order, and is acknowledged.
        flow.shutdown(Shutdown::Write).unwrap();
        flow.read_exact(&mut [0; 2]).unwrap();
    }
    tcp::reset(flow);
}
