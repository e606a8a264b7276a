//! An origin that accepts late, behind a server that answers: its flow waits and works.

use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

use millrace_e2e::origin::{accept_within, echo, listen};
use millrace_e2e::pair::Pair;
use millrace_e2e::tcp;
use socket2::Socket;

use crate::fail_open::echoes;

/// Longer than a dead server is waited for; the kernel asks a second time after 1 s and again after 3 s.
const CONNECT_DELAY: Duration = Duration::from_millis(2300);

/// The kernel asks a fourth time after 7 s, and the machine may be busy.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(20);

/// Lets the queue of a listener run full, so that the kernel drops further SYNs.
fn fill(listener: &TcpListener) -> Vec<Socket> {
    let address = listener.local_addr().unwrap();
    let brief = Duration::from_millis(300);
    std::iter::from_fn(|| tcp::connect_within(address, brief).ok()).take(8).collect()
}

#[test]
fn slow_origin_behind_a_live_server_is_waited_for() {
    let origin = listen((Ipv4Addr::LOCALHOST, 0).into(), 0);
    // The queue has room for one: the other's SYN can be dropped once more.
    let pair = Pair::builder()
        .static_destination(origin.local_addr().unwrap())
        .server("dial.timeout_s", ACCEPT_TIMEOUT.as_secs())
        .server("dial.per_address_timeout_s", ACCEPT_TIMEOUT.as_secs())
        .start();
    let queued = fill(&origin);
    assert!(queued.len() < 8, "the queue is never full");
    let began = Instant::now();
    std::thread::scope(|scope| {
        for listener in [&pair.listeners[0], pair.http()] {
            let to = origin.local_addr().unwrap().to_string();
            scope.spawn(move || {
                assert!(echoes(listener.open(&to).unwrap()), "{listener:?}");
                assert!(began.elapsed() > CONNECT_DELAY, "{listener:?} did not have to wait");
            });
        }
        std::thread::sleep(CONNECT_DELAY);
        // Queued connections end, those of the two flows echo.
        drop(queued);
        let mut working = 0;
        while working < 2 {
            let stream = accept_within(&origin, ACCEPT_TIMEOUT).expect("both flows come");
            stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let is_flow = stream.peek(&mut [0]).is_ok_and(|read| read > 0);
            if is_flow {
                working += 1;
                scope.spawn(move || echo(stream.into()));
            }
        }
    });
}
