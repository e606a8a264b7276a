//! A panic in one connection's code ends that connection only.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millrace_e2e::admin::{self, Metrics};
use millrace_e2e::data;
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::{Pair, PairBuilder};
use millrace_e2e::wait;

/// Places at which a connection can be made to panic.
const FAULTS: [&str; 3] = ["panic-drive", "panic-receive", "panic-timer"];
/// Before and after the panics.
const HALF_BYTES: usize = 1 << 20;

/// Sends one half, and the other when it may.
fn in_halves(may_go_on: Arc<AtomicBool>) -> Origin {
    Origin::start(move |mut stream| {
        let bytes = data::pattern(3, 2 * HALF_BYTES);
        let sent = stream.write_all(&bytes[..HALF_BYTES]);
        wait::until(Duration::from_secs(60), || may_go_on.load(Ordering::Relaxed).then_some(()));
        if sent.and_then(|()| stream.write_all(&bytes[HALF_BYTES..])).is_ok() {
            stream.shutdown(std::net::Shutdown::Write).ok();
            stream.read_exact(&mut [0]).ok();
        }
    })
}

/// Flows of two classes have a connection each; one of the connections panics.
fn the_other_connection_goes_on(
    with_faults: impl Fn(PairBuilder, &str) -> PairBuilder,
    admin_of: impl Fn(&Pair) -> std::net::SocketAddr,
    faults: &[&str],
) {
    let go_on = Arc::new(AtomicBool::new(false));
    let (good, echo) = (in_halves(go_on.clone()), Origin::echo());
    let bad: Vec<_> = faults.iter().map(|_| Origin::echo()).collect();
    let faults: Vec<_> = std::iter::zip(faults, &bad)
        .map(|(fault, origin)| format!("{fault}={}", origin.address()))
        .collect();
    let mut pair = with_faults(Pair::builder(), &faults.join(","))
        .both("runtime.workers", 1)
        .client("tunnel.idle_timeout_s", 2)
        .client("tunnel.keepalive_s", 1)
        .start();
    let admin = admin_of(&pair);
    let mut download = pair.http().open(&good.address().to_string()).unwrap();
    let mut received = vec![0; HALF_BYTES];
    download.read_exact(&mut received).unwrap();

    for origin in &bad {
        let before = Metrics::fetch(admin).sum("millrace_panics_total", &[]);
        // The listener's class is another one than that of the download. What it answers depends on when.
        let (listener, to) = (pair.listeners[2].clone(), origin.address().to_string());
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let opening = std::thread::spawn(move || {
            // Refused while the connection of before is being replaced.
            while !stopped.load(Ordering::Relaxed) && listener.open(&to).is_err() {}
        });
        wait::for_true("the panic is counted", wait::DEFAULT_TIMEOUT, || {
            Metrics::fetch(admin).sum("millrace_panics_total", &[]) > before
        });
        stop.store(true, Ordering::Relaxed);
        drop(opening);
    }

    go_on.store(true, Ordering::Relaxed);
    download.read_to_end(&mut received).unwrap();
    assert!(received == data::pattern(3, 2 * HALF_BYTES), "{} bytes", received.len());
    // The class that had the panics has a connection again.
    wait::for_true("flows of the other class work", wait::DEFAULT_TIMEOUT, || {
        let flow = pair.listeners[2].open(&echo.address().to_string());
        flow.is_ok_and(|mut flow| flow.write_all(b"x").is_ok() && flow.read_exact(&mut [0]).is_ok())
    });
    assert_eq!(admin::get(admin, "/healthz").unwrap().0, 200);
    pair.assert_running();
    let logs = [pair.client.log_text(), pair.server.log_text()].concat();
    assert!(
        logs.contains("connection ended after a panic") && logs.contains("faults.rs"),
        "{logs}"
    );
}

#[test]
fn a_panic_at_the_server_ends_one_connection() {
    the_other_connection_goes_on(
        |pair, faults| pair.server_environment("MILLRACE_TEST_FAULTS", faults),
        |pair| pair.addresses.server_admin,
        &FAULTS,
    );
}

#[test]
fn a_panic_at_the_client_ends_one_connection() {
    the_other_connection_goes_on(
        |pair, faults| pair.client_environment("MILLRACE_TEST_FAULTS", faults),
        |pair| pair.addresses.client_admin,
        // A receiver's timers may be put off for ever.
        &FAULTS[..2],
    );
}
