//! Processor load of this machine: a browser without a processor stalls on any network.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::interrupt;

/// Above this share of all processors the machine counts as saturated.
const SATURATED_CPU_SHARE: f64 = 0.95;

/// Below this share of all processors it counts as quiet.
const QUIET_CPU_SHARE: f64 = 0.25;

/// How long it has to be quiet.
const QUIET_TIME: Duration = Duration::from_secs(5);

/// Longest wait for that.
const MAX_WAIT: Duration = Duration::from_secs(90);

/// Waits until other programs leave the processors idle, at most 90 s: a run beside them would be
/// invalid again.
///
/// # Errors
/// When /proc/stat can't be read, or the user wants to stop.
pub fn wait_until_quiet() -> Result<()> {
    let mut since = (Instant::now(), CpuTime::now()?);
    interrupt::wait_for(MAX_WAIT, || {
        if since.0.elapsed() < QUIET_TIME {
            return Ok(None);
        }
        let now = CpuTime::now()?;
        let shares = now.since(since.1);
        since = (Instant::now(), now);
        Ok((shares.cpu_busy < QUIET_CPU_SHARE).then_some(()))
    })?;
    Ok(())
}

/// Processor time of all processors since boot, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuTime {
    total: u64,
    idle: u64,
    steal: u64,
}

/// Shares of all processors over an interval, 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CpuShares {
    /// In use, by anything.
    pub cpu_busy: f64,
    /// Taken by the hypervisor for other machines.
    pub cpu_steal: f64,
}

impl CpuTime {
    /// Now.
    ///
    /// # Errors
    /// When /proc/stat can't be read.
    pub fn now() -> Result<Self> {
        let text = fs::read_to_string("/proc/stat").context("/proc/stat")?;
        parse(&text).context("/proc/stat has no line for all processors")
    }

    /// Shares since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> CpuShares {
        let total = (self.total - earlier.total).max(1) as f64;
        CpuShares {
            cpu_busy: 1.0 - (self.idle - earlier.idle) as f64 / total,
            cpu_steal: (self.steal - earlier.steal) as f64 / total,
        }
    }
}

impl CpuShares {
    /// Why a session over this interval is invalid, if it is.
    #[must_use]
    pub fn invalid_reason(&self) -> Option<String> {
        (self.cpu_busy > SATURATED_CPU_SHARE).then(|| {
            let percent = self.cpu_busy * 100.0;
            format!("{percent:.0} % of the processors were in use: something else is running")
        })
    }
}

/// proc_stat(5): user nice system idle iowait irq softirq steal, then guest times that user
/// contains.
fn parse(text: &str) -> Option<CpuTime> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> =
        line.split_ascii_whitespace().take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
    let [_, _, _, idle, iowait, _, _, steal] = ticks[..] else { return None };
    Some(CpuTime { total: ticks.iter().sum(), idle: idle + iowait, steal })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_interval() {
        let before = parse("cpu  100 0 50 850 0 0 0 0 0 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n").unwrap();
        let after = parse("cpu  160 0 80 950 5 0 0 5 9 9\n").unwrap();
        let shares = after.since(before);
        assert!((shares.cpu_busy - 0.475).abs() < 1e-9, "{shares:?}");
        assert!((shares.cpu_steal - 0.025).abs() < 1e-9, "{shares:?}");
        assert_eq!(shares.invalid_reason(), None);
        assert!(CpuShares { cpu_busy: 0.97, cpu_steal: 0.0 }.invalid_reason().is_some());
    }

    #[test]
    fn this_machine_has_one() {
        CpuTime::now().unwrap();
    }
}
