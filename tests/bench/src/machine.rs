//! What the figures were measured on, and of what.

use std::fs;
use std::process::Command;

use serde::Serialize;

use crate::cpu::cores;

/// The machine, and the state of the sources.
#[derive(Debug, Serialize)]
pub struct Machine {
    cpu: String,
    cores: f64,
    memory_gb: f64,
    kernel: String,
    load_average: String,
    commit: String,
    command: String,
}

impl Machine {
    /// Reads it; what can't be read is called unknown.
    pub fn describe() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let memory_kb: f64 = value_of(&meminfo, "MemTotal")
            .and_then(|text| text.trim_end_matches(" kB").parse().ok())
            .unwrap_or_default();
        let line = |path: &str| {
            fs::read_to_string(path).map_or_else(|_| unknown(), |text| text.trim().to_owned())
        };
        Self {
            cpu: value_of(&cpuinfo, "model name").unwrap_or_else(unknown),
            cores: cores(),
            memory_gb: (memory_kb * 1024e-9 * 10.0).round() / 10.0,
            kernel: line("/proc/sys/kernel/osrelease"),
            load_average: line("/proc/loadavg"),
            commit: commit(),
            command: std::env::args().collect::<Vec<_>>().join(" "),
        }
    }

    /// What figures of two machines differ by.
    pub fn name(&self) -> String {
        let Self { cpu, cores, memory_gb, kernel, .. } = self;
        format!("{cores} x {cpu}, {memory_gb} GB, Linux {kernel}")
    }
}

fn value_of(text: &str, key: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(key))?;
    line.split_once(':').map(|(_, value)| value.trim().to_owned())
}

fn unknown() -> String {
    "unknown".to_owned()
}

fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else { return unknown() };
    match git(&["status", "--porcelain", "--untracked-files=no"]) {
        Some(changes) if changes.is_empty() => commit,
        _ => format!("{commit} with changes"),
    }
}
