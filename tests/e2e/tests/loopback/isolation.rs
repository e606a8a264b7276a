//! Flows whose readers do not read cost the others nothing.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use millrace_e2e::admin::Metrics;
use millrace_e2e::data;
use millrace_e2e::origin::{self, Blackhole, Origin};
use millrace_e2e::pair::{Pair, PairBuilder};
use millrace_e2e::relay::RelayOptions;
use millrace_e2e::wait::DEFAULT_TIMEOUT;
use millrace_e2e::{tcp, wait};
use socket2::Socket;

/// What a paused viewer reads before it pauses.
const HEAD_BYTES: usize = 256 << 10;
/// The transfer that goes on beside the paused ones.
const ACTIVE_BYTES: u64 = 8 << 20;
/// It takes a fraction of a second, and twice that where the machine does other things.
const MAX_ACTIVE_TIME: Duration = Duration::from_secs(5);
const ONE_WAY: Duration = Duration::from_millis(10);

fn pair(builder: PairBuilder) -> Pair {
    let path = RelayOptions { one_way: ONE_WAY, ..RelayOptions::default() };
    builder.both("runtime.workers", 1).relay(path).alone().start()
}

fn per_flow() -> PairBuilder {
    Pair::builder().client("tunnel.connections", "\"per_flow\"")
}

/// Viewers that read a little and pause; each flow is kept with its seed.
fn paused_viewers(pair: &Pair, origin: &Origin, count: usize) -> Vec<Socket> {
    let paused = |_| {
        let mut flow = pair.http().open(&origin.address().to_string()).unwrap();
        let mut head = vec![0; HEAD_BYTES];
        flow.read_exact(&mut head).unwrap();
        flow
    };
    (0..count).map(paused).collect()
}

/// An origin whose connections are handed over and never read from.
fn silent_origin() -> (Origin, Receiver<Socket>) {
    let (give, given) = mpsc::channel();
    (Origin::start(move |stream| drop(give.send(stream))), given)
}

/// Uploads that stop because the origin does not read, or does not answer.
fn stuck_uploads(pair: &Pair, destination: &str, count: usize) -> Vec<Socket> {
    let stuck = |_| {
        let mut flow = pair.listeners[3].open(destination).unwrap();
        flow.set_nonblocking(true).unwrap();
        let block = vec![7; 1 << 16];
        let quiet = Duration::from_millis(150);
        let mut moved = Instant::now();
        while moved.elapsed() < quiet {
            match flow.write(&block) {
                Ok(1..) => moved = Instant::now(),
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        flow
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|i| scope.spawn(move || stuck(i))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn assert_downloads(pair: &Pair, what: &str) {
    let origin = Origin::start(origin::source(5, ACTIVE_BYTES));
    let started = Instant::now();
    let flow = pair.http().open(&origin.address().to_string()).unwrap();
    let received = data::receive(&flow).unwrap();
    let took = started.elapsed();
    println!("{what}: {ACTIVE_BYTES} bytes in {took:?}");
    assert_eq!(received, data::send(std::io::sink(), 5, ACTIVE_BYTES).unwrap());
    assert!(took < MAX_ACTIVE_TIME, "{what}: {took:?}");
}

fn assert_uploads(pair: &Pair, what: &str) {
    let origin = Origin::start(origin::answer_with_hash);
    let started = Instant::now();
    let flow = pair.http().open(&origin.address().to_string()).unwrap();
    let sent = data::send(&flow, 6, ACTIVE_BYTES).unwrap();
    flow.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    (&flow).read_to_string(&mut answer).unwrap();
    let took = started.elapsed();
    println!("{what}: {ACTIVE_BYTES} bytes up in {took:?}");
    assert_eq!(answer, sent.to_string());
    assert!(took < MAX_ACTIVE_TIME, "{what}: {took:?}");
}

fn paused_flows_stop_nothing(builder: PairBuilder) {
    let pair = pair(builder);
    let endless = Origin::start(|stream| drop(data::send(&stream, 3, 1 << 40)));
    let mut paused = Vec::new();
    for more in [4, 56] {
        paused.extend(paused_viewers(&pair, &endless, more));
        assert_downloads(&pair, &format!("{} paused", paused.len()));
    }
    let (silent, _given) = silent_origin();
    paused.extend(stuck_uploads(&pair, &silent.address().to_string(), 16));
    assert_uploads(&pair, "with paused downloads and stuck uploads");
    assert_downloads(&pair, "with paused downloads and stuck uploads");
}

#[test]
fn paused_flows_of_a_shared_connection_do_not_stop_others() {
    paused_flows_stop_nothing(Pair::builder());
}

#[test]
fn paused_flows_with_connections_of_their_own_do_not_stop_others() {
    paused_flows_stop_nothing(per_flow());
}

#[test]
fn uploads_to_destinations_that_do_not_answer_do_not_stop_others() {
    let pair = pair(Pair::builder());
    let blackhole = Blackhole::open();
    let stuck = stuck_uploads(&pair, &blackhole.address().to_string(), 32);
    assert_uploads(&pair, "beside flows that are not connected");
    assert_downloads(&pair, "beside flows that are not connected");
    drop(stuck);
}

#[test]
fn paused_flows_that_are_half_closed_do_not_stop_others() {
    let pair = pair(Pair::builder());
    let endless = Origin::start(|stream| drop(data::send(&stream, 3, 1 << 40)));
    let paused = paused_viewers(&pair, &endless, 60);
    for flow in &paused {
        flow.shutdown(Shutdown::Write).unwrap();
    }
    assert_downloads(&pair, "beside half-closed flows");
    drop(paused);
}

#[test]
fn readers_of_a_few_bytes_a_second_do_not_stop_others() {
    let pair = pair(Pair::builder());
    let endless = Origin::start(|stream| drop(data::send(&stream, 3, 1 << 40)));
    let slow = paused_viewers(&pair, &endless, 30);
    let stopped = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stopped.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(20));
                for mut flow in &slow {
                    flow.read_exact(&mut [0; 20]).unwrap();
                }
            }
        });
        assert_downloads(&pair, "beside slow readers");
        stopped.store(true, Ordering::Relaxed);
    });
}

/// The longest time that a slow reader of a download waits; it ends early once that is too long.
fn longest_wait(pair: &Pair, origin: &Origin) -> Duration {
    const READ_BYTES: usize = 32 << 10;
    const READ_INTERVAL: Duration = Duration::from_millis(20);
    const READS: u32 = 200;
    let mut download = pair.http().open(&origin.address().to_string()).unwrap();
    // Several of the segments of loopback, 64 KiB each.
    download.set_recv_buffer_size(256 << 10).unwrap();
    let (mut longest, mut chunk) = (Duration::ZERO, [0; READ_BYTES]);
    for _ in 0..READS {
        std::thread::sleep(READ_INTERVAL);
        let asked = Instant::now();
        download.read_exact(&mut chunk).unwrap();
        longest = longest.max(asked.elapsed());
        if longest > MAX_SLOW_READER_WAIT {
            break;
        }
    }
    longest
}

/// Much less than a turn of all uploads beside it.
const MAX_SLOW_READER_WAIT: Duration = Duration::from_secs(1);

/// A reader that takes a little at a time has room again and again. What it may have is there; only the turns of the
/// uploads, three seconds for all of them, could keep it waiting.
#[test]
fn slow_readers_do_not_wait_for_uploads_of_their_connection() {
    const UPLOADS: usize = 100;
    const RATE: &str = "{ name = \"constant\", rate_mbps = 20 }";
    let pair = pair(Pair::builder().both("tunnel.congestion_control", RATE));
    let sink = Origin::start(|mut flow| drop(std::io::copy(&mut flow, &mut std::io::sink())));
    let endless = Origin::start(|flow| drop(data::send(&flow, 3, 1 << 40)));
    let open_upload = |_| {
        let upload = pair.http().open(&sink.address().to_string()).unwrap();
        upload.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
        upload.set_send_buffer_size(64 << 10).unwrap();
        // Ends at once, without what is queued.
        upload.set_linger(Some(Duration::ZERO)).unwrap();
        upload
    };
    let uploads: Vec<_> = (0..UPLOADS).map(open_upload).collect();
    let (stopped, uploaded) = (AtomicBool::new(false), AtomicU64::new(0));
    let longest = std::thread::scope(|scope| {
        for mut upload in uploads {
            let (stopped, uploaded) = (&stopped, &uploaded);
            scope.spawn(move || {
                let block = vec![7; 1 << 16];
                while !stopped.load(Ordering::Relaxed) {
                    let written = upload.write(&block).unwrap_or(0);
                    uploaded.fetch_add(written as u64, Ordering::Relaxed);
                }
            });
        }
        let longest = panic::catch_unwind(AssertUnwindSafe(|| {
            wait::for_true("all uploads wait for their turns", DEFAULT_TIMEOUT, || {
                uploaded.load(Ordering::Relaxed) > (UPLOADS as u64) << 18
            });
            longest_wait(&pair, &endless)
        }));
        stopped.store(true, Ordering::Relaxed);
        longest
    });
    let longest = longest.unwrap_or_else(|panic| panic::resume_unwind(panic));
    println!("beside {UPLOADS} uploads a slow reader waits for {longest:?} at most");
    assert!(longest <= MAX_SLOW_READER_WAIT, "{longest:?}");
}

/// Loopback's segments of 64 KiB take more memory than the receiver expects, so that it drops some for which its
/// window had room. The sender's retransmissions back off for as long as the reader pauses, 120 s at most
/// (`TCP_RTO_MAX`): 116 of 1,000 plain TCP flows that paused for 20 s, without Millrace.
const KERNEL_BACKOFF: Duration = Duration::from_secs(150);

/// Most that a paused flow may hold: the smallest window of a stream and one read (docs/design/architecture.md, "Bounds").
const PAUSED_FLOW_BYTES: usize = (256 + 256) << 10;

/// What both programs hold for `count` paused flows, and that all of their bytes come after that.
fn paused_flows_resume(count: usize, pause: Duration) {
    const FLOW_BYTES: u64 = 3 << 20;
    let origin = Origin::start(move |mut stream| {
        stream.set_write_timeout(None).unwrap();
        stream.set_read_timeout(None).unwrap();
        data::send(&stream, 9, FLOW_BYTES).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        // A socket that is closed with data in its buffer lasts for some minutes only (`tcp_orphan_retries`).
        drop(stream.read(&mut [0]));
    });
    let pair = Pair::builder().both("runtime.workers", 1).alone().start();
    let destination = origin.address().to_string();
    let flows: Vec<_> = (0..count).map(|_| pair.http().open(&destination).unwrap()).collect();
    let admins = [pair.addresses.client_admin, pair.addresses.server_admin];
    let used = || admins.map(|at| Metrics::fetch(at).sum("millrace_memory_used_bytes", &[]));
    // Still when nothing has come for a while.
    let still = wait::until(Duration::from_secs(60), || {
        let before = used();
        std::thread::sleep(Duration::from_millis(1000));
        (used() == before && before[0] > 0.0).then_some(before)
    });
    let used = still.expect("paused flows come to rest");
    let rss = [pair.client.rss_bytes(), pair.server.rss_bytes()];
    println!("{count} paused flows: {used:?} bytes used, rss {rss:?}");
    for used in used {
        assert!(
            used <= (count * PAUSED_FLOW_BYTES) as f64,
            "{used} bytes for {count} paused flows"
        );
    }
    std::thread::sleep(pause);
    let whole = data::send(std::io::sink(), 9, FLOW_BYTES).unwrap();
    std::thread::scope(|scope| {
        for share in flows.chunks(count.div_ceil(4 * THREADS)) {
            scope.spawn(move || {
                for flow in share {
                    flow.set_read_timeout(Some(KERNEL_BACKOFF)).unwrap();
                    assert_eq!(data::receive(flow).unwrap(), whole);
                }
            });
        }
    });
    drop(flows);
    for at in admins {
        assert_eq!(Metrics::fetch(at).failed_flows(), 0.0);
    }
}

#[test]
fn paused_flows_hold_little_and_resume_whole() {
    paused_flows_resume(150, Duration::ZERO);
}

#[test]
#[ignore = "takes ten minutes; run by make test-full"]
fn a_thousand_flows_stay_paused_for_ten_minutes() {
    paused_flows_resume(1000, Duration::from_secs(600));
}

#[test]
fn slowest_flows_are_reset_over_the_memory_cap_and_others_go_on() {
    let cap_mb = 8;
    let pair = pair(
        Pair::builder()
            .client("tunnel.memory_cap_mb", cap_mb)
            .both("tunnel.max_stream_window_bytes", 1 << 20)
            .both("tunnel.max_connection_window_bytes", 4 << 20),
    );
    let endless = Origin::start(|stream| drop(data::send(&stream, 3, 1 << 40)));
    let paused = paused_viewers(&pair, &endless, 45);
    let reset = || {
        let metrics = Metrics::fetch(pair.addresses.client_admin);
        metrics.sum("millrace_flows_finished_total", &[("outcome", "memory")])
    };
    wait::for_true("flows are reset", Duration::from_secs(10), || reset() > 0.0);
    assert_downloads(&pair, "over the cap");
    let used = wait::until(Duration::from_secs(5), || {
        let metrics = Metrics::fetch(pair.addresses.client_admin);
        let used = metrics.sum("millrace_memory_used_bytes", &[]);
        (used <= f64::from(cap_mb) * 1e6).then_some(used)
    });
    assert!(used.is_some(), "the cap does not hold");
    let reset = reset();
    println!("{reset} of {} paused flows were reset, {used:?} bytes used", paused.len());
    assert!(reset < 35.0, "{reset} flows were reset");
    assert!(pair.client.log_text().contains("tunnel.memory_cap_mb reached"));
}

#[test]
fn a_hundred_flows_at_once_get_connections_of_their_own() {
    const FLOWS: usize = 120;
    let pair = pair(per_flow());
    let echo = Origin::echo();
    let destination = echo.address().to_string();
    let started = Instant::now();
    std::thread::scope(|scope| {
        let flow = |number: usize| {
            let (pair, destination) = (&pair, &destination);
            scope.spawn(move || {
                let mut flow = pair.http().open(destination).unwrap();
                let sent = data::pattern(number as u64, 64 << 10);
                let mut received = vec![0; sent.len()];
                flow.write_all(&sent).unwrap();
                flow.read_exact(&mut received).unwrap();
                assert!(sent == received, "flow {number}");
                flow
            })
        };
        let flows: Vec<_> = (0..FLOWS).map(flow).collect();
        let open: Vec<_> = flows.into_iter().map(|flow| flow.join().unwrap()).collect();
        println!("{FLOWS} flows in {:?}", started.elapsed());
        let metrics = Metrics::fetch(pair.addresses.server_admin);
        let connections = metrics.sum("millrace_connections", &[("state", "established")]) as usize;
        assert!(connections >= FLOWS, "{connections} connections");
        drop(open);
    });
}

/// Threads that share a large number of flows.
const THREADS: usize = 16;

/// Each with a connection of its own, under the default configuration.
#[test]
#[ignore = "takes some minutes; run by make test-full"]
fn a_thousand_busy_flows_beside_idle_ones_with_ten_thousand_connections() {
    const IDLE: usize = 10_000;
    const BUSY: usize = 1000;
    const BUSY_BYTES: u64 = 1 << 20;
    /// Connections that are not accepted need no descriptor; the system allows so many for a listener
    /// (`net.core.somaxconn`).
    const UNACCEPTED: usize = 4000;
    let origins: Vec<_> = (0..IDLE.div_ceil(UNACCEPTED))
        .map(|_| origin::listen((Ipv4Addr::LOCALHOST, 0).into(), UNACCEPTED as i32))
        .collect();
    let pair = Pair::builder().client("tunnel.connections", "\"per_flow\"").alone().start();
    let open = |destination: SocketAddr| pair.http().open(&destination.to_string());
    let open_idle =
        |number: usize| open(origins[number / UNACCEPTED].local_addr().unwrap()).unwrap();
    let idle: Vec<_> = std::thread::scope(|scope| {
        let open_share =
            |first: usize| (first..IDLE).step_by(THREADS).map(open_idle).collect::<Vec<_>>();
        let threads: Vec<_> =
            (0..THREADS).map(|first| scope.spawn(move || open_share(first))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(idle.len(), IDLE);

    let busy = Origin::start(origin::source(7, BUSY_BYTES));
    let expected = data::send(std::io::sink(), 7, BUSY_BYTES).unwrap();
    let began = Instant::now();
    let all_open = Barrier::new(BUSY);
    std::thread::scope(|scope| {
        for _ in 0..BUSY {
            let download = || {
                // One that fails does not keep the others waiting.
                let flow = open(busy.address());
                all_open.wait();
                assert_eq!(data::receive(flow.unwrap()).unwrap(), expected);
            };
            let thread = std::thread::Builder::new().stack_size(256 << 10);
            thread.spawn_scoped(scope, download).unwrap();
        }
    });
    println!("{BUSY} flows of {BUSY_BYTES} bytes beside {IDLE}: {:?}", began.elapsed());
    let metrics = [pair.addresses.client_admin, pair.addresses.server_admin].map(Metrics::fetch);
    for metrics in &metrics {
        assert_eq!(metrics.failed_flows(), 0.0);
        println!("{} MB held", metrics.sum("millrace_memory_used_bytes", &[]) / 1e6);
    }
    let connections = metrics[1].sum("millrace_connections", &[("state", "established")]);
    assert!(connections >= IDLE as f64, "{connections} connections");

    // The idle ones still work.
    for origin in &origins {
        origin.set_nonblocking(true).unwrap();
        while let Ok((mut flow, _)) = origin.accept() {
            flow.write_all(b"x").unwrap();
        }
    }
    for flow in &idle {
        flow.set_read_timeout(Some(wait::DEFAULT_TIMEOUT)).unwrap();
        assert_eq!(tcp::drain(flow), (b"x".to_vec(), tcp::End::Eof));
    }
}

#[test]
fn refused_connections_tell_the_client_why() {
    let pair = pair(per_flow().server("limits.max_connections", 2));
    let echo = Origin::echo();
    let destination = echo.address().to_string();
    let flows: Vec<_> = (0..2).map(|_| pair.http().open(&destination).unwrap()).collect();
    wait::for_true("the client says why", Duration::from_secs(10), || {
        pair.client.log_text().contains("limits.max_connections is reached")
    });
    drop(flows);
}
