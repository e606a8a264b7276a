//! The bench on real namespaces. Needs root: `cargo test -- --include-ignored`.

// A helper of a test fails as its test does.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

fn output(name: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    dir.join(format!("{name}-{}.json", std::process::id()))
}

fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace-bench"));
    command.args(arguments);
    command
}

/// The namespaces that the bench `pid` has made.
fn namespaces_of(pid: u32) -> Vec<PathBuf> {
    // Each run's lock is open in its process for as long as it lives; its namespaces carry its id.
    let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let id = fds.filter_map(|fd| std::fs::read_link(fd.path()).ok()).find_map(|path| {
        Some(path.to_str()?.strip_suffix(".lock")?.rsplit('/').next()?.to_owned())
    });
    let Some(id) = id else { return Vec::new() };
    let names = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    names.map(|name| name.path()).filter(|path| path.to_string_lossy().contains(&id)).collect()
}

fn read(path: &PathBuf, output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn plain_tcp_is_measured_and_a_hop_costs_more() {
    let path = output("hop");
    let variants = ["--variants", "direct,nginx-stream", "--rounds", "1", "--seconds", "1"];
    let rest = [
        "--warmup-s",
        "0",
        "--quiet-timeout-s",
        "0",
        "--retries",
        "0",
        "--output",
        path.to_str().unwrap(),
    ];
    let ran = bench(&[&["data-path"], &variants[..], &rest[..]].concat()).output().unwrap();
    let results = read(&path, &ran);
    for variant in ["direct", "nginx_stream"] {
        let one = &results[variant]["one_flow"];
        assert!(one["gbps"].as_f64().unwrap() > 0.1, "{one}");
        assert_eq!(one["gbps"], results[variant]["gbps"]);
        assert_eq!(results[variant]["eight_flows"]["runs"], 1);
    }
    let cost = |variant: &str| results[variant]["cpu_s_per_gb"].as_f64().unwrap();
    // The proxy reads and writes every byte once more; unless its process is counted, the load
    // alone costs about the same in both.
    assert!(cost("nginx_stream") > 1.5 * cost("direct"), "{results}");
    let parts = &results["runs"].as_array().unwrap()[1]["parts_s_per_gb"];
    assert!(parts["proxy"]["system_s"].as_f64().unwrap() > 0.0, "{parts}");
}

#[test]
#[ignore = "needs root, network namespaces and the programs; run by make test"]
fn connections_are_counted_and_resumed_sweep_runs_nothing_twice() {
    let path = output("connections");
    // The programs are beside this one.
    let programs = Path::new(env!("CARGO_BIN_EXE_millrace-bench")).parent().unwrap();
    let run = || {
        let arguments = ["connections", "--ways", "per_flow", "--counts", "4"];
        let times = ["--seconds", "1", "--warmup-s", "0", "--quiet-timeout-s", "0", "--resume"];
        let mut command = bench(&[&arguments[..], &times[..]].concat());
        command.arg("--programs").arg(programs).arg("--output").arg(&path).output().unwrap()
    };
    let results = read(&path, &run());
    let runs = results["runs"].as_array().unwrap();
    let loads: Vec<&str> = runs.iter().map(|run| run["load"].as_str().unwrap()).collect();
    assert_eq!(loads, ["bulk", "video"]);
    for run_of_four in runs {
        let counts = (&run_of_four["up"], &run_of_four["ended"]);
        assert_eq!(counts, (&4.into(), &0.into()), "{run_of_four}");
    }
    // Each of four viewers needs a segment in each second.
    let segments = runs[1]["figures"]["segments"]["segments"].as_u64().unwrap();
    assert!((3..=5).contains(&segments), "{}", runs[1]);
    let run_of_four = &runs[0];
    let figures = &run_of_four["figures"];
    assert!(figures["bytes"].as_u64().unwrap() > 1_000_000, "{run_of_four}");
    for role in ["client", "server"] {
        let part = &figures["parts_s_per_gb"][role];
        assert!(part["user_s"].as_f64().unwrap() > 0.0, "{run_of_four}");
        assert!(figures["memory"][role]["loaded_bytes"].is_number(), "{run_of_four}");
        assert!(figures["extras"]["calls_per_gb"][role]["source"].is_string(), "{run_of_four}");
    }
    // A packet has less than 1.5 kB.
    let packets = figures["packets_per_gb"]["value"].as_f64().unwrap();
    assert!(packets > 600_000.0, "{run_of_four}");
    let again = run();
    assert!(String::from_utf8_lossy(&again.stderr).contains("0 runs, about 0 s"));
    assert_eq!(read(&path, &again)["runs"].as_array().unwrap().len(), 2);
    for file in [path.clone(), path.with_extension("csv")] {
        std::fs::remove_file(file).unwrap();
    }
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn an_interrupted_run_leaves_nothing() {
    let path = output("interrupted");
    let arguments = ["data-path", "--variants", "direct", "--quiet-timeout-s", "0", "--output"];
    let mut child = bench(&arguments).arg(&path).spawn().unwrap();
    let mut made = Vec::new();
    for _ in 0..250 {
        made = namespaces_of(child.id());
        if made.len() == 2 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(made.len(), 2, "namespaces after 5 s: {made:?}");
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
    kill(pid, Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!made.iter().any(|path| path.exists()), "left: {made:?}");
    assert!(!path.exists());
}
