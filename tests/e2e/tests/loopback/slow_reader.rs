//! A slow reader gets every byte, and what it has not read yet waits at the sender and not in the
//! proxies' memory.

use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use millrace_e2e::data::{self, Sum};
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::{Pair, PairBuilder};
use millrace_e2e::test_lock::Kind;
use socket2::Socket;

/// Far more than all buffers together.
const BYTES: u64 = 192 << 20;
/// Largest window, and with it the most that may wait in either proxy.
const WINDOW_BYTES: u64 = 4 << 20;
/// What a proxy may need beyond a window at each socket: allocator, buffers of TCP to QUIC.
const MAX_GROWTH_BYTES: u64 = 3 * WINDOW_BYTES + (8 << 20);
/// How long the reader does not read at all.
const ASLEEP: Duration = Duration::from_secs(2);

fn pair(builder: PairBuilder) -> Pair {
    builder
        .both("tunnel.max_stream_window_bytes", WINDOW_BYTES)
        .both("tunnel.max_connection_window_bytes", 2 * WINDOW_BYTES)
        .in_turn_of(Kind::Few)
        .start()
}

/// Writes the pattern and counts what the kernel has taken.
fn send_counted(to: &Socket, count: &AtomicU64) -> std::io::Result<Sum> {
    struct Counted<'a>(&'a Socket, &'a AtomicU64);
    impl std::io::Write for Counted<'_> {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let written = (&*self.0).write(bytes)?;
            self.1.fetch_add(written as u64, Ordering::Relaxed);
            Ok(written)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    to.set_write_timeout(Some(Duration::from_secs(60)))?;
    let sum = data::send(Counted(to, count), 11, BYTES)?;
    to.shutdown(Shutdown::Write)?;
    Ok(sum)
}

/// Sleeps, watches memory, then reads everything: in small pieces with pauses at first.
fn read_slowly(from: &Socket, pair: &Pair, sent: &AtomicU64) -> Sum {
    let rss = || [pair.client.rss_bytes(), pair.server.rss_bytes()];
    let before = rss();
    let asleep = Instant::now();
    let mut most = before;
    while asleep.elapsed() < ASLEEP {
        std::thread::sleep(Duration::from_millis(20));
        let now = rss();
        most = std::array::from_fn(|i| most[i].max(now[i]));
    }
    let waiting = sent.load(Ordering::Relaxed);
    println!("{waiting} bytes taken while the reader slept; rss {before:?}, at most {most:?}");
    assert!(waiting > WINDOW_BYTES / 2, "the sender was stopped after {waiting} bytes already");
    assert!(waiting < BYTES / 2, "{waiting} of {BYTES} bytes are waiting somewhere");
    for (before, most) in before.into_iter().zip(most) {
        assert!(most <= before + MAX_GROWTH_BYTES, "memory grew from {before} to {most} bytes");
    }
    let slowly = Slow { from, slow_reads_left: 200 };
    data::receive(slowly).unwrap()
}

struct Slow<'a> {
    from: &'a Socket,
    slow_reads_left: u32,
}

impl std::io::Read for Slow<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let mut length = buffer.len();
        if self.slow_reads_left > 0 {
            self.slow_reads_left -= 1;
            length = length.min(4096);
            std::thread::sleep(Duration::from_millis(2));
        }
        std::io::Read::read(&mut &*self.from, &mut buffer[..length])
    }
}

#[test]
fn a_slow_client_gets_everything() {
    let sent = Arc::new(AtomicU64::new(0));
    let count = sent.clone();
    let origin = Origin::start(move |stream| {
        send_counted(&stream, &count).ok();
        data::receive_until_error(&stream);
    });
    let pair = pair(Pair::builder());
    let flow = pair.http().open(&origin.address().to_string()).unwrap();
    let received = read_slowly(&flow, &pair, &sent);
    assert_eq!(received, data::send(std::io::sink(), 11, BYTES).unwrap());
}

#[test]
fn a_slow_origin_gets_everything() {
    let (give, given) = mpsc::sync_channel(1);
    let origin = Origin::start(move |stream| give.send(stream).unwrap());
    let pair = pair(Pair::builder());
    let flow = pair.http().open(&origin.address().to_string()).unwrap();
    let slow = given.recv_timeout(Duration::from_secs(10)).unwrap();
    let sent = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| send_counted(&flow, &sent).unwrap());
        let received = read_slowly(&slow, &pair, &sent);
        assert_eq!(received, sending.join().unwrap());
    });
}

/// One flow without a reader must not hold up another one on the same connection.
#[test]
fn a_sleeping_client_does_not_stop_the_others() {
    let origin = Origin::start(|stream| {
        data::send(&stream, 12, 16 << 20).ok();
    });
    let pair = pair(Pair::builder());
    let destination = origin.address().to_string();
    // Less than the connection's window over the stream's, or nothing could be left for others.
    let asleep = pair.http().open(&destination).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    for _ in 0..4 {
        let flow = pair.http().open(&destination).unwrap();
        let received = data::receive(&flow).unwrap();
        assert_eq!(received, data::send(std::io::sink(), 12, 16 << 20).unwrap());
    }
    drop(asleep);
}
