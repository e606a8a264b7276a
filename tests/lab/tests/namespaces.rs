//! The link and the clean-up on real namespaces. Needs root: `cargo test -- --include-ignored`.

// A helper of a test fails as its test does.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use millrace_lab::bulk::{self, BulkReport, Times};
use millrace_lab::emulator::{LinkConfig, PipeConfig, Report};
use millrace_lab::run::Run;
use millrace_lab::topology::{KernelCc, Topology};
use millrace_lab::{calibrate, interrupt, netns};
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
    let run = Run::start().unwrap();
    let topology = Topology::build(&run, KernelCc::Cubic).unwrap();
    let found = calibrate::run(&topology, link(0.05), Duration::from_secs(12)).unwrap();
    let error = found.measured_mbps / found.rate_mbps - 1.0;
    assert!(error.abs() < 0.005, "rate {} Mbit/s", found.measured_mbps);
    assert!(found.loss_z.abs() < 4.0, "{} of {} lost", found.lost, found.offered);
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

fn download(cc: KernelCc) -> (BulkReport, Report) {
    let run = Run::start().unwrap();
    let topology = Topology::build(&run, cc).unwrap();
    let emulator = topology.start_link(link(0.01)).unwrap();
    let times = Times { duration: Duration::from_secs(15), warmup: Duration::from_secs(3) };
    let flow = bulk::run(&topology, cc, times, |_| {}).unwrap();
    (flow, emulator.finish().unwrap())
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn kernel_tcp_behaves_as_on_such_a_path() {
    let (cubic, link) = download(KernelCc::Cubic);
    assert_eq!(cubic.congestion_control, "cubic");
    // Mathis: 1448 B x 8 / 100 ms x 1.22 / sqrt(0.01) = 1.4 Mbit/s; CUBIC is a little above Reno.
    assert!((0.6..3.0).contains(&cubic.goodput_mbps), "{cubic:?}");
    assert!((100.0..103.0).contains(&cubic.rtt_min_ms), "{cubic:?}");
    assert!(link.down.transports.tcp_packets > 0 && link.oversize_frames == 0);

    let (bbr, _) = download(KernelCc::Bbr);
    assert_eq!(bbr.congestion_control, "bbr");
    assert!(bbr.goodput_mbps > 3.0 * cubic.goodput_mbps, "{bbr:?} {cubic:?}");
    assert!(bbr.goodput_mbps < 12.0, "{bbr:?}");
}

/// A bulk flow in a process of its own, and the identifier of its run.
fn start() -> (Child, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_millrace-lab"))
        .args(["emu", "--traffic", "cubic", "--duration-s", "60"])
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
