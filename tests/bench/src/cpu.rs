//! CPU time: of a group of processes, of this one, of the kernel's softirq threads, and of the
//! machine as a whole.
//!
//! Work that the kernel does in softirq (UDP and TCP receive on a veth) runs inside the system call
//! that caused it, and is counted there, unless there is so much that `ksoftirqd` takes over: its
//! time is added. What the machine spent beyond all of that was spent by others, and a run with
//! more than a little of it measures them too.

use std::fs;

use anyhow::{Context, Result, bail};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::unistd::{SysconfVar, sysconf};
use serde::{Deserialize, Serialize};

/// CPU seconds, user and system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Seconds {
    /// In user space.
    pub user_s: f64,
    /// In the kernel.
    pub system_s: f64,
}

impl Seconds {
    /// Both together.
    pub fn total(self) -> f64 {
        self.user_s + self.system_s
    }

    /// What was spent since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self { user_s: self.user_s - earlier.user_s, system_s: self.system_s - earlier.system_s }
    }

    /// Adds what another one spent.
    pub fn add(&mut self, other: Self) {
        self.user_s += other.user_s;
        self.system_s += other.system_s;
    }
}

/// What the machine as a whole spent.
#[derive(Debug, Clone, Copy, Default)]
pub struct MachineCpuTime {
    /// All processes and interrupts.
    pub busy_s: f64,
    /// Taken by the hypervisor.
    pub steal_s: f64,
}

/// CPU time of this process: origin, sink and the measuring itself.
///
/// # Errors
/// Never on Linux.
pub fn own() -> Result<Seconds> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let seconds = |time: nix::sys::time::TimeVal| time.num_microseconds() as f64 * 1e-6;
    Ok(Seconds { user_s: seconds(usage.user_time()), system_s: seconds(usage.system_time()) })
}

/// What the processes of a group use together. Those that ended are not counted.
#[derive(Debug, Clone, Default)]
pub struct GroupUse {
    /// CPU time.
    pub seconds: Seconds,
    /// Resident set. Pages that processes share count for each of them.
    pub resident_bytes: f64,
    /// The processes.
    pub pids: Vec<u32>,
}

/// CPU time of all processes of the group that `leader` leads. Those that ended are not counted.
///
/// # Errors
/// When the group has no process.
pub fn group(leader: u32) -> Result<Seconds> {
    Ok(groups(&[leader])?.remove(0).seconds)
}

/// The same of several groups, whose processes are listed once.
///
/// # Errors
/// When one of them has no process.
pub fn groups(leaders: &[u32]) -> Result<Vec<GroupUse>> {
    let mut all = vec![GroupUse::default(); leaders.len()];
    let page_bytes = sysconf(SysconfVar::PAGE_SIZE).ok().flatten().map_or(4096.0, |it| it as f64);
    for stat in stats() {
        if let Some(index) = leaders.iter().position(|leader| *leader == stat.group) {
            let group = &mut all[index];
            group.seconds.add(stat.seconds);
            group.resident_bytes += stat.resident_pages * page_bytes;
            group.pids.push(stat.pid);
        }
    }
    let ended = all.iter().zip(leaders).find(|(group, _)| group.pids.is_empty());
    match ended {
        Some((_, leader)) => bail!("process group {leader} has ended"),
        None => Ok(all),
    }
}

/// CPU time of each thread of a process, by name; nothing of one that has ended.
pub fn threads(pid: u32) -> Vec<(String, Seconds)> {
    let ticks_per_s = ticks_per_s();
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks
        .filter_map(|task| fs::read_to_string(task.path().join("stat")).ok())
        .filter_map(|text| parse_stat(&text, ticks_per_s))
        .map(|stat| (stat.name, stat.seconds))
        .collect()
}

/// CPU time of the kernel's softirq threads.
pub fn softirq_threads() -> Seconds {
    let mut sum = Seconds::default();
    for stat in stats().filter(|stat| stat.name.starts_with("ksoftirqd/")) {
        sum.add(stat.seconds);
    }
    sum
}

/// CPU time of the machine.
///
/// # Errors
/// When /proc/stat is not as proc_stat(5) says.
pub fn machine() -> Result<MachineCpuTime> {
    let text = fs::read_to_string("/proc/stat").context("/proc/stat")?;
    parse_machine(&text, ticks_per_s()).context("/proc/stat has no line of all CPUs")
}

/// Cores that the machine has.
pub fn cores() -> f64 {
    std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64)
}

fn parse_machine(text: &str, ticks_per_s: f64) -> Option<MachineCpuTime> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<f64> =
        line.split_ascii_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    // user nice system idle iowait irq softirq steal (guest is within user)
    let [user, nice, system, _idle, _iowait, irq, softirq, steal, ..] = ticks[..] else {
        return None;
    };
    Some(MachineCpuTime {
        busy_s: (user + nice + system + irq + softirq) / ticks_per_s,
        steal_s: steal / ticks_per_s,
    })
}

struct Stat {
    pid: u32,
    name: String,
    group: u32,
    seconds: Seconds,
    resident_pages: f64,
}

fn stats() -> impl Iterator<Item = Stat> {
    let ticks_per_s = ticks_per_s();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit))
        // A process may end between the listing and the reading.
        .filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok())
        .filter_map(move |text| parse_stat(&text, ticks_per_s))
}

/// proc_pid_stat(5). The name is in brackets and may itself hold brackets and spaces.
fn parse_stat(text: &str, ticks_per_s: f64) -> Option<Stat> {
    let (head, tail) = text.rsplit_once(") ")?;
    let (pid, name) = head.split_once(" (")?;
    let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
    // Counted from field 3, the state: pgrp is 5, utime 14, stime 15, rss 24.
    let number = |field: usize| fields.get(field - 3)?.parse::<f64>().ok();
    Some(Stat {
        pid: pid.parse().ok()?,
        name: name.to_owned(),
        group: fields.get(5 - 3)?.parse().ok()?,
        seconds: Seconds { user_s: number(14)? / ticks_per_s, system_s: number(15)? / ticks_per_s },
        resident_pages: number(24)?,
    })
}

fn ticks_per_s() -> f64 {
    sysconf(SysconfVar::CLK_TCK).ok().flatten().map_or(100.0, |ticks| ticks as f64)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;
    use std::time::{Duration, Instant};

    use nix::sys::signal::{Signal, killpg};
    use nix::unistd::Pid;

    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_shift_the_fields() {
        let text = "42 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 150 50 0 0 20 0 1 0 9 8 7";
        let stat = parse_stat(text, 100.0).unwrap();
        assert_eq!((stat.pid, stat.name.as_str(), stat.group), (42, "a) b (c", 7));
        assert_eq!(stat.resident_pages, 7.0);
        assert_eq!(stat.seconds, Seconds { user_s: 1.5, system_s: 0.5 });
    }

    #[test]
    fn idle_time_is_not_busy_and_steal_is_apart() {
        let machine =
            parse_machine("cpu  100 20 30 4000 500 6 7 80 0 0\ncpu0 1 2\n", 100.0).unwrap();
        assert!((machine.busy_s - 1.63).abs() < 1e-9, "{machine:?}");
        assert!((machine.steal_s - 0.8).abs() < 1e-9, "{machine:?}");
    }

    #[test]
    fn own_work_is_seen() {
        let before = own().unwrap();
        let mut x = 1_u64;
        while own().unwrap().since(before).total() < 0.1 {
            x = std::hint::black_box(x.wrapping_mul(31));
        }
    }

    // Not of the test's own group: it has other processes too, and loses their time when they end.
    #[test]
    fn work_of_a_group_is_seen() {
        let mut busy = Command::new("sh")
            .args(["-c", "while :; do :; done & wait"])
            .process_group(0)
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut spent_s = 0.0;
        while spent_s < 0.05 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
            spent_s = group(busy.id()).unwrap().total();
        }
        killpg(Pid::from_raw(busy.id().cast_signed()), Signal::SIGKILL).unwrap();
        busy.wait().unwrap();
        assert!(spent_s >= 0.05, "{spent_s}");
    }
}
