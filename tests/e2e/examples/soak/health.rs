//! What the programs hold, by /proc and by their own word: while flows run, and after the last.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use millrace_e2e::admin::Metrics;
use millrace_e2e::program::Program;
use serde_json::{Value, json};

use crate::site::{CLIENT, SERVERS, Site};
use crate::tally::Tally;

/// Between two looks.
const EVERY: Duration = Duration::from_secs(2);
/// Descriptors beyond those of the idle program and its flows: sockets of attempts to connect,
/// connections that are taken but not counted yet, the admin listener's.
const MORE_DESCRIPTORS: f64 = 40.0;
/// A bypassed flow has a socket at each end.
const DESCRIPTORS_PER_FLOW: f64 = 2.0;
/// Looks in a row at too many descriptors; numbers are not taken at one moment.
const LOOKS_WRONG: u32 = 5;
/// Resident memory (Pss) of a tenth beyond the baseline: a share, for windows that have grown with
/// the paths, and a fixed part, for the allocator.
const MORE_MEMORY: f64 = 1.25;
const MORE_MEMORY_BYTES: f64 = 8e6;
/// Names are looked up by threads that are started when they are needed.
const MORE_THREADS: usize = 16;

/// A program at one moment.
#[derive(Clone, Copy, Debug)]
struct Look {
    at: Instant,
    pid: i32,
    pss_bytes: f64,
    rss_bytes: f64,
    descriptors: usize,
    threads: usize,
}

impl Look {
    fn at(program: &Program) -> Option<Self> {
        let proc = format!("/proc/{}", program.pid());
        let memory = fs::read_to_string(format!("{proc}/smaps_rollup")).ok()?;
        let kib = |name: &str| {
            let line = memory.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().trim_end_matches(" kB").parse::<f64>().ok()
        };
        Some(Self {
            at: Instant::now(),
            pid: program.pid().as_raw(),
            pss_bytes: kib("Pss:")? * 1024.0,
            rss_bytes: kib("Rss:")? * 1024.0,
            descriptors: fs::read_dir(format!("{proc}/fd")).ok()?.count(),
            threads: fs::read_dir(format!("{proc}/task")).ok()?.count(),
        })
    }
}

/// One process from its start on.
#[derive(Debug, Default)]
struct Life {
    looks: Vec<Look>,
    wrong_in_a_row: u32,
    told: bool,
}

/// Health of the programs over the soak.
pub struct Health {
    idle: BTreeMap<&'static str, usize>,
    lives: BTreeMap<&'static str, Life>,
    largest: BTreeMap<&'static str, f64>,
    next: Instant,
    tenths: Vec<Value>,
}

/// Name, program and its word on itself.
type Read<'a> = (&'static str, &'a Program, Option<Metrics>);

fn programs(site: &Site) -> Vec<Read<'_>> {
    let mut programs = Vec::new();
    if let Some(client) = &site.client {
        programs.push((CLIENT, client, site.client_metrics()));
    }
    for (number, name) in SERVERS.into_iter().enumerate() {
        if let Some(server) = &site.servers[number] {
            programs.push((name, server, site.server_metrics(number)));
        }
    }
    programs
}

impl Health {
    /// Before the first flow.
    pub fn start(site: &Site) -> Self {
        let idle = programs(site)
            .into_iter()
            .map(|(name, program, _)| (name, program.descriptors()))
            .collect();
        Self {
            idle,
            lives: BTreeMap::new(),
            largest: BTreeMap::new(),
            next: Instant::now(),
            tenths: Vec::new(),
        }
    }

    /// Looks, if it is time. Not while something is wrong on purpose: stopped programs don't answer.
    pub fn look(&mut self, site: &Site, tally: &Tally) {
        if Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + EVERY;
        for (name, program, metrics) in programs(site) {
            let Some(look) = Look::at(program) else { continue };
            let life = self.lives.entry(name).or_default();
            if life.looks.first().is_some_and(|first| first.pid != look.pid) {
                *life = Life::default();
            }
            life.looks.push(look);
            if life.looks.len() > LOOKS_KEPT {
                thin(&mut life.looks);
            }
            let largest = self.largest.entry(name).or_default();
            *largest = largest.max(look.pss_bytes);
            let Some(flows) = metrics.map(|it| it.sum("millrace_flows_active", &[])) else {
                tally.wrong(format!("{name}: /metrics does not answer"));
                continue;
            };
            let most = self.idle[name] as f64 + DESCRIPTORS_PER_FLOW * flows + MORE_DESCRIPTORS;
            life.wrong_in_a_row =
                if look.descriptors as f64 > most { life.wrong_in_a_row + 1 } else { 0 };
            if life.wrong_in_a_row == LOOKS_WRONG {
                tally.wrong(format!(
                    "{name}: {} descriptors with {flows} flows, {} when idle",
                    look.descriptors, self.idle[name]
                ));
            }
        }
    }

    /// Once a tenth of the time: compares with the baseline, tells and keeps the figures.
    pub fn tenth(&mut self, tenth: u64, tally: &Tally) {
        for (name, life) in &mut self.lives {
            let Some(figures) = life.figures() else { continue };
            println!("     {name}: {figures}");
            self.tenths.push(json!({"tenth": tenth, "program": name, "figures": figures.json()}));
            let wrong = figures.problems();
            if !wrong.is_empty() && !life.told {
                life.told = true;
                tally.wrong(format!("{name}: {}", wrong.join("; ")));
            }
        }
    }

    /// Descriptors, once there are no flows any more.
    pub fn idle_problems(&self, site: &Site) -> Vec<String> {
        let mut problems = Vec::new();
        for (name, program, metrics) in programs(site) {
            let Some(metrics) = metrics else {
                problems.push(format!("{name}: /metrics does not answer"));
                continue;
            };
            let flows = metrics.sum("millrace_flows_active", &[]);
            if flows != 0.0 {
                problems.push(format!("{name}: millrace_flows_active is {flows}"));
            }
            let (now, before) = (program.descriptors(), self.idle[name]);
            // The client's attempts to connect, the admin listener's last connection.
            if now > before + 8 {
                problems.push(format!("{name}: {now} descriptors, {before} at the start"));
            }
        }
        problems
    }

    /// For programs.
    pub fn json(&self) -> Value {
        json!({
            "largest_pss_bytes": self.largest,
            "idle_descriptors": self.idle,
            "tenths": self.tenths,
        })
    }

    /// In words.
    pub fn largest(&self) -> String {
        let each: Vec<_> = self
            .largest
            .iter()
            .map(|(name, bytes)| format!("{name} {:.1} MB", bytes / 1e6))
            .collect();
        each.join(", ")
    }
}

/// More than a life of the soak in CI has; then every second one goes.
const LOOKS_KEPT: usize = 4000;

fn thin(looks: &mut Vec<Look>) {
    let mut odd = false;
    looks.retain(|_| {
        odd = !odd;
        odd
    });
}

/// The baseline and the latest.
struct Figures {
    age: Duration,
    base: [f64; 4],
    now: [f64; 4],
}

impl Life {
    /// The first tenth of a life is its warm-up, but 30 s at least; the baseline is the median of as
    /// long a time after it; the latest is the median of the last tenth. `None` before both are
    /// apart.
    fn figures(&self) -> Option<Figures> {
        let (first, last) = (self.looks.first()?, self.looks.last()?);
        let age = last.at - first.at;
        let part = (age / 10).max(Duration::from_secs(30));
        if age < 3 * part {
            return None;
        }
        let between = |from: Duration, to: Duration| {
            let within = move |look: &&Look| (from..=to).contains(&(look.at - first.at));
            let column = |of: fn(&Look) -> f64| {
                let mut values: Vec<f64> = self.looks.iter().filter(within).map(of).collect();
                values.sort_by(f64::total_cmp);
                values.get(values.len() / 2).copied()
            };
            Some([
                column(|look| look.pss_bytes)?,
                column(|look| look.rss_bytes)?,
                column(|look| look.descriptors as f64)?,
                column(|look| look.threads as f64)?,
            ])
        };
        Some(Figures { age, base: between(part, 2 * part)?, now: between(age - part, age)? })
    }
}

impl Figures {
    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let most = (self.base[0] * MORE_MEMORY).max(self.base[0] + MORE_MEMORY_BYTES);
        if self.now[0] > most {
            let (base, now) = (self.base[0] / 1e6, self.now[0] / 1e6);
            problems.push(format!("Pss grew from {base:.1} to {now:.1} MB"));
        }
        if self.now[3] > self.base[3] + MORE_THREADS as f64 {
            problems.push(format!("threads grew from {} to {}", self.base[3], self.now[3]));
        }
        problems
    }

    fn json(&self) -> Value {
        let of = |[pss_bytes, rss_bytes, descriptors, threads]: [f64; 4]| {
            json!({
                "pss_bytes": pss_bytes,
                "rss_bytes": rss_bytes,
                "descriptors": descriptors,
                "threads": threads,
            })
        };
        json!({"age_s": self.age.as_secs(), "baseline": of(self.base), "now": of(self.now)})
    }
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Pss {:.1} MB (baseline {:.1}), RSS {:.1} ({:.1}), {} descriptors ({}), {} threads \
             ({}), {} s old",
            self.now[0] / 1e6,
            self.base[0] / 1e6,
            self.now[1] / 1e6,
            self.base[1] / 1e6,
            self.now[2],
            self.base[2],
            self.now[3],
            self.base[3],
            self.age.as_secs()
        )
    }
}
