//! The link and the clean-up on real namespaces. Needs root: `cargo test -- --include-ignored`.

// A helper of a test fails as its test does.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use millrace_lab::emulate::Emulation;
use millrace_lab::emulator::{FrameIo, LinkConfig, PipeConfig};
use millrace_lab::proxies::Binaries;
use millrace_lab::run::Run;
use millrace_lab::runner::{RunRequest, RunResult, ScenarioDriver};
use millrace_lab::scenario::ScenarioFile;
use millrace_lab::topology::{KernelCc, Topology};
use millrace_lab::traces::Traces;
use millrace_lab::{calibrate, host, interrupt, netns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const MS: u64 = 1_000_000;

/// The demo's link.
fn link(loss: f64) -> LinkConfig {
    let buffer_bytes = PipeConfig::bdp_bytes(12_000_000, 100 * MS);
    LinkConfig::new(12_000_000, 100 * MS, buffer_bytes, loss, 0.0, 7)
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn rate_delay_and_loss_are_what_was_asked_for() {
    the_link_is_what_it_says(FrameIo::Packet);
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn rate_delay_and_loss_are_what_was_asked_for_with_tap_devices() {
    the_link_is_what_it_says(FrameIo::Tap);
}

fn the_link_is_what_it_says(frame_io: FrameIo) {
    let run = Run::start().unwrap();
    let topology = Topology::with_frame_io(&run, KernelCc::Cubic, frame_io).unwrap();
    let found = calibrate::run(&topology, link(0.05), Duration::from_secs(12)).unwrap();
    let error = found.measured_mbps / found.rate_mbps - 1.0;
    assert!(error.abs() < 0.005, "rate {} Mbit/s", found.measured_mbps);
    assert!(found.loss_z.abs() < 4.0, "{} of {} lost", found.lost, found.offered);
    assert!(found.drops.abs_diff(found.ideal_drops) <= 2, "{} {}", found.drops, found.ideal_drops);
    // Early packets are an error of `run`; late ones depend on what else this machine does.
    assert!(found.delay_error.p50_us < 1000.0, "delay error {:?}", found.delay_error);
    for report in &found.emulator {
        for pipe in [report.down, report.up] {
            let count = pipe.counters;
            let gone = count.lost_packets + count.dropped_packets + count.delivered_packets;
            assert_eq!(count.arrived_packets, gone + pipe.inside_packets);
        }
        assert_eq!((report.kernel_drops, report.send_errors, report.oversize_frames), (0, 0, 0));
    }
    let lost = found.emulator[1].down.counters.lost_packets;
    // One packet to fill the neighbour tables may have been lost as well.
    assert!(lost - found.lost <= 1, "emulator lost {lost}, the receiver misses {}", found.lost);
}

/// The kernel's threads that receive from a link, and how each is scheduled.
fn receiving_threads() -> Vec<i32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let threads = processes.filter(|entry| {
        let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        name.starts_with("napi/wan-")
    });
    let pid = |name: std::ffi::OsString| name.to_str().unwrap().parse().unwrap();
    // SAFETY: a plain value; one that has ended meanwhile is an error, below zero.
    threads.map(|entry| unsafe { libc::sched_getscheduler(pid(entry.file_name())) }).collect()
}

/// Its speed depends on the load of this machine; nothing may get lost.
#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn a_fast_link_is_received_from_by_threads_that_go_with_it() {
    let run = Run::start().unwrap();
    let topology = Topology::with_frame_io(&run, KernelCc::Cubic, FrameIo::Packet).unwrap();
    let buffer_bytes = PipeConfig::bdp_bytes(400_000_000, 30 * MS);
    let link = LinkConfig::new(400_000_000, 30 * MS, buffer_bytes, 0.05, 0.0, 7);
    let found = calibrate::run(&topology, link, Duration::from_secs(3)).unwrap();
    let real_time =
        receiving_threads().into_iter().filter(|policy| *policy == libc::SCHED_FIFO).count();
    assert!(real_time >= 2, "{real_time} threads");
    assert!(found.loss_z.abs() < 4.0, "{} of {} lost", found.lost, found.offered);
    for report in &found.emulator {
        assert!(report.priority.starts_with("SCHED_FIFO"), "{}", report.priority);
        assert_eq!((report.kernel_drops, report.send_errors), (0, 0));
    }
    drop(topology);
    interrupt::wait_for(Duration::from_secs(10), || {
        Ok((receiving_threads().len() <= real_time - 2).then_some(()))
    })
    .unwrap()
    .expect("they end with their interfaces");
}

/// How often a run is repeated during which this machine fell behind the link.
const MAX_ATTEMPTS: u32 = 4;

/// The result of a valid run of a scenario on the demo's link.
fn emulate(flows: &str, more: &str) -> RunResult {
    let text = format!(
        "name = \"test\"\ntitle = \"Test\"\nduration_s = 12\nwarmup_s = 3\n{more}\n\
         link = {{ rate_mbps = 12, rtt_ms = 100, buffer_bytes = 150000, loss = 0.01 }}\n{flows}"
    );
    let file = ScenarioFile::parse(&text, Path::new("test.toml")).unwrap();
    let binaries = Binaries::beside(Path::new(env!("CARGO_BIN_EXE_millrace-lab"))).unwrap();
    let emulation = Emulation::new(Traces::find(None), binaries, FrameIo::best()).unwrap();
    for attempt in 1.. {
        let result = run_once(&emulation, &file);
        if result.invalid_because.is_empty() {
            return result;
        }
        assert!(attempt < MAX_ATTEMPTS, "no run is valid: {:?}", result.invalid_because);
        println!("again, invalid: {:?}", result.invalid_because);
        host::wait_until_quiet().unwrap();
    }
    unreachable!()
}

fn run_once(emulation: &Emulation, file: &ScenarioFile) -> RunResult {
    let out = tempfile::tempdir().unwrap();
    let scenario = &file.cells[0].scenario;
    let request = RunRequest { scenario, seed: 7, with_series: true, directory: out.path() };
    let result = emulation.run(&request).unwrap();
    result.unwrap_or_else(|not_done| {
        let logs = std::fs::read_dir(out.path().join("logs")).unwrap();
        for log in logs.map(|log| log.unwrap().path()) {
            println!("{}:\n{}", log.display(), std::fs::read_to_string(&log).unwrap());
        }
        panic!("{not_done:?}")
    })
}

fn figure(result: &RunResult, flow: usize, name: &str) -> f64 {
    result.figures.flows[flow].figures.0[name]
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn kernel_tcp_behaves_as_on_such_a_path() {
    let cubic = emulate("[[flow]]\ncc = \"kernel:cubic\"", "");
    // Mathis: 1448 B x 8 / 100 ms x 1.22 / sqrt(0.01) = 1.4 Mbit/s; CUBIC is a little above Reno.
    let slow = figure(&cubic, 0, "goodput_mbps");
    assert!((0.6..3.0).contains(&slow), "{cubic:?}");
    assert!((100.0..103.0).contains(&figure(&cubic, 0, "rtt_ms.min")), "{cubic:?}");

    let bbr = emulate("[[flow]]\ncc = \"kernel:bbr\"", "");
    let fast = figure(&bbr, 0, "goodput_mbps");
    assert!((3.0 * slow..12.0).contains(&fast), "{bbr:?}");
    // 1448 of 1500 bytes are payload; what a loss holds back for a round trip or two at either end of
    // the nine seconds is counted by one of the two only.
    let ratio = fast / figure(&bbr, 0, "throughput_mbps");
    assert!((0.93..0.995).contains(&ratio), "{ratio}");
}

/// CUBIC is limited by its window, which at 1 % of loss has a dozen packets.
#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn a_window_that_limits_makes_no_small_packets() {
    let result = emulate("[[flow]]\ncc = \"cubic\"", "");
    let link = |name| result.figures.link.0[name];
    let size = link("delivered_mbps") * 1e6 / 8.0 * 9.0 / link("delivered_packets");
    assert!(size > 1400.0, "{size} bytes on average: {result:?}");
}

/// Both directions, both versions of IP, a shared connection, a longer round trip: the link tells the flows
/// apart, and its counts agree with the proxies'.
#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn flows_of_all_kinds_cross_beside_each_other() {
    for version in [4, 6] {
        let flows = "[[flow]]\ncc = \"vivace-latency\"\n\
             [[flow]]\ncc = \"cubic\"\nextra_rtt_ms = 50\n\
             [[flow]]\ncc = \"bbr\"\ndirection = \"up\"\n\
             [[flow]]\ncc = \"vivace-loss\"\ncount = 2\nconnections = \"shared\"\n\
             [[flow]]\ncc = \"kernel:reno\"\nstop_s = 8";
        let result = emulate(flows, &format!("ip = {version}"));
        assert_eq!(result.figures.flows.len(), 6);
        for flow in 0..6 {
            assert!(figure(&result, flow, "goodput_mbps") > 0.05, "flow {flow}: {result:?}");
        }
        // Both wait in the same queue, so their difference is the extra round trip of one of them. Their minimum
        // round trips are of other moments, and of other queues.
        let apart = figure(&result, 1, "rtt_ms.p50") - figure(&result, 0, "rtt_ms.p50");
        assert!((35.0..65.0).contains(&apart), "{apart} ms: {result:?}");
        // An upload has the way up to itself.
        assert!(figure(&result, 2, "throughput_mbps") > 6.0, "{result:?}");
        let account = result.account.as_ref().unwrap();
        for differs in account["telemetry_differs_by"].as_array().unwrap() {
            let differs = differs.as_f64().unwrap_or_default();
            assert!(differs.abs() < 0.02, "{account}");
        }
        let crossed = &account["emulator"]["down"];
        assert!(
            crossed["tcp_packets"].as_u64() > Some(0) && crossed["udp_packets"].as_u64() > Some(0)
        );
    }
}

/// A measurement in a process of its own, and the identifier of its run.
fn start() -> (Child, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_millrace-lab"))
        .args(["calibrate", "--duration-s", "60"])
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let id = lines.find_map(|line| line.unwrap().strip_prefix("run mr-").map(str::to_owned));
    let id = id.expect("a run names itself");
    let built = interrupt::wait_for(Duration::from_secs(20), || {
        Ok((netns::of_run(&id).len() == 5).then_some(()))
    });
    assert!(built.unwrap().is_some(), "namespaces of {id}: {:?}", netns::of_run(&id));
    (child, id)
}

fn lock(id: &str) -> std::path::PathBuf {
    Path::new("/run/millrace-lab").join(format!("{id}.lock"))
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn an_interrupted_run_leaves_nothing() {
    for wanted in [Signal::SIGINT, Signal::SIGTERM] {
        let (mut child, id) = start();
        signal(&child, wanted);
        assert_eq!(child.wait().unwrap().code(), Some(130));
        assert_eq!(netns::of_run(&id), Vec::<String>::new());
        assert!(!lock(&id).exists());
    }
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn clean_removes_a_killed_run_and_no_living_one() {
    let (mut killed, dead) = start();
    let (mut living, alive) = start();
    signal(&killed, Signal::SIGKILL);
    killed.wait().unwrap();
    assert_eq!(netns::of_run(&dead).len(), 5);

    let clean = Command::new(env!("CARGO_BIN_EXE_millrace-lab")).arg("clean").output().unwrap();
    assert!(clean.status.success());
    assert_eq!(netns::of_run(&dead), Vec::<String>::new());
    assert!(!lock(&dead).exists());
    assert_eq!(netns::of_run(&alive).len(), 5);
    signal(&living, Signal::SIGINT);
    assert_eq!(living.wait().unwrap().code(), Some(130));
}
