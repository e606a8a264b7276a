//! Health says what is so: of workers, of what moves, and of what gets through; systemd hears of it too.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;

use millrace_e2e::admin::{self, Metrics};
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::Pair;
use millrace_e2e::program::Program;
use millrace_e2e::relay::RelayOptions;
use millrace_e2e::{data, wait};
use nix::sys::signal::Signal;

/// What is found out within five seconds, on a machine that has other work.
const NOTICED: Duration = Duration::from_secs(20);

/// A socket that takes what systemd is told.
struct Notified {
    socket: UnixDatagram,
    path: String,
}

impl Notified {
    fn bind(dir: &std::path::Path, name: &str) -> Self {
        let path = dir.join(name);
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        Self { socket, path: path.display().to_string() }
    }

    fn next(&self) -> Option<String> {
        let mut buffer = [0; 512];
        let length = self.socket.recv(&mut buffer).ok()?;
        Some(String::from_utf8_lossy(&buffer[..length]).into_owned())
    }

    #[track_caller]
    fn expect(&self, state: &str) {
        wait::for_true(state, wait::DEFAULT_TIMEOUT, || {
            self.next().is_some_and(|it| it.contains(state))
        });
    }
}

fn health(admin: SocketAddr, path: &str) -> (u16, String) {
    admin::get(admin, path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Waits until the answer is 503, and has its reason.
#[track_caller]
fn expect_unhealthy(admin: SocketAddr, path: &str) -> String {
    let reason = wait::until(NOTICED, || {
        let (status, reason) = health(admin, path);
        (status == 503).then_some(reason)
    });
    reason.unwrap_or_else(|| panic!("{path} stays healthy"))
}

/// Starts the server as systemd does with `WatchdogSec=`: it names the process that is watched. The worker
/// stands still for a flow to `origin`.
fn start_watched(pair: &Pair, notified: &Notified, origin: &Origin) -> Program {
    let server = pair.server_command();
    let mut command = Command::new("sh");
    command.args(["-c", "WATCHDOG_PID=$$ exec \"$@\"", "sh"]).arg(server.get_program());
    command.args(server.get_args()).env("WATCHDOG_USEC", "400000");
    command.env("NOTIFY_SOCKET", &notified.path);
    command.env("MILLRACE_TEST_FAULTS", format!("stall={}", origin.address()));
    let program = Program::start("millrace-server", command);
    pair.wait_healthy(wait::DEFAULT_TIMEOUT);
    program
}

#[test]
fn a_worker_that_stands_still_is_unhealthy_and_stops_the_watchdog() {
    let dir = tempfile::tempdir().unwrap();
    let (server, client) = (Notified::bind(dir.path(), "s"), Notified::bind(dir.path(), "c"));
    let origin = Origin::echo();
    let mut pair = Pair::builder()
        .both("runtime.workers", 1)
        .server_environment("NOTIFY_SOCKET", &server.path)
        .client_environment("NOTIFY_SOCKET", &client.path)
        .start();
    client.expect("READY=1");
    pair.client.signal(Signal::SIGHUP);
    client.expect("RELOADING=1");
    client.expect("READY=1");
    server.expect("READY=1");
    pair.server.signal(Signal::SIGTERM);
    pair.server.wait(wait::DEFAULT_TIMEOUT);
    pair.server = start_watched(&pair, &server, &origin);
    server.expect("WATCHDOG=1");
    server.expect("WATCHDOG=1");

    let admin = pair.addresses.server_admin;
    assert_eq!((health(admin, "/healthz").0, health(admin, "/livez").0), (200, 200));
    let (listener, to) = (pair.http().clone(), origin.address().to_string());
    std::thread::spawn(move || listener.open(&to).map(drop));
    let reason = expect_unhealthy(admin, "/healthz");
    assert!(reason.contains("worker 0 has not turned for"), "{reason}");
    expect_unhealthy(admin, "/livez");
    while server.next().is_some() {}
    let later = wait::until(Duration::from_secs(1), || server.next());
    assert_eq!(later, None, "the watchdog is fed");

    pair.client.signal(Signal::SIGTERM);
    client.expect("STOPPING=1");
}

/// A path that passes small packets only keeps connections alive.
#[test]
fn a_path_for_small_packets_only_is_noticed_at_both_ends() {
    let endless = Origin::start(|mut stream| while stream.write_all(&[7; 4096]).is_ok() {});
    let echo = Origin::echo();
    let pair = Pair::builder()
        .relay(RelayOptions::default())
        .both("runtime.workers", 1)
        .client("tunnel.probe_interval_s", 1)
        .client("tunnel.keepalive_s", 1)
        .start();
    let (server, client) = (pair.addresses.server_admin, pair.addresses.client_admin);
    // Probes are answered, and are of full-size packets.
    let mut idle = pair.http().open(&echo.address().to_string()).unwrap();
    idle.write_all(b"x").unwrap();
    idle.read_exact(&mut [0]).unwrap();
    let received = || {
        let metrics = Metrics::fetch(server);
        metrics.sum("millrace_tunnel_bytes_total", &[("direction", "received")])
    };
    let before = received();
    wait::for_true("two probes have arrived", wait::DEFAULT_TIMEOUT, || {
        received() > before + 8192.0
    });
    assert_eq!((health(server, "/healthz").0, health(client, "/healthz").0), (200, 200));

    let mut download = pair.http().open(&endless.address().to_string()).unwrap();
    download.read_exact(&mut [0; 65_536]).unwrap();
    let reader = std::thread::spawn(move || data::receive_until_error(&mut download));
    let relay = pair.relay.as_ref().unwrap();
    relay.pass_up_to(Some(1100));
    let reason = expect_unhealthy(server, "/healthz");
    assert!(reason.contains("has not been acknowledged"), "{reason}");
    assert_eq!(health(server, "/livez").0, 200, "a path is no reason to restart");
    wait::for_true("the client says that full-size packets do not get through", NOTICED, || {
        let (status, reason) = health(client, "/healthz");
        status == 503 && reason.contains("full-size packets do not get through")
    });
    let metrics = Metrics::fetch(client);
    assert!(metrics.sum("millrace_server_probe_failures_total", &[]) >= 1.0);

    relay.pass_up_to(None);
    for admin in [server, client] {
        wait::for_true("it is healthy again", NOTICED, || health(admin, "/healthz").0 == 200);
    }
    drop((pair, endless));
    drop(reader.join());
}

/// A reader that does not drain is no sign of a fault.
#[test]
fn a_paused_viewer_is_healthy() {
    let endless = Origin::start(|mut stream| while stream.write_all(&[7; 4096]).is_ok() {});
    let pair = Pair::builder().both("runtime.workers", 1).start();
    let mut paused = pair.http().open(&endless.address().to_string()).unwrap();
    paused.read_exact(&mut [0; 65_536]).unwrap();
    let ends = [pair.addresses.server_admin, pair.addresses.client_admin];
    let unhealthy = wait::until(Duration::from_secs(8), || {
        ends.iter().map(|admin| health(*admin, "/healthz")).find(|(status, _)| *status != 200)
    });
    assert_eq!(unhealthy, None);
    drop(paused);
}
