//! Scenario files: those of this repository are valid, invalid ones are rejected with place and reason, and the
//! commands handle both.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use millrace_lab::scenario::ScenarioFile;

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
fn every_scenario_of_this_repository_is_valid() {
    // Those for both drivers are compared with each other: they have no claims, and their plots follow from what
    // they sweep.
    for (directory, claims) in
        [("papers", true), ("conditions", true), ("real", true), ("parity", false)]
    {
        every_scenario_is_good(&format!("scenarios/{directory}"), claims);
    }
    valid_files("scenarios/players");
}

fn every_scenario_is_good(directory: &str, claims: bool) {
    for file in valid_files(directory) {
        assert_eq!(!file.claims.is_empty(), claims, "claims of {}", file.head.name);
        assert!(!file.plots.is_empty() || !claims, "{}: draws nothing", file.head.name);
    }
}

/// All files of a directory, whose names are those of the scenarios.
fn valid_files(directory: &str) -> Vec<ScenarioFile> {
    let load = |path: &PathBuf| {
        let file = ScenarioFile::load(path).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(Some(file.head.name.as_str()), path.file_stem().unwrap().to_str());
        file
    };
    toml_files(directory).iter().map(load).collect()
}

#[test]
fn learned_rules_are_evaluated_with_the_initial_window_of_the_tunnel() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/conditions/mcc-changing.toml");
    let file = ScenarioFile::load(&path).unwrap();
    let tunnel = millrace_config::INITIAL_CONGESTION_WINDOW_PACKETS as u64;
    for cell in &file.cells {
        assert_eq!(cell.scenario.sim.initial_window_packets, tunnel);
    }
}

#[test]
fn a_preset_is_run_for_the_papers_algorithms_alone() {
    let directory = tempfile::tempdir().unwrap();
    let results = directory.path().join("results").display().to_string();
    for (name, cc) in [("vivace", "vivace-loss"), ("iris", "iris-min")] {
        let text = format!(
            "name = \"{name}\"\ntitle = \"A\"\nduration_s = 2\n[link]\nrate_mbps = 10\nrtt_ms = 20\n\
             buffer_bytes = 25000\n[[flow]]\ncc = \"{cc}\"\n[[flow]]\ncc = \"cubic\"\n\
             [[claim]]\ntext = \"a\"\nmetric = \"throughput_mbps\"\nat_least = 100\n"
        );
        fs::write(directory.path().join(format!("{name}.toml")), text).unwrap();
    }
    let all = directory.path().display().to_string();
    let options = ["--out", &results, "--preset", "nsdi18-code", "--baselines", "2018", &all];
    // A claim that fails needs a reason with the file's own settings only.
    let output = simulate(&options);
    assert!(output.status.success(), "{}", err(&output));
    let read = |file: &str| -> serde_json::Value {
        let path = directory.path().join("results").join(file);
        serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
    };
    let variant = &read("vivace/summary.json")["scenario"]["variant"];
    assert_eq!(*variant, serde_json::json!({"preset": "nsdi18-code", "baselines": "2018"}));
    let flows = &read("vivace/runs/0000-r00/run.json")["settings"]["flow"];
    assert_eq!(flows[0]["parameters"]["preset"], "nsdi18-code");
    assert_eq!(flows[1]["parameters"]["paced"], false);
    assert!(!directory.path().join("results/iris").exists(), "of Iris no code was released");

    let iris = directory.path().join("iris.toml").display().to_string();
    let nothing = simulate(&["--out", &results, "--preset", "nsdi18-code", &iris]);
    assert_eq!(nothing.status.code(), Some(64));
    assert!(err(&nothing).contains("no scenario has algorithms with these settings"));

    let page = directory.path().join("page.md").display().to_string();
    let claims = lab(&["claims", &format!("code={results}"), "--scenarios", &all, "--out", &page]);
    assert!(claims.status.success(), "{}", err(&claims));
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("| a | at least 100 | **fails** "), "{page}");
    assert!(page.contains("## Not run\n\n- `iris`: A\n"), "{page}");
}

#[test]
fn every_row_of_the_papers_has_its_scenario() {
    let names: Vec<String> = toml_files("scenarios/papers")
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
fn invalid_files_are_rejected_with_place_and_reason() {
    for path in toml_files("tests/invalid") {
        let text = fs::read_to_string(&path).unwrap();
        let expected = text.lines().next().unwrap().strip_prefix("# expect: ").unwrap();
        let error = ScenarioFile::parse(&text, Path::new("x")).map(|_| ()).unwrap_err().to_string();
        assert_eq!(error.strip_prefix("x:").unwrap(), expected, "{}", path.display());
    }
}

fn lab(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_millrace-lab")).args(arguments).output().unwrap()
}

/// Runs the program in another directory.
fn lab_in(directory: &Path, arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_millrace-lab");
    let mut command = Command::new(program);
    command.current_dir(directory).env_remove("MILLRACE_TRACES").args(arguments).output().unwrap()
}

/// `millrace-lab run` with the simulator.
fn simulate(arguments: &[&str]) -> Output {
    lab(&[&["run", "--driver", "simulator"][..], arguments].concat())
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
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
fn simulator_runs_a_scenario_and_counts_its_claims() {
    let directory = tempfile::tempdir().unwrap();
    let results = directory.path().join("results").display().to_string();
    let good = small(directory.path(), "at_least = 4.5");
    let output = simulate(&["--out", &results, &good]);
    let text = out(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("holds: it sends"), "{text}");
    assert!(text.ends_with("1 claims hold, 0 fail (0 without a reason)\n"), "{text}");
    assert!(directory.path().join("results/small/summary.json").exists());
    assert!(directory.path().join("results/small/runs/0000-r00/series.parquet").exists());
}

#[test]
fn a_failed_claim_without_a_reason_sets_the_exit_code() {
    let directory = tempfile::tempdir().unwrap();
    let results = directory.path().join("results").display().to_string();
    let bad = small(directory.path(), "at_least = 9");
    let output = simulate(&["--json", "--out", &results, &bad]);
    assert_eq!(output.status.code(), Some(2));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["claims"]["fail_without_reason"], 1);
    assert_eq!(json["scenarios"][0]["claims"][0]["verdict"], "fails");
    let quick = simulate(&["--quick", "--out", &results, &bad]);
    assert!(quick.status.success(), "a shortened run proves nothing, either way");
    assert!(out(&quick).contains("proves nothing"));

    let explained = small(directory.path(), "at_least = 9\nreason = \"it sends 5\"");
    let output = simulate(&["--out", &results, &explained]);
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
    let output = simulate(&["--quick", "--json", "--out", &results, &scenarios]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let all = json["scenarios"].as_array().unwrap();
    assert_eq!(all.len(), 2);
    assert!(all.iter().all(|scenario| scenario["counts"]["runs"] == 1), "{json}");
}

#[test]
fn a_driver_skips_scenarios_that_it_cannot_run_and_rejects_them_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = small(directory.path(), "at_least = 1");
    let text = fs::read_to_string(&path).unwrap();
    let other = text.replace("name = \"small\"", "name = \"other\"\ndrivers = [\"emulator\"]");
    let other_path = directory.path().join("other.toml");
    fs::write(&other_path, other).unwrap();
    let results = directory.path().join("results").display().to_string();
    let all = directory.path().display().to_string();
    let output = simulate(&["--json", "--out", &results, &all]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["scenarios"].as_array().unwrap().len(), 1, "{json}");
    let other_path = other_path.display().to_string();
    let output = simulate(&["--out", &results, &other_path]);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains("other.toml: drivers: the simulator can't run this scenario"),
        "{error}"
    );
}

#[test]
fn the_simulator_rejects_options_of_the_emulator() {
    let directory = tempfile::tempdir().unwrap();
    let path = small(directory.path(), "at_least = 1");
    for (option, value) in [("--attempts", "2"), ("--frame-io", "tap"), ("--media-dir", "media")] {
        let output = simulate(&[option, value, &path]);
        assert_eq!(output.status.code(), Some(1));
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains(&format!("{option} needs --driver emulator")), "{error}");
    }
}

#[test]
fn an_unknown_algorithm_fails_and_the_known_ones_are_listed() {
    let directory = tempfile::tempdir().unwrap();
    let results = directory.path().join("results").display().to_string();
    let path = small(directory.path(), "at_least = 1");
    let text = fs::read_to_string(&path).unwrap().replace("\"constant\"", "\"cubik\"");
    fs::write(&path, text).unwrap();
    let output = simulate(&["--out", &results, &path]);
    assert_eq!(output.status.code(), Some(64));
    let error = err(&output);
    let problem = "small.toml:9:6: flow[0].cc: unknown congestion control \"cubik\"; known are";
    assert!(error.contains(problem), "{error}");
}

#[test]
fn repeats_differ_where_nothing_on_the_path_is_random() {
    let directory = tempfile::tempdir().unwrap();
    let goodputs = |spread: &str| {
        let path = directory.path().join("repeats.toml");
        let text = format!(
            "name = \"repeats\"\ntitle = \"Repeats\"\nduration_s = 10\nrepeat = 4\n{spread}[link]\nrate_mbps = 10\n\
             rtt_ms = 50\nbuffer_bytes = 25000\n[[flow]]\ncc = \"cubic\"\n[[flow]]\ncc = \"vegas\"\n"
        );
        fs::write(&path, text).unwrap();
        let run = ["run", "--driver", "simulator", "--out", "results"];
        let run = lab_in(directory.path(), &[&run[..], &[path.to_str().unwrap()]].concat());
        assert!(run.status.success(), "{}", err(&run));
        let summary = fs::read_to_string(directory.path().join("results/repeats/summary.json"));
        let summary: serde_json::Value = serde_json::from_str(&summary.unwrap()).unwrap();
        let goodput = &summary["cells"][0]["groups"][0]["figures"]["goodput_mbps"];
        let values: Vec<f64> = serde_json::from_value(goodput["values"].clone()).unwrap();
        let interval: [f64; 2] = serde_json::from_value(goodput["median_95"].clone()).unwrap();
        (values, interval[1] - interval[0])
    };
    let (values, width) = goodputs("");
    for (index, value) in values.iter().enumerate() {
        assert!(!values[..index].contains(value), "{values:?}");
    }
    assert!(width > 0.0, "{values:?}");
    let (values, width) = goodputs("spread = { rtt = 0, start_s = 0 }\n");
    assert!(values.iter().all(|value| *value == values[0]) && width == 0.0, "{values:?}");
}

/// A link that follows a trace of the format `throughput`.
fn over_trace(directory: &Path, name: &str, trace: &str) -> String {
    let path = directory.join(format!("{name}.toml"));
    let text = format!(
        "name = \"{name}\"\ntitle = \"A link of my own\"\nduration_s = 2\n[link]\ntrace = \"{trace}\"\n\
         trace_format = \"throughput\"\nrtt_ms = 20\nbuffer_bytes = 25000\n[[flow]]\ncc = \"cubic\"\n"
    );
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn traces_are_found_beside_the_scenario_from_any_directory() {
    let (scenarios, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(scenarios.path().join("mine.csv"), "time,mbps\n0,3\n1,4\n").unwrap();
    let path = over_trace(scenarios.path(), "own", "mine.csv");
    let check = lab_in(elsewhere.path(), &["check", &path]);
    assert!(check.status.success(), "{}", err(&check));
    let run = ["run", "--driver", "simulator", "--out", "results", &path];
    let run = lab_in(elsewhere.path(), &run);
    assert!(run.status.success(), "{}", err(&run));
    assert!(out(&run).ends_with("no claims\n"), "{}", out(&run));
    // Without a terminal lines tell what runs; the first of them at once.
    assert!(err(&run).starts_with("simulator: 1 run\n"), "{}", err(&run));
    assert!(elsewhere.path().join("results/own/summary.json").is_file());
}

#[test]
fn a_scenario_without_its_trace_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = over_trace(directory.path(), "own", "nowhere.txt");
    let refused = |arguments: &[&str]| {
        let output = lab_in(directory.path(), arguments);
        assert_eq!(output.status.code(), Some(64), "{}", err(&output));
        let problem = "own.toml:5:9: link.trace: there is no trace ";
        assert!(err(&output).contains(problem), "{}", err(&output));
    };
    refused(&["check", &path]);
    let run = ["run", "--driver", "simulator", "--out", "results", &path];
    refused(&run);
    assert!(!directory.path().join("results").exists());
    // Skipped on request; a run of nothing is no success.
    let skipped = lab_in(directory.path(), &[&run[..], &["--skip-missing-traces"]].concat());
    assert_eq!(skipped.status.code(), Some(1), "{}", err(&skipped));
    assert!(out(&skipped).contains("1 runs skipped"), "{}", out(&skipped));
    // Another scenario can be chosen beside it.
    small(directory.path(), "at_least = 1");
    let all = directory.path().display().to_string();
    let other = [&run[..5], &[&all, "--filter", "small"]].concat();
    let other = lab_in(directory.path(), &other);
    assert!(other.status.success(), "{}", err(&other));
}

#[test]
fn a_malformed_trace_is_refused_with_its_line() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("bad.csv"), "time,kbps\n0,3000\n").unwrap();
    let path = over_trace(directory.path(), "own", "bad.csv");
    let output = lab_in(directory.path(), &["check", &path]);
    assert_eq!(output.status.code(), Some(64));
    let problem = "bad.csv:1: the header says \"kbps\", expected Mbit/s in the second column";
    assert!(err(&output).contains(problem), "{}", err(&output));
}

#[test]
fn report_list_and_archive_work_from_any_directory() {
    let directory = tempfile::tempdir().unwrap();
    let list = lab_in(directory.path(), &["list"]);
    assert!(out(&list).lines().any(|line| line.starts_with("vivace-fig02 ")), "{}", err(&list));

    let scenario = small(directory.path(), "at_least = 1");
    let run = ["run", "--driver", "simulator", "--out", "results", &scenario];
    assert!(lab_in(directory.path(), &run).status.success());
    // A program without the repository, as one that was copied to another machine.
    let program = directory.path().join("millrace-lab");
    fs::copy(env!("CARGO_BIN_EXE_millrace-lab"), &program).unwrap();
    let copied = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.current_dir(directory.path()).args(arguments).output().unwrap()
    };
    let without = copied(&["report", "results"]);
    assert_eq!(without.status.code(), Some(1));
    for words in ["lab/web/dist/figures.html can't be read", "`make pages`", "--page"] {
        assert!(err(&without).contains(words), "{}", err(&without));
    }
    let page = "<script type=\"application/json\">\"millrace-report-data\"</script>";
    fs::write(directory.path().join("figures.html"), page).unwrap();
    let report = copied(&["report", "results"]);
    assert!(report.status.success(), "{}", err(&report));
    let html = fs::read_to_string(directory.path().join("results/report.html")).unwrap();
    assert!(html.contains("\"title\":\"Small\""), "the title of the only scenario: {html}");
    let titled = copied(&["report", "results", "--title", "Mine"]);
    assert!(titled.status.success(), "{}", err(&titled));
    let html = fs::read_to_string(directory.path().join("results/report.html")).unwrap();
    assert!(html.contains("\"title\":\"Mine\""), "{html}");

    let nowhere = copied(&["archive", "results"]);
    assert!(err(&nowhere).contains("--out names the output directory"), "{}", err(&nowhere));
    let archive = copied(&["archive", "--out", "kept", "results"]);
    assert!(archive.status.success(), "{}", err(&archive));
    assert!(directory.path().join("kept/small/flows.csv").is_file());
}

#[test]
fn check_and_list_print_the_scenarios() {
    let scenarios =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/papers").display().to_string();
    let list = lab(&["list", &scenarios]);
    assert!(list.status.success());
    let text = out(&list);
    assert!(text.lines().any(|line| line.starts_with("vivace-fig02 ")), "{text}");
    // Recorded links are not part of the repository.
    let without_trace = std::fs::read_dir(&scenarios)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| !std::fs::read_to_string(path).unwrap().contains("mahimahi"));
    let mut arguments = vec!["check".to_owned()];
    arguments.extend(without_trace.map(|path| path.display().to_string()));
    assert!(arguments.len() > 10, "{arguments:?}");
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let check = lab(&arguments);
    assert!(check.status.success(), "{}", err(&check));
    let invalid = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/invalid");
    let output = lab(&["check", &invalid.display().to_string()]);
    assert_eq!(output.status.code(), Some(64));
    assert!(String::from_utf8(output.stderr).unwrap().contains("unknown_key.toml:5:1: colour"));
}
