//! What is said at the start: where it listens, and which limits of the system are too low.

use std::os::unix::process::CommandExt;
use std::process::Command;

use millrace_e2e::binaries;
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::{Pair, run_with};
use millrace_e2e::program::Program;
use millrace_e2e::wait::{self, DEFAULT_TIMEOUT};
use nix::sys::resource::{Resource, setrlimit};
use serde_json::Value;

fn fields(line: &str) -> Option<Value> {
    serde_json::from_str(line).ok()
}

#[test]
fn each_bound_address_is_logged() {
    // A reachable origin: else the static listener may reset a connection before connect(2) returns.
    let origin = Origin::echo();
    let pair = Pair::builder().static_destination(origin.address()).start();
    let listening = |program: &Program, address: String| {
        program.expect_log(&format!("listening on {address}"), DEFAULT_TIMEOUT, |line| {
            let line = fields(line)?;
            (line.to_string().contains("listening") && line.to_string().contains(&address))
                .then_some(())
        });
    };
    listening(&pair.server, pair.addresses.tunnel.to_string());
    listening(&pair.server, pair.addresses.server_admin.to_string());
    listening(&pair.client, pair.addresses.client_admin.to_string());
    for listener in &pair.listeners {
        let address = match listener {
            millrace_e2e::listeners::TestListener::ProxyUnix(path) => path.display().to_string(),
            _ => listener.connect().peer_addr().unwrap().as_socket().unwrap().to_string(),
        };
        listening(&pair.client, address);
    }
}

/// Every line of the log is one JSON object with level and time.
#[test]
fn the_json_log_is_json() {
    let pair = Pair::builder().start();
    for program in [&pair.server, &pair.client] {
        let log = program.log_text();
        assert!(!log.is_empty());
        for line in log.lines() {
            let json = fields(line).unwrap_or_else(|| panic!("no JSON: {line}"));
            assert!(json["level"].is_string() && json["timestamp"].is_string(), "{line}");
        }
    }
}

/// Runs a program of a stopped pair with another limit of descriptors and answers its warnings.
fn warnings(dir: &std::path::Path, side: &str, descriptors: u64) -> Vec<String> {
    let mut command: Command =
        if side == "client" { binaries::client() } else { binaries::server() };
    command = run_with(command, &dir.join(format!("{side}.toml")));
    // SAFETY: setrlimit is async-signal-safe and touches no memory of the parent.
    unsafe {
        command.pre_exec(move || Ok(setrlimit(Resource::RLIMIT_NOFILE, descriptors, descriptors)?));
    }
    let program = Program::start(side, command);
    program
        .expect_log("listening", DEFAULT_TIMEOUT, |line| line.contains("listening").then_some(()));
    wait::for_true("the admin listener", DEFAULT_TIMEOUT, || program.log_text().contains("admin"));
    let log = program.log_text();
    log.lines().filter(|line| line.contains("WARN")).map(str::to_owned).collect()
}

#[test]
fn too_few_descriptors_are_warned_about_with_the_command() {
    let mut pair = Pair::builder().both("limits.max_flows", 1000).start();
    pair.client.kill();
    pair.server.kill();
    for side in ["client", "server"] {
        let few = warnings(pair.dir(), side, 512);
        let about_files = |lines: &[String]| lines.iter().any(|line| line.contains("open files"));
        assert!(about_files(&few), "{side}: {few:?}");
        let line = few.iter().find(|line| line.contains("open files")).unwrap();
        // 2 for each flow and some of its own.
        assert!(line.contains("ulimit -Hn 2256") && line.contains("512"), "{line}");
        let enough = warnings(pair.dir(), side, 4096);
        assert!(!about_files(&enough), "{side}: {enough:?}");
    }
}

#[test]
fn small_udp_buffers_are_warned_about_with_the_command() {
    let pair = Pair::builder().start();
    for name in ["rmem_max", "wmem_max"] {
        let limit = std::fs::read_to_string(format!("/proc/sys/net/core/{name}")).unwrap();
        let small = limit.trim().parse::<u64>().unwrap() < 7_500_000;
        let command = format!("sysctl -w net.core.{name}=7500000");
        for program in [&pair.client, &pair.server] {
            // Warnings come before it listens.
            program.expect_log("listening", DEFAULT_TIMEOUT, |line| {
                line.contains("listening").then_some(())
            });
            let warned = program.log_text().contains(&command);
            assert_eq!(warned, small, "{name} is {limit}{}", program.log_text());
        }
    }
}

#[test]
fn a_key_that_others_can_read_is_warned_about() {
    use std::os::unix::fs::PermissionsExt;
    let mut pair = Pair::builder().start();
    pair.client.kill();
    let key = pair.certificates.client.private_key.clone();
    assert!(!pair.client.log_text().contains("chmod 600"));
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    pair.start_client_again();
    let command = format!("chmod 600 {}", key.display());
    pair.client.expect_log("the key's mode", DEFAULT_TIMEOUT, |line| {
        line.contains(&command).then_some(())
    });
}
