use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::*;
use crate::results::claims::ClaimVerdict;
use crate::results::{RunCounts, Summary};
use crate::runner::{Earlier, RunnerOptions, quicker, run};
use crate::scenario::ScenarioFile;

const TWO: &str = r#"
name = "two"
title = "Two constant flows over too small a link"
duration_s = 4
warmup_s = 1
repeat = 2
[link]
rate_mbps = 5
rtt_ms = 20
buffer_bytes = 15000
[sweep]
"link.loss" = [0, 0.1]
[[flow]]
cc = "constant"
parameters = { rate_mbps = 2 }
count = 2
[[claim]]
text = "each gets what it sends"
metric = "throughput_mbps"
where = { "link.loss" = 0 }
over_flows = "each"
at_least = 1.8
[[claim]]
text = "loss takes nothing (it does)"
metric = "loss_rate"
at_most = 0.01
"#;

fn options(out: &Path, jobs: usize) -> RunnerOptions {
    RunnerOptions { out: out.to_owned(), jobs, attempts: 1, quick: None, earlier: None }
}

fn simulator(traces: &Path) -> Simulator {
    Simulator { traces: Traces::find(Some(traces)) }
}

fn run_text(text: &str, out: &Path, jobs: usize) -> Summary {
    run_with(text, &options(out, jobs))
}

fn run_with(text: &str, options: &RunnerOptions) -> Summary {
    let file = ScenarioFile::parse(text, Path::new("test.toml")).unwrap();
    let mut seen = None;
    let simulator = simulator(Path::new("/nonexistent"));
    run(&simulator, &[file], options, |summary, _| {
        seen = Some(summary.clone());
        Ok(())
    })
    .unwrap();
    seen.unwrap()
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// All files below a directory but for their stamps.
fn without_stamps(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut open = vec![directory.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
                continue;
            }
            let name = path.strip_prefix(directory).unwrap().display().to_string();
            let bytes = match path.extension().and_then(|extension| extension.to_str()) {
                Some("json") => {
                    let mut value = json(&path);
                    value.as_object_mut().unwrap().remove("stamp");
                    value.to_string().into_bytes()
                }
                _ => fs::read(&path).unwrap(),
            };
            all.insert(name, bytes);
        }
    }
    all
}

#[test]
fn runs_leave_what_the_documentation_says() {
    let out = tempfile::tempdir().unwrap();
    let summary = run_text(TWO, out.path(), 2);
    assert_eq!(summary.counts, RunCounts { runs: 4, done: 4, ..RunCounts::default() });
    let verdicts: Vec<ClaimVerdict> = summary.claims.iter().map(|claim| claim.verdict).collect();
    assert_eq!(verdicts, [ClaimVerdict::Holds, ClaimVerdict::Fails]);
    assert_eq!(summary.claims[1].at.as_ref().unwrap()["link.loss"], 0.1);

    let first = out.path().join("two/runs/0000-r00");
    let run = json(&first.join("run.json"));
    assert_eq!(run["status"], "done");
    assert_eq!(run["settings"]["link"]["rate_mbps"], 5.0);
    assert_eq!(run["settings"]["flow"][0]["stop_s"], 4.0, "defaults are filled in");
    assert_eq!(run["seed"], 1);
    let flows = json(&first.join("flows.json"));
    assert_eq!(flows["flows"].as_array().unwrap().len(), 2);
    let goodput = flows["flows"][1]["goodput_mbps"].as_f64().unwrap();
    assert!((1.8..2.1).contains(&goodput), "{goodput}");
    assert!(flows["flows"][0]["rtt_ms"]["p95"].as_f64().unwrap() >= 19.6, "within 2 %");
    let rtt_ms = run["rtt_ms"].as_f64().unwrap();
    assert!(rtt_ms != 20.0 && (19.6..=20.4).contains(&rtt_ms), "{rtt_ms}");
    let utilisation = flows["link"]["utilisation"].as_f64().unwrap();
    assert!((0.75..0.85).contains(&utilisation), "{utilisation}");
    assert!(first.join("series.parquet").exists());
    assert!(!out.path().join("two/runs/0000-r01/series.parquet").exists(), "the first only");

    let loss = json(&out.path().join("two/summary.json"))["cells"][1]["link"]["loss_rate"].clone();
    assert_eq!(loss["n"], 2);
    assert!((0.05..0.15).contains(&loss["median"].as_f64().unwrap()), "{loss}");
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let (one, many) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    run_text(TWO, one.path(), 1);
    run_text(TWO, many.path(), 4);
    let (one, many) = (without_stamps(one.path()), without_stamps(many.path()));
    assert_eq!(one.len(), 1 + 4 * 2 + 2);
    assert_eq!(one, many);
}

#[test]
fn what_is_missing_is_skipped_or_failed_and_reported() {
    let out = tempfile::tempdir().unwrap();
    let text = r#"
name = "missing"
title = "Nothing of this can run"
duration_s = 1
[link]
trace = "no/such.trace"
rtt_ms = 20
buffer_bytes = 15000
[[sweep.zip]]
"flow.0.cc" = ["constant", "kernel:cubic", "mcc"]
"flow.0.parameters" = [{ rate_mbps = 2 }, {}, { algorithms = ["nonesuch"] }]
[[flow]]
cc = "constant"
[[claim]]
text = "it runs"
metric = "throughput_mbps"
at_least = 1
"#;
    let summary = run_text(text, out.path(), 1);
    assert_eq!((summary.counts.skipped, summary.counts.failed), (2, 1));
    assert_eq!(summary.claims[0].verdict, ClaimVerdict::NotMeasured);
    let said: Vec<&str> = summary.problems.iter().map(|problem| problem.reason.as_str()).collect();
    let has = |part: &str| said.iter().any(|reason| reason.contains(part));
    assert!(
        has("there is no trace no/such.trace nor /nonexistent/no/such.trace; --traces or"),
        "{said:?}"
    );
    assert!(has("kernel:cubic: the kernel's TCP runs in the emulator only"), "{said:?}");
    assert!(has("mcc: ") && has("nonesuch"), "{said:?}");
    let run = json(&out.path().join("missing/runs/0002-r00/run.json"));
    assert_eq!((run["status"].as_str(), run["valid"].as_bool()), (Some("failed"), Some(false)));
    assert!(!out.path().join("missing/runs/0002-r00/flows.json").exists());
}

#[test]
fn a_recorded_link_is_found_in_the_directory_given() {
    let (out, recorded) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(recorded.path().join("even"), "0 2\n1 2\n").unwrap();
    let text = r#"
name = "trace"
title = "A recording"
duration_s = 3
[link]
trace = "even"
trace_format = "throughput"
rtt_ms = 20
buffer_bytes = 15000
[[flow]]
cc = "constant"
parameters = { rate_mbps = 4 }
"#;
    let file = ScenarioFile::parse(text, Path::new("test.toml")).unwrap();
    run(&simulator(recorded.path()), &[file], &options(out.path(), 1), |summary, _| {
        let capacity = summary.cells[0].link["capacity_mbps"].median;
        assert!((capacity - 2.0).abs() < 0.01, "{capacity}");
        Ok(())
    })
    .unwrap();
}

#[test]
fn quicker_is_shorter_and_says_so() {
    let mut file = ScenarioFile::parse(TWO, Path::new("test.toml")).unwrap();
    let said = quicker(&mut file);
    assert!(said.contains("proves nothing"), "{said}");
    assert_eq!((file.cells[0].scenario.duration_s, file.head.repeat), (1.0, 1));
    assert_eq!(file.cells[0].scenario.groups[0].stop_s, 1.0);
}

#[test]
fn earlier_runs_are_reused_and_the_rest_is_run() {
    let out = tempfile::tempdir().unwrap();
    let first = run_text(TWO, out.path(), 2);
    assert!(first.reused.is_empty());
    let runs = out.path().join("two/runs");
    // To tell reused runs from new ones.
    let mark = |run: &str, value: &str| {
        let path = runs.join(run).join("flows.json");
        let mut file = json(&path);
        file["link"]["peak_queue_bytes"] = value.parse::<f64>().unwrap().into();
        fs::write(path, file.to_string()).unwrap();
    };
    for run in ["0000-r00", "0000-r01", "0001-r00", "0001-r01"] {
        mark(run, "1.5");
    }
    fs::create_dir(runs.join("0000-r01-discarded-1")).unwrap();
    // It was run, but is invalid.
    let path = runs.join("0000-r00/run.json");
    let mut file = json(&path);
    file["valid"] = false.into();
    fs::write(path, file.to_string()).unwrap();

    // Another value instead of 0.1, before the one that stays, and a repeat more.
    let text = TWO.replace("[0, 0.1]", "[0.2, 0]").replace("repeat = 2", "repeat = 3");
    let reusing = || {
        let earlier = Some(Earlier::read(&[out.path().to_owned()]).unwrap());
        run_with(&text, &RunnerOptions { earlier, ..options(out.path(), 2) })
    };
    let second = reusing();
    let peaks = |cell: usize| second.cells[cell].link["peak_queue_bytes"].values.clone();
    let marked = |cell: usize| peaks(cell).iter().filter(|peak| **peak == 1.5).count();
    assert_eq!((marked(0), marked(1)), (0, 1), "{second:?}");
    assert_eq!(peaks(1)[1], 1.5, "in the place of its repeat");
    assert_eq!(second.reused.values().sum::<usize>(), 1);
    assert_eq!((second.counts.runs, second.counts.done, second.counts.discarded), (6, 6, 1));
    let file = json(&runs.join("0001-r01/run.json"));
    assert_eq!((&file["cell"], &file["repeat"]), (&1.into(), &1.into()));
    assert!(runs.join("0001-r01-discarded-1").is_dir());
    assert!(runs.join("0000-r00/series.parquet").is_file());

    // Once more: all runs are reused, and the figures are the same.
    let third = reusing();
    assert_eq!(third.reused.values().sum::<usize>(), 6);
    // Of infinite figures the deviation is not a number, which equals nothing.
    assert!(format!("{:?}", third.cells) == format!("{:?}", second.cells));
    assert!(format!("{:?}", third.claims) == format!("{:?}", second.claims));
}

#[test]
fn reusing_results_without_runs_fails() {
    let out = tempfile::tempdir().unwrap();
    let error = Earlier::read(&[out.path().to_owned()]).unwrap_err().to_string();
    assert!(error.contains("no results of scenarios"), "{error}");
    assert!(Earlier::read(&[out.path().join("nothing")]).is_err());
}

#[test]
fn a_run_that_floods_the_link_ends_and_is_skipped() {
    let out = tempfile::tempdir().unwrap();
    let text = |rate_mbps: u32| {
        format!(
            "name = \"flood\"\ntitle = \"Flood\"\nduration_s = 20\n[link]\nrate_mbps = 2\nrtt_ms = 20\n\
             buffer_bytes = 15000\n[[flow]]\ncc = \"constant\"\nparameters = {{ rate_mbps = {rate_mbps} }}\n"
        )
    };
    let flooded = run_text(&text(1000), out.path(), 1);
    assert_eq!((flooded.counts.skipped, flooded.counts.done), (1, 0));
    let reason = "its flows send more than 100 times what the link carries; the run was ended";
    assert_eq!(flooded.problems[0].reason, reason);
    let many = run_text(&text(150), out.path(), 1);
    assert_eq!((many.counts.skipped, many.counts.done), (0, 1), "75 times");
}

/// A player over a link that carries the second rung only, 30 s.
fn with_player(app: &str) -> String {
    format!(
        "name = \"player\"\ntitle = \"Player\"\nduration_s = 30\nseries = \"all\"\n[link]\nrate_mbps = 1.2\nrtt_ms = 50\n\
         buffer_bytes = 60000\n[[flow]]\ncc = \"cubic\"\n{app}\n"
    )
}

#[test]
fn a_virtual_player_has_the_figures_of_a_session_in_a_browser_but_for_pictures() {
    let out = tempfile::tempdir().unwrap();
    for abr in ["throughput", "bola", "dynamic"] {
        let summary =
            run_text(&with_player(&format!("app = \"dash\"\nabr = \"{abr}\"")), out.path(), 1);
        assert_eq!(summary.counts.done, 1, "{summary:?}");
        let flows = json(&out.path().join("player/runs/0000-r00/flows.json"));
        let figures = &flows["flows"][0];
        let of =
            |name: &str| figures[name].as_f64().unwrap_or_else(|| panic!("{name} in {figures}"));
        assert!((350.0..=620.0).contains(&of("bitrate_kbps")), "{abr}: {figures}");
        assert_eq!((of("stalls"), of("rebuffer_ratio"), of("watched_s")), (0.0, 0.0, 30.0));
        assert!((0.3..2.0).contains(&of("startup_s")));
        assert!(of("qoe_lin") <= of("qoe_lin_without_switches"));
        assert!((of("qoe_lin_without_switches") - of("bitrate_kbps") / 1e3).abs() < 1e-9);
        assert!(figures.get("psnr_db").is_none() && of("switches") < 10.0);
    }
}

#[test]
fn players_that_the_simulator_has_not_are_skipped() {
    let out = tempfile::tempdir().unwrap();
    for (app, reason) in [
        ("app = \"dash\"\nabr = \"lolp\"", "abr = \"lolp\" runs in the emulator only"),
        ("app = \"rtsp\"\nmedia_mbps = 15", "players of streams run in the emulator only"),
    ] {
        let summary = run_text(&with_player(app), out.path(), 1);
        assert_eq!((summary.counts.skipped, summary.counts.done), (1, 0));
        assert_eq!(summary.problems[0].reason, reason);
    }
}
