//! Scenario files: those of this repository are good, wrong ones are refused with place and reason,
//! and the program does what it says with both.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use millrace_lab::scenario::File;

fn toml_files(directory: &str) -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|found| found == "toml")).collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

#[test]
fn every_scenario_of_this_repository_is_good() {
    // Those for both drivers are there to be compared: they claim nothing, and what is drawn of them
    // follows from what they sweep.
    for (directory, claims) in
        [("scenarios", true), ("scenarios/wire", true), ("scenarios/both", false)]
    {
        every_scenario_is_good(directory, claims);
    }
}

fn every_scenario_is_good(directory: &str, claims: bool) {
    for path in toml_files(directory) {
        let file = File::load(&path).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(Some(file.head.name.as_str()), path.file_stem().unwrap().to_str());
        assert_eq!(!file.claims.is_empty(), claims, "claims of {}", file.head.name);
        assert!(!file.plots.is_empty() || !claims, "{}: draws nothing", file.head.name);
    }
}

#[test]
fn every_row_of_the_papers_has_its_scenario() {
    let names: Vec<String> = toml_files("scenarios")
        .iter()
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    let vivace = (2..=11).map(|figure| format!("vivace-fig{figure:02}"));
    let iris = (6..=11).map(|figure| format!("iris-fig{figure:02}"));
    for wanted in vivace.chain(iris).chain(["iris-tab2".to_owned()]) {
        assert!(names.iter().any(|name| name.starts_with(&wanted)), "{wanted} in {names:?}");
    }
}

#[test]
fn wrong_files_are_refused_with_place_and_reason() {
    for path in toml_files("tests/invalid") {
        let text = fs::read_to_string(&path).unwrap();
        let expected = text.lines().next().unwrap().strip_prefix("# expect: ").unwrap();
        let error = File::parse(&text, Path::new("x")).map(|_| ()).unwrap_err().to_string();
        assert_eq!(error.strip_prefix("x:").unwrap(), expected, "{}", path.display());
    }
}

fn lab(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_millrace-lab")).args(arguments).output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// A scenario of a second with one claim.
fn small(directory: &Path, bound: &str) -> String {
    let path = directory.join("small.toml");
    let text = format!(
        "name = \"small\"\ntitle = \"Small\"\nduration_s = 1\n[link]\nrate_mbps = 10\nrtt_ms = 20\n\
         buffer_bytes = 25000\n[[flow]]\ncc = \"constant\"\nparameters = {{ rate_mbps = 5 }}\n\
         [[claim]]\ntext = \"it sends\"\nmetric = \"throughput_mbps\"\n{bound}\n"
    );
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn sim_runs_a_scenario_and_counts_its_claims() {
    let directory = tempfile::tempdir().unwrap();
    let results = directory.path().join("results").display().to_string();
    let good = small(directory.path(), "at_least = 4.5");
    let output = lab(&["sim", &good, "--out", &results]);
    let text = out(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("holds: it sends"), "{text}");
    assert!(text.ends_with("1 claims hold, 0 fall short (0 without a reason)\n"), "{text}");
    assert!(directory.path().join("results/small/summary.json").exists());
    assert!(directory.path().join("results/small/runs/0000-r00/series.parquet").exists());
}

#[test]
fn a_claim_that_falls_short_without_a_reason_fails() {
    let directory = tempfile::tempdir().unwrap();
    let results = directory.path().join("results").display().to_string();
    let bad = small(directory.path(), "at_least = 9");
    let output = lab(&["sim", &bad, "--out", &results, "--json"]);
    assert_eq!(output.status.code(), Some(2));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["claims"]["fall_short_without_reason"], 1);
    assert_eq!(json["scenarios"][0]["claims"][0]["verdict"], "falls short");
    let quick = lab(&["sim", &bad, "--out", &results, "--quick"]);
    assert!(quick.status.success(), "a shortened run proves nothing, either way");
    assert!(out(&quick).contains("proves nothing"));

    let explained = small(directory.path(), "at_least = 9\nreason = \"it sends 5\"");
    let output = lab(&["sim", &explained, "--out", &results]);
    assert!(output.status.success());
    assert!(out(&output).contains("it sends 5"), "{}", out(&output));
}

#[test]
fn quick_shortens_every_scenario() {
    let directory = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(small(directory.path(), "at_least = 1")).unwrap();
    for name in ["small", "other"] {
        let text = text.replace("name = \"small\"", &format!("name = \"{name}\"\nrepeat = 5"));
        fs::write(directory.path().join(format!("{name}.toml")), text).unwrap();
    }
    let scenarios = directory.path().display().to_string();
    let results = directory.path().join("results").display().to_string();
    let output = lab(&["sim", "--quick", "--json", "--out", &results, &scenarios]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let all = json["scenarios"].as_array().unwrap();
    assert_eq!(all.len(), 2);
    assert!(all.iter().all(|scenario| scenario["counts"]["runs"] == 1), "{json}");
}

#[test]
fn an_unknown_algorithm_fails_and_the_known_ones_are_listed() {
    let directory = tempfile::tempdir().unwrap();
    let results = directory.path().join("results").display().to_string();
    let path = small(directory.path(), "at_least = 1");
    let text = fs::read_to_string(&path).unwrap().replace("\"constant\"", "\"cubik\"");
    fs::write(&path, text).unwrap();
    let output = lab(&["sim", &path, "--out", &results]);
    assert_eq!(output.status.code(), Some(1));
    assert!(out(&output).contains("unknown congestion control \"cubik\"; known are"));
}

#[test]
fn check_and_list_say_what_there_is() {
    let scenarios = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios").display().to_string();
    let list = lab(&["list", &scenarios]);
    assert!(list.status.success());
    let text = out(&list);
    assert!(text.lines().any(|line| line.starts_with("vivace-fig02 ")), "{text}");
    assert!(lab(&["check", &scenarios]).status.success());
    let invalid = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/invalid");
    let output = lab(&["check", &invalid.display().to_string()]);
    assert_eq!(output.status.code(), Some(64));
    assert!(String::from_utf8(output.stderr).unwrap().contains("unknown_key.toml:5:1: colour"));
}
