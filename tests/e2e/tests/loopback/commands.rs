//! Commands that ask a running program, or need none.

use std::io::{Read, Write};
use std::process::Command;

use millrace_e2e::admin;
use millrace_e2e::binaries;
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::Pair;
use millrace_e2e::program::{Ended, Program};
use millrace_e2e::wait::DEFAULT_TIMEOUT;
use serde_json::Value;

const SIDES: [&str; 2] = ["client", "server"];

fn program(side: &str) -> Command {
    if side == "client" { binaries::client() } else { binaries::server() }
}

fn run(side: &str, arguments: &[&str]) -> Ended {
    let mut command = program(side);
    command.args(arguments);
    Program::run(side, command, DEFAULT_TIMEOUT)
}

/// The output of a command that succeeds, with the configuration of the pair.
#[track_caller]
fn output(pair: &Pair, side: &str, arguments: &[&str]) -> String {
    let config = pair.dir().join(format!("{side}.toml")).display().to_string();
    let ended = run(side, &[arguments, &["--config", &config]].concat());
    assert_eq!(ended.code, Some(0), "{arguments:?}: {}", ended.output);
    ended.output
}

#[test]
fn commands_without_a_running_program_work() {
    for side in SIDES {
        let version = run(side, &["--version"]).output;
        assert!(version.starts_with(&format!("millrace-{side} ")), "{version}");
        let list = run(side, &["algorithms"]).output;
        let names = millrace_cc::registry::names();
        // Aliases are in the line of the first name; mcc is no algorithm of the registry.
        assert!(list.lines().count() > names.len() / 2, "{list}");
        for name in names.iter().chain(&["mcc"]) {
            assert!(list.lines().any(|line| line.contains(name)), "{name}: {list}");
        }
        for shell in ["bash", "zsh", "fish"] {
            let ended = run(side, &["completions", shell]);
            assert_eq!(ended.code, Some(0), "{}", ended.output);
            for command in ["doctor", "flows", "algorithms"] {
                assert!(ended.output.contains(command), "{side} {shell} {command}");
            }
        }
        let help = run(side, &["run", "--help"]).output;
        assert!(help.contains(&format!("/etc/millrace/{side}.toml")), "{help}");
        let directory = tempfile::tempdir().unwrap();
        let pages = directory.path().join("man1");
        let ended = run(side, &["man", pages.to_str().unwrap()]);
        assert_eq!(ended.code, Some(0), "{}", ended.output);
        for page in ["", "-run", "-check", "-doctor", "-cc-set"] {
            let page = pages.join(format!("millrace-{side}{page}.1"));
            assert!(page.is_file(), "{}", page.display());
        }
    }
}

#[test]
fn flows_are_listed_and_their_algorithm_is_changed() {
    let origin = Origin::echo();
    let pair = Pair::builder().start();
    let mut flow = pair.listeners[1].open(&origin.address().to_string()).unwrap();
    flow.write_all(b"x").unwrap();
    flow.read_exact(&mut [0]).unwrap();
    for side in SIDES {
        let table = output(&pair, side, &["flows"]);
        let line = table.lines().find(|line| line.contains(&origin.address().to_string()));
        let line = line.unwrap_or_else(|| panic!("{side}: {table}"));
        let connection = line.split_whitespace().last().unwrap();
        let json: Value = serde_json::from_str(&output(&pair, side, &["flows", "--json"])).unwrap();
        assert_eq!(json["flows"][0]["connection"], connection);
        let none = output(&pair, side, &["flows", "--json", "--session", "no-such-session"]);
        assert_eq!(serde_json::from_str::<Value>(&none).unwrap()["flows"], Value::Array(vec![]));

        let set = output(&pair, side, &["cc", "set", connection, "westwood"]);
        assert_eq!(set, format!("{connection}: westwood, pinned"));
        let address = if side == "client" {
            pair.addresses.client_admin
        } else {
            pair.addresses.server_admin
        };
        assert_eq!(admin::flows(address)["flows"][0]["algorithm"], "westwood");
        let table = output(&pair, side, &["flows"]);
        assert!(table.contains("westwood (pinned)"), "{table}");
        let released = output(&pair, side, &["cc", "release", connection]);
        assert_eq!(released, format!("{connection}: westwood, not pinned"));

        let at = address.to_string();
        let refused = run(side, &["cc", "set", connection, "fast", "--admin", &at]);
        assert_eq!(refused.code, Some(1));
        assert!(
            refused.output.contains("unknown congestion control \"fast\""),
            "{}",
            refused.output
        );
        let refused = run(side, &["qlog", "start", connection, "--admin", &at]);
        assert!(refused.output.contains("set admin.qlog_dir"), "{}", refused.output);
    }
}

#[test]
fn a_program_that_does_not_run_and_a_terminal_that_is_none_are_said() {
    let mut pair = Pair::builder().start();
    let config = pair.dir().join("client.toml").display().to_string();
    let top = run("client", &["top", "--config", &config]);
    assert_eq!(top.code, Some(1));
    assert!(top.output.contains("standard output is not a terminal"), "{}", top.output);
    pair.client.kill();
    let ended = run("client", &["flows", "--config", &config]);
    assert_eq!(ended.code, Some(1));
    let at = pair.addresses.client_admin;
    let said = format!("nothing listens at {at} (admin.address of {config})");
    assert!(ended.output.contains(&said), "{}", ended.output);
}
