//! Logs never hold up traffic, and never flood.

use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::process::Command;
use std::time::{Duration, Instant};

use millrace_e2e::admin::{self, Metrics};
use millrace_e2e::certificates::{Authority, SERVER_NAME};
use millrace_e2e::listeners::Refusal;
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::Pair;
use millrace_e2e::program::Program;
use millrace_e2e::{data, tcp, wait};
use nix::sys::signal::Signal;

/// Sends bytes through the tunnel and has them back.
fn echo_through(pair: &Pair, origin: &Origin, bytes: usize) {
    let mut flow = pair.http().open(&origin.address().to_string()).unwrap();
    let sent = data::pattern(1, bytes);
    let mut writer = flow.try_clone().unwrap();
    let copy = sent.clone();
    let writing = std::thread::spawn(move || writer.write_all(&copy));
    let mut received = vec![0; bytes];
    flow.read_exact(&mut received).unwrap();
    assert!(received == sent, "other bytes came back");
    writing.join().unwrap().unwrap();
}

#[test]
fn traffic_goes_on_while_standard_error_is_not_read() {
    let origin = Origin::echo();
    let mut pair = Pair::builder().both("log.level", "\"trace\"").start();
    for program in [&mut pair.client, &mut pair.server] {
        program.signal(Signal::SIGTERM);
        program.wait(wait::DEFAULT_TIMEOUT);
    }
    let (server, server_log) = Program::start_unread("millrace-server", pair.server_command());
    let (client, client_log) = Program::start_unread("millrace-client", pair.client_command());
    (pair.server, pair.client) = (server, client);
    pair.wait_healthy(wait::DEFAULT_TIMEOUT);

    let refusing = tcp::unused(Ipv4Addr::LOCALHOST).to_string();
    for _ in 0..197 {
        assert!(matches!(pair.http().open(&refusing), Err(Refusal::Http { status: 502, .. })));
    }
    for admin in [pair.addresses.client_admin, pair.addresses.server_admin] {
        wait::for_true("log lines are dropped", Duration::from_secs(30), || {
            echo_through(&pair, &origin, 1 << 20);
            Metrics::fetch(admin).sum("millrace_log_lines_dropped_total", &[]) > 0.0
        });
        assert_eq!(admin::get(admin, "/healthz").unwrap().0, 200);
    }
    for program in [&mut pair.client, &mut pair.server] {
        program.signal(Signal::SIGTERM);
        assert_eq!(program.wait(wait::DEFAULT_TIMEOUT).code(), Some(0));
    }
    drop((server_log, client_log));
}

/// Accepting fails for want of descriptors, as long as the connections that it has taken stay.
#[test]
fn a_client_without_descriptors_is_quiet_and_idle_until_it_has_some() {
    let origin = Origin::echo();
    let mut pair = Pair::builder().client("runtime.workers", 1).start();
    pair.client.signal(Signal::SIGTERM);
    pair.client.wait(wait::DEFAULT_TIMEOUT);
    let client = pair.client_command();
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 64; exec \"$@\"", "sh"]).arg(client.get_program());
    limited.args(client.get_args()).envs(client.get_envs().filter_map(|(k, v)| Some((k, v?))));
    pair.client = Program::start("millrace-client", limited);
    pair.wait_healthy(wait::DEFAULT_TIMEOUT);

    let connections: Vec<_> = (0..600).map(|_| pair.http().connect()).collect();
    pair.client.expect_log("the lack of descriptors", wait::DEFAULT_TIMEOUT, |line| {
        line.contains("can't accept").then_some(())
    });
    let (before, started) = (pair.client.cpu_time(), Instant::now());
    while started.elapsed() < Duration::from_millis(1500) {
        std::thread::sleep(Duration::from_millis(50));
    }
    let used = pair.client.cpu_time() - before;
    assert!(used < started.elapsed() / 5, "{used:?} of processor time in {:?}", started.elapsed());
    let lines = pair.client.log_text().lines().count();
    assert!(lines < 200, "{lines} lines");
    drop(connections);
    echo_through(&pair, &origin, 1000);
    let metrics = Metrics::fetch(pair.addresses.client_admin);
    assert!(metrics.sum("millrace_drops_total", &[("reason", "descriptor_limit")]) >= 1.0);
}

/// A server that no certificate convinces is asked again and again.
#[test]
fn a_failure_that_repeats_itself_is_logged_a_few_times_and_summed_up() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::make(dir.path());
    let stranger = authority.sign(SERVER_NAME, -1..30);
    let mut pair = Pair::builder()
        .both("runtime.workers", 2)
        .client("tunnel.ca", format!("\"{}\"", authority.ca.display()))
        .client_identity(stranger)
        .client("tunnel.reconnect_min_ms", 10)
        .client("tunnel.reconnect_max_s", 1)
        .unhealthy()
        .start();
    wait::for_true("handshakes fail again and again", wait::DEFAULT_TIMEOUT, || {
        let metrics = Metrics::fetch(pair.addresses.client_admin);
        metrics.sum("millrace_handshake_failures_total", &[]) >= 16.0
    });
    let suppressed = Metrics::fetch(pair.addresses.client_admin);
    assert!(suppressed.sum("millrace_log_lines_suppressed_total", &[]) > 0.0);
    pair.client.signal(Signal::SIGTERM);
    pair.client.wait(wait::DEFAULT_TIMEOUT);
    for program in [&pair.client, &pair.server] {
        let log = program.log_text();
        let of_level = |level: &str| log.lines().filter(|line| line.contains(level)).count();
        assert!(of_level("WARN") + of_level("ERROR") < 16, "{log}");
    }
    let log = pair.client.log_text();
    assert!(log.contains("handshake failed") && log.contains("message repeated"), "{log}");
}

#[test]
fn lines_for_the_journal_begin_with_their_priority() {
    let mut pair = Pair::builder().both("log.format", "\"journald\"").start();
    pair.client.signal(Signal::SIGTERM);
    pair.client.wait(wait::DEFAULT_TIMEOUT);
    let log = pair.client.log_text();
    let lines: Vec<_> = log.lines().filter(|line| !line.is_empty()).collect();
    assert!(lines.iter().any(|line| line.starts_with("<6>millrace")), "{log}");
    let has_priority = |line: &&str| {
        line.strip_prefix('<')
            .and_then(|it| it.split_once('>'))
            .is_some_and(|(priority, _)| ["3", "4", "6", "7"].contains(&priority))
    };
    assert!(lines.iter().all(has_priority), "{log}");
}
