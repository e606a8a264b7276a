//! SIGHUP: a new configuration is in force for what is new, what runs goes on, and a wrong one
//! changes nothing.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;

use millrace_e2e::admin::{self, Metrics};
use millrace_e2e::certificates::{Authority, SERVER_NAME};
use millrace_e2e::listeners::Refusal;
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::Pair;
use millrace_e2e::program::Program;
use millrace_e2e::wait;
use nix::sys::signal::Signal;
use socket2::Socket;

fn echoes(flow: &mut Socket) {
    flow.write_all(b"ping").unwrap();
    flow.read_exact(&mut [0; 4]).unwrap();
}

fn open(pair: &Pair, origin: &Origin) -> Result<Socket, Refusal> {
    let mut flow = pair.http().open(&origin.address().to_string())?;
    echoes(&mut flow);
    Ok(flow)
}

/// Changes a configuration file.
fn edit(path: &Path, change: impl FnOnce(String) -> String) {
    let before = fs::read_to_string(path).unwrap();
    let after = change(before.clone());
    assert_ne!(before, after, "the change changes nothing");
    fs::write(path, after).unwrap();
}

fn reloads(admin: std::net::SocketAddr, result: &str) -> f64 {
    Metrics::fetch(admin).sum("millrace_reloads_total", &[("result", result)])
}

/// Sends SIGHUP and waits for what comes of it.
fn reload(program: &Program, admin: std::net::SocketAddr, result: &str) {
    let before = reloads(admin, result);
    program.signal(Signal::SIGHUP);
    wait::for_true(result, wait::DEFAULT_TIMEOUT, || reloads(admin, result) > before);
}

#[test]
fn destinations_are_other_ones_and_running_flows_stay() {
    let origin = Origin::echo();
    let mut pair = Pair::builder().start();
    let (file, at) = (pair.dir().join("server.toml"), pair.addresses.server_admin);
    let mut flow = open(&pair, &origin).unwrap();
    edit(&file, |text| text.replace("127.0.0.0/8", "198.18.0.0/15"));
    reload(&pair.server, at, "done");
    wait::for_true("the destination is refused", wait::DEFAULT_TIMEOUT, || {
        matches!(open(&pair, &origin), Err(Refusal::Http { status: 403, .. }))
    });
    echoes(&mut flow);
    edit(&file, |text| text.replace("198.18.0.0/15", "127.0.0.0/8"));
    reload(&pair.server, at, "done");
    wait::for_true("it is allowed again", wait::DEFAULT_TIMEOUT, || open(&pair, &origin).is_ok());
    echoes(&mut flow);
    pair.assert_running();
}

#[test]
fn a_wrong_configuration_changes_nothing_and_says_why() {
    let origin = Origin::echo();
    let mut pair = Pair::builder().start();
    let mut flow = open(&pair, &origin).unwrap();
    let sides = [
        (&pair.server, pair.addresses.server_admin, "server"),
        (&pair.client, pair.addresses.client_admin, "client"),
    ];
    for (program, at, side) in sides {
        let file = pair.dir().join(format!("{side}.toml"));
        let good = fs::read_to_string(&file).unwrap();
        let wrong = [
            // Of each kind that is found at another place: form, value, file.
            (format!("nonsense = 1\n{good}"), "nonsense"),
            (good.replace("[tunnel]", "[limits]\nmax_flows = 0\n[tunnel]"), "limits.max_flows"),
            (good.replace(&format!("{side}.pem"), "absent.pem"), "absent.pem"),
        ];
        for (text, said) in wrong {
            fs::write(&file, text).unwrap();
            reload(program, at, "refused");
            program.expect_log(said, wait::DEFAULT_TIMEOUT, |line| {
                (line.contains("not reloaded") && line.contains(said)).then_some(())
            });
            echoes(&mut flow);
            open(&pair, &origin).unwrap();
        }
        fs::write(&file, good).unwrap();
        reload(program, at, "done");
    }
    echoes(&mut flow);
    pair.assert_running();
}

#[test]
fn new_connections_get_the_new_certificates() {
    let dir = tempfile::tempdir().unwrap();
    let [old, new] = ["old", "new"].map(|name| {
        let dir = dir.path().join(name);
        fs::create_dir(&dir).unwrap();
        Authority::make(&dir)
    });
    let mut pair = Pair::builder()
        .server_identity(&old.ca, old.sign(SERVER_NAME, -1..30))
        .client("tunnel.ca", format!("\"{}\"", old.ca.display()))
        .client_identity(old.sign("edge", -1..30))
        .client("tunnel.reconnect_max_s", 1)
        .start();
    let origin = Origin::echo();
    let mut flow = open(&pair, &origin).unwrap();
    // Both ends move from one CA to the other; an end that has not moved is rejected.
    let server = new.sign(SERVER_NAME, -1..30);
    let client = new.sign("edge", -1..30);
    for side in ["server", "client"] {
        edit(&pair.dir().join(format!("{side}.toml")), |text| text.replace("/old/", "/new/"));
    }
    assert!(server.certificate.exists() && client.certificate.exists());
    reload(&pair.server, pair.addresses.server_admin, "done");
    echoes(&mut flow);
    // A client with the old certificate does not come in any more, not even by a session ticket.
    pair.client.kill();
    edit(&pair.dir().join("client.toml"), |text| text.replace("/new/", "/old/"));
    pair.start_client_again();
    let failures = || {
        let metrics = Metrics::fetch(pair.addresses.client_admin);
        metrics.sum("millrace_handshake_failures_total", &[])
    };
    wait::for_true("the old client is refused", wait::DEFAULT_TIMEOUT, || {
        admin::get(pair.addresses.client_admin, "/healthz").is_ok() && failures() > 0.0
    });
    edit(&pair.dir().join("client.toml"), |text| text.replace("/old/", "/new/"));
    reload(&pair.client, pair.addresses.client_admin, "done");
    wait::for_true("flows go on", wait::DEFAULT_TIMEOUT, || open(&pair, &origin).is_ok());
}

#[test]
fn algorithms_rates_and_limits_are_other_ones() {
    let origin = Origin::echo();
    let pair = Pair::builder()
        .server("tunnel.congestion_control", "{ name = \"constant\", rate_mbps = 10 }")
        .client("tunnel.congestion_control", "{ name = \"constant\", rate_mbps = 10 }")
        .start();
    let pacing = |at| {
        let flows = admin::flows(at);
        flows["flows"][0]["pacing_mbps"].as_f64().unwrap_or(0.0).round()
    };
    let sides = [
        (&pair.server, pair.addresses.server_admin, "server"),
        (&pair.client, pair.addresses.client_admin, "client"),
    ];
    // The client is the server's only peer, which may have no more than all.
    let full = |at| {
        let metrics = Metrics::fetch(at);
        let of = |reason| metrics.sum("millrace_drops_total", &[("reason", reason)]);
        of("flow_limit") + of("peer_flows")
    };
    for (program, at, side) in sides {
        // The one before may take a moment to end.
        let flow = wait::until(wait::DEFAULT_TIMEOUT, || open(&pair, &origin).ok()).unwrap();
        assert_eq!(pacing(at), 10.0, "{side}");
        edit(&pair.dir().join(format!("{side}.toml")), |text| {
            text.replace("rate_mbps = 10", "rate_mbps = 20") + "\n[limits]\nmax_flows = 1\n"
        });
        reload(program, at, "done");
        // It keeps what it has, and its place: there is no other.
        assert_eq!(pacing(at), 10.0, "{side}");
        assert_eq!(full(at), 0.0, "{side}");
        assert!(open(&pair, &origin).is_err(), "{side}: a second flow");
        assert_eq!(full(at), 1.0, "{side}");
        drop(flow);
        wait::for_true("the next flow has the new rate", wait::DEFAULT_TIMEOUT, || {
            let flow = open(&pair, &origin);
            flow.is_ok() && pacing(at) == 20.0
        });
    }
}

#[test]
fn what_needs_a_restart_is_said() {
    let pair = Pair::builder().start();
    edit(&pair.dir().join("server.toml"), |text| {
        text.replace("listen = [\"127.0.0.1", "listen = [\"127.0.0.2")
    });
    reload(&pair.server, pair.addresses.server_admin, "done");
    pair.server.expect_log("the restart", wait::DEFAULT_TIMEOUT, |line| {
        (line.contains("restart") && line.contains("tunnel.listen")).then_some(())
    });
}
