//! Controllers that are programs of their own: the example in Python, and how faulty programs are reported.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

fn simulate(scenario: &Path, out: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace-lab"));
    command.args(["run", "--driver", "simulator", "--json", "--out"]).arg(out).arg(scenario);
    command.output().unwrap()
}

fn first_scenario(output: &Output) -> serde_json::Value {
    let said = String::from_utf8_lossy(&output.stderr);
    let all: serde_json::Value = serde_json::from_slice(&output.stdout).expect(&said);
    all["scenarios"][0].clone()
}

#[test]
fn example_in_python_fills_the_link_with_a_short_queue() {
    let out = tempfile::tempdir().unwrap();
    let example =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/python-controller/scenario.toml");
    let output = simulate(&example, out.path());
    let scenario = first_scenario(&output);
    assert!(output.status.success(), "{scenario}");
    assert_eq!(scenario["counts"]["done"], 3, "{scenario}");
    let claims = scenario["claims"].as_array().unwrap();
    assert_eq!(claims.len(), 2);
    assert!(claims.iter().all(|claim| claim["verdict"] == "holds"), "{claims:?}");
}

/// A program that answers its first line, and does something else after the second.
fn after_the_start(rest: &str) -> String {
    format!(
        "import sys, time; sys.stdin.readline(); \
         print('{{\"protocol\": 1, \"window_bytes\": 15000, \"pacing_bits_per_s\": 1e6}}', flush=True); \
         sys.stdin.readline(); {rest}"
    )
}

#[test]
fn faulty_programs_end_their_runs_with_the_reason() {
    let versionless = r#"print('{"window_bytes": 15000, "pacing_bits_per_s": 1e6}', flush=True)"#;
    let window_of_0 = r#"print('{"window_bytes": 0, "pacing_bits_per_s": 1e6}', flush=True)"#;
    let faults = [
        ("missing", None, "can't start: no-such-controller: No such file or directory"),
        (
            "version",
            Some(r#"print('{"protocol": 7}', flush=True)"#.to_owned()),
            "speaks protocol 7, this lab 1",
        ),
        ("versionless", Some(versionless.to_owned()), "lacks \"protocol\": 1"),
        ("line", Some(after_the_start("print('faster', flush=True)")), "bad line \"faster\""),
        (
            "range",
            Some(after_the_start(window_of_0)),
            "window_bytes is 0; allowed are 1 to 1000000000",
        ),
        (
            "exit",
            Some(after_the_start("sys.exit('out of ideas')")),
            "the program ended: exit status: 1",
        ),
        ("silence", Some(after_the_start("sys.stdin.read()")), "no answer within 0.5 s"),
        ("endless", Some(after_the_start("print('9' * 100000)")), "more than 4096 bytes"),
        ("twice", Some(after_the_start("print('{}\\n{}', flush=True)")), "more than one line"),
    ];
    let directory = tempfile::tempdir().unwrap();
    let names: Vec<String> =
        faults.iter().map(|(name, ..)| format!("\"external:{name}\"")).collect();
    let mut text = format!(
        "name = \"faults\"\ntitle = \"Faults\"\nduration_s = 100\n[link]\nrate_mbps = 10\nrtt_ms = 20\n\
         buffer_bytes = 25000\n[sweep]\n\"flow.0.cc\" = [{}]\n[[flow]]\ncc = \"external:missing\"\n",
        names.join(", ")
    );
    for (name, program, _) in &faults {
        let command = match program {
            Some(program) => serde_json::json!(["python3", "-c", program]),
            None => serde_json::json!(["no-such-controller"]),
        };
        // Others have the time that Python may need to start on a busy machine.
        let timeout_s = if *name == "silence" { 0.5 } else { 30.0 };
        text.push_str(&format!(
            "[external.{name}]\ntimeout_s = {timeout_s}\ncommand = {command}\n"
        ));
    }
    let path = directory.path().join("faults.toml");
    fs::write(&path, text).unwrap();
    let begin = Instant::now();
    let output = simulate(&path, directory.path());
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
    assert_eq!(output.status.code(), Some(1));
    let scenario = first_scenario(&output);
    assert_eq!(scenario["counts"]["failed"], faults.len(), "{scenario}");
    let reasons: Vec<String> = scenario["problems"]
        .as_array()
        .unwrap()
        .iter()
        .map(|problem| problem["reason"].as_str().unwrap().to_owned())
        .collect();
    for (name, _, expected) in &faults {
        let start = format!("external:{name}, its flow 0, at ");
        let is_reported = |reason: &String| reason.starts_with(&start) && reason.contains(expected);
        assert!(reasons.iter().any(is_reported), "{name}: {expected:?} in {reasons:#?}");
    }
    let exit = reasons.iter().find(|reason| reason.starts_with("external:exit")).unwrap();
    assert!(exit.contains("out of ideas"), "its standard error: {exit}");
}
