//! CPU time of the programs, of the load and of the machine between two moments.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::Result;

use crate::cpu::{self, MachineCpuTime, Seconds};
use crate::variant::Way;

/// Role of origin, sink and the measuring itself.
pub const LOAD: &str = "load";
/// Role of the kernel's softirq threads.
pub const SOFTIRQ_THREADS: &str = "softirq_threads";

/// What the programs of a way use, by role; that of several with one role is added up.
#[derive(Debug, Clone, Default)]
pub struct RoleUse {
    /// CPU time.
    pub seconds: BTreeMap<String, Seconds>,
    /// Resident set.
    pub resident_bytes: BTreeMap<String, f64>,
    /// Processes.
    pub pids: BTreeMap<String, Vec<u32>>,
}

impl RoleUse {
    /// # Errors
    /// When a program has ended.
    pub fn read(way: &Way) -> Result<Self> {
        let leaders: Vec<u32> = way.parts.iter().map(|part| part.process.pid()).collect();
        let mut all = Self::default();
        for (part, group) in way.parts.iter().zip(cpu::groups(&leaders)?) {
            let role = || part.role.to_owned();
            all.seconds.entry(role()).or_default().add(group.seconds);
            *all.resident_bytes.entry(role()).or_default() += group.resident_bytes;
            all.pids.entry(role()).or_default().extend(group.pids);
        }
        Ok(all)
    }
}

/// One moment.
#[derive(Debug)]
pub struct UsageSnapshot {
    /// When.
    pub at: Instant,
    /// Resident bytes by role.
    pub resident_bytes: BTreeMap<String, f64>,
    parts: BTreeMap<String, Seconds>,
    machine: MachineCpuTime,
}

impl UsageSnapshot {
    /// # Errors
    /// When a program has ended.
    pub fn take(way: &Way) -> Result<Self> {
        let RoleUse { seconds: mut parts, resident_bytes, .. } = RoleUse::read(way)?;
        parts.insert(LOAD.to_owned(), cpu::own()?);
        parts.insert(SOFTIRQ_THREADS.to_owned(), cpu::softirq_threads());
        let machine = cpu::machine()?;
        Ok(Self { at: Instant::now(), resident_bytes, parts, machine })
    }

    /// What was used since `before`.
    pub fn since(&self, before: &Self) -> UsageInterval {
        let parts = self.parts.iter().map(|(role, now)| {
            let then = before.parts.get(role).copied().unwrap_or_default();
            (role.clone(), now.since(then))
        });
        UsageInterval {
            wall_s: (self.at - before.at).as_secs_f64(),
            parts: parts.collect(),
            machine: MachineCpuTime {
                busy_s: self.machine.busy_s - before.machine.busy_s,
                steal_s: self.machine.steal_s - before.machine.steal_s,
            },
        }
    }
}

/// What was used between two moments.
#[derive(Debug, Clone)]
pub struct UsageInterval {
    /// Seconds between them.
    pub wall_s: f64,
    /// CPU time by role.
    pub parts: BTreeMap<String, Seconds>,
    /// CPU time of the machine.
    pub machine: MachineCpuTime,
}

impl UsageInterval {
    /// CPU seconds by role for 10^9 bytes of payload.
    pub fn parts_s_per_gb(&self, gigabytes: f64) -> BTreeMap<String, Seconds> {
        let each = |it: &Seconds| Seconds {
            user_s: it.user_s / gigabytes,
            system_s: it.system_s / gigabytes,
        };
        self.parts.iter().map(|(role, it)| (role.clone(), each(it))).collect()
    }

    /// What others took of the machine, 0 to 1.
    pub fn others(&self) -> f64 {
        let ours_s: f64 = self.parts.values().map(|it| it.total()).sum();
        (self.machine.busy_s - ours_s).max(0.0) / self.capacity_s()
    }

    /// What the hypervisor took of it, 0 to 1.
    pub fn steal(&self) -> f64 {
        self.machine.steal_s / self.capacity_s()
    }

    fn capacity_s(&self) -> f64 {
        self.wall_s * cpu::cores()
    }
}
