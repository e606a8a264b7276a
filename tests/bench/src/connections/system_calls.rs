//! System calls of running programs, counted by `perf stat`.
//!
//! The count slows each call down, so it has a time of its own beside the measured interval.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use millrace_lab::interrupt;
use millrace_lab::process::{Running, require};

use super::record::CounterReading;

/// The tracepoint that every system call passes.
const EVENT: &str = "raw_syscalls:sys_enter";
/// How long perf may take beyond the time that it counts in.
const PERF_TIMEOUT: Duration = Duration::from_secs(10);

/// A running `perf stat`.
struct PerfStat {
    process: Running,
    log: PathBuf,
}

/// System calls a second of the processes of each role during `seconds`, or why they can't be had.
///
/// # Errors
/// On Ctrl-C.
pub fn per_second(
    pids: &BTreeMap<String, Vec<u32>>,
    seconds: u64,
    scratch: &Path,
) -> Result<BTreeMap<String, CounterReading>> {
    if let Err(error) = require(&[("perf", "linux-perf")]) {
        let missing = CounterReading::missing(error.to_string());
        return Ok(pids.keys().map(|role| (role.clone(), missing.clone())).collect());
    }
    let started: Vec<_> =
        pids.iter().map(|(role, pids)| (role, start(role, pids, seconds, scratch))).collect();
    let mut readings = BTreeMap::new();
    for (role, perf) in started {
        let reading = match perf {
            Ok(mut perf) => {
                let timeout = Duration::from_secs(seconds) + PERF_TIMEOUT;
                let status = interrupt::wait_for(timeout, || perf.process.ended())?;
                let text = std::fs::read_to_string(&perf.log).unwrap_or_default();
                match status {
                    None => CounterReading::missing("perf stat did not end"),
                    Some(_) => per_second_of(&text, seconds),
                }
            }
            Err(error) => CounterReading::missing(format!("{error:#}")),
        };
        readings.insert(role.clone(), reading);
    }
    Ok(readings)
}

fn start(role: &str, pids: &[u32], seconds: u64, scratch: &Path) -> Result<PerfStat> {
    let log = scratch.join(format!("{role}.perf-stat.log"));
    let list: Vec<String> = pids.iter().map(u32::to_string).collect();
    let mut command = Command::new("perf");
    command.args(["stat", "-x", ",", "-e", EVENT, "-p", &list.join(",")]);
    command.args(["--", "sleep", &seconds.to_string()]);
    let process = Running::start("perf", &mut command, &log)?;
    Ok(PerfStat { process, log })
}

fn per_second_of(text: &str, seconds: u64) -> CounterReading {
    match parse(text) {
        Some(Ok(count)) => {
            CounterReading::new(count / seconds as f64, format!("perf stat, {EVENT}"))
        }
        Some(Err(reason)) => CounterReading::missing(format!("perf stat: {reason}")),
        None => {
            let last = text.lines().last().unwrap_or("no output");
            CounterReading::missing(format!("perf stat failed: {last}"))
        }
    }
}

/// The count in a line `COUNT,UNIT,EVENT,...`, or perf's word for a counter that it does not have.
fn parse(text: &str) -> Option<Result<f64, String>> {
    let line = text.lines().find(|line| line.contains(EVENT))?;
    let count = line.split(',').next()?;
    match count {
        // Attached to threads that made no call.
        "<not counted>" => Some(Ok(0.0)),
        count if count.starts_with('<') => Some(Err(count.trim_matches(['<', '>']).to_owned())),
        count => count.parse().ok().map(Ok),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_of_perf_is_read() {
        let text = "12345,,raw_syscalls:sys_enter,200136,100.00,,\n";
        assert_eq!(parse(text), Some(Ok(12_345.0)));
        assert_eq!(parse("<not counted>,,raw_syscalls:sys_enter,0,100.00,,\n"), Some(Ok(0.0)));
    }

    #[test]
    fn missing_counter_has_its_reason() {
        let text = "<not supported>,,raw_syscalls:sys_enter,0,100.00,,\n";
        assert_eq!(parse(text), Some(Err("not supported".to_owned())));
        let reading = per_second_of("Error: No permission to enable the event\n", 1);
        assert!(
            reading.value.is_none()
                && reading.source.ends_with("No permission to enable the event")
        );
    }
}
