//! CPU time, memory, bytes and counters at one moment, and what passed between two of them.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Result, ensure};

use super::metrics::{KernelCounts, MetricValues};
use super::plan::{SweepLoad, SweepPoint, SweepWay};
use super::record::{CounterReading, Extras, SweepFigures};
use super::viewers::Viewers;
use crate::arena::Arena;
use crate::cpu::{self, Seconds};
use crate::measure::{QUIET_CPU_SHARE, cores, jain};
use crate::variant::Way;

/// A thread of the load that was busy for so much of the interval limits the rate.
const BUSY_THREAD: f64 = 0.95;
/// Requests that are later than this show that the load generator had too little CPU time.
const MAX_REQUEST_DELAY_MS: f64 = 50.0;

/// Metric of packets that carry nothing but acknowledgements; programs may lack it.
const ACK_ONLY: &str = "millrace_ack_only_packets_sent_total";
const SENT: &str = "millrace_packets_sent_total";

/// One moment.
#[derive(Debug)]
pub struct RunSnapshot {
    /// When.
    pub at: Instant,
    received: Vec<u64>,
    parts: BTreeMap<String, Seconds>,
    resident: BTreeMap<String, f64>,
    load_threads: Vec<(String, f64)>,
    kernel: KernelCounts,
    machine: cpu::MachineCpuTime,
}

/// Resident bytes by role; those of several programs with one role are added up.
///
/// # Errors
/// When one has ended.
pub fn residents(way: &Way) -> Result<BTreeMap<String, f64>> {
    Ok(by_role(way)?.1)
}

type RoleUse = (BTreeMap<String, Seconds>, BTreeMap<String, f64>);

fn by_role(way: &Way) -> Result<RoleUse> {
    let leaders: Vec<u32> = way.parts.iter().map(|part| part.process.pid()).collect();
    let (mut seconds, mut resident) = RoleUse::default();
    for (part, group) in way.parts.iter().zip(cpu::groups(&leaders)?) {
        seconds.entry(part.role.to_owned()).or_default().add(group.seconds);
        // The program of the paced flow carries none of the connections.
        if part.role != "probe" {
            *resident.entry(part.role.to_owned()).or_default() += group.resident_bytes;
        }
    }
    Ok((seconds, resident))
}

impl RunSnapshot {
    /// Reads everything, bytes and CPU time last.
    ///
    /// # Errors
    /// When a program has ended.
    pub fn take(way: &Way, viewers: &Viewers, arena: &Arena) -> Result<Self> {
        let kernel = KernelCounts::read(&arena.client)?.with(KernelCounts::read(&arena.server)?);
        let own = cpu::threads(std::process::id());
        let is_load = |name: &str| name == "sink" || name == "origin";
        let load_threads = own.into_iter().filter(|(name, _)| is_load(name));
        let load_threads = load_threads.map(|(name, it)| (name, it.total())).collect();
        let (mut parts, resident) = by_role(way)?;
        parts.insert("load".to_owned(), cpu::own()?);
        parts.insert("softirq_threads".to_owned(), cpu::softirq_threads());
        let machine = cpu::machine()?;
        let received = viewers.received();
        Ok(Self { at: Instant::now(), received, parts, resident, load_threads, kernel, machine })
    }

    /// Resident bytes by role.
    pub fn resident(&self) -> &BTreeMap<String, f64> {
        &self.resident
    }

    /// What passed since `before`.
    ///
    /// # Errors
    /// When no byte arrived.
    pub fn since(&self, before: &Self) -> Result<RunInterval> {
        let shares: Vec<u64> =
            self.received.iter().zip(&before.received).map(|(now, then)| now - then).collect();
        let wall_s = (self.at - before.at).as_secs_f64();
        ensure!(shares.iter().sum::<u64>() > 0, "not one byte arrived in {wall_s:.1} s");
        let parts = self.parts.iter().map(|(role, now)| {
            let then = before.parts.get(role).copied().unwrap_or_default();
            (role.clone(), now.since(then))
        });
        let threads = self.load_threads.iter().zip(&before.load_threads);
        let busiest = threads.map(|((_, now), (_, then))| now - then).fold(0.0, f64::max);
        Ok(RunInterval {
            wall_s,
            shares,
            parts: parts.collect(),
            busiest_load_thread: busiest / wall_s,
            kernel: self.kernel.since(before.kernel),
            busy_s: self.machine.busy_s - before.machine.busy_s,
            steal_s: self.machine.steal_s - before.machine.steal_s,
        })
    }
}

/// What passed between two moments.
#[derive(Debug, Clone)]
pub struct RunInterval {
    wall_s: f64,
    shares: Vec<u64>,
    parts: BTreeMap<String, Seconds>,
    /// Part of one core.
    busiest_load_thread: f64,
    kernel: KernelCounts,
    busy_s: f64,
    steal_s: f64,
}

impl RunInterval {
    fn gigabytes(&self) -> f64 {
        self.shares.iter().sum::<u64>() as f64 * 1e-9
    }

    /// The figures that need no metrics of the programs.
    pub fn figures(&self, point: &SweepPoint, extras: Extras) -> SweepFigures {
        let gigabytes = self.gigabytes();
        let ours_s: f64 = self.parts.values().map(|it| it.total()).sum();
        // What the idle program of the paced flow took is ours, but no cost of the connections.
        let counted = self.parts.iter().filter(|(role, _)| *role != "probe");
        let parts_s_per_gb: BTreeMap<String, Seconds> = counted
            .map(|(role, it)| {
                let each =
                    Seconds { user_s: it.user_s / gigabytes, system_s: it.system_s / gigabytes };
                (role.clone(), each)
            })
            .collect();
        let capacity_s = self.wall_s * cores();
        let kernel = self.kernel;
        let packets_per_gb = match point.way {
            SweepWay::Direct | SweepWay::NginxStream => CounterReading::new(
                kernel.tcp_segments / gigabytes,
                "TCP segments that both hosts sent (/proc/net/snmp)",
            ),
            SweepWay::Peer(_) if kernel.udp_messages > 1000.0 * gigabytes => CounterReading::new(
                kernel.udp_messages / gigabytes,
                "UDP messages (/proc/net/snmp); with segmentation offload one has several packets",
            ),
            _ => CounterReading::missing("not counted"),
        };
        SweepFigures {
            wall_s: self.wall_s,
            bytes: self.shares.iter().sum(),
            gbps: gigabytes * 8.0 / self.wall_s,
            fairness: jain(&self.shares),
            stalled: self.shares.iter().filter(|bytes| **bytes == 0).count(),
            cpu_s_per_gb: parts_s_per_gb.values().map(|it| it.total()).sum(),
            parts_s_per_gb,
            packets_per_gb,
            packets_per_message: CounterReading::missing("the programs do not count packets"),
            acks_per_data_packet: CounterReading::missing("the programs do not count packets"),
            memory: BTreeMap::new(),
            segments: None,
            others: (self.busy_s - ours_s).max(0.0) / capacity_s,
            steal: self.steal_s / capacity_s,
            extras,
        }
    }

    /// Adds what the metrics of server and client give. They are read just before and just after the interval.
    pub fn apply_metrics(
        &self,
        figures: &mut SweepFigures,
        [server_before, client_before]: &[MetricValues; 2],
        [server_after, client_after]: &[MetricValues; 2],
    ) {
        let server = server_after.growth(server_before, SENT);
        let client = client_after.growth(client_before, SENT);
        let (Some(server), Some(client)) = (server, client) else { return };
        let packets = server + client;
        figures.packets_per_gb = CounterReading::new(packets / self.gigabytes(), SENT);
        if self.kernel.udp_messages > 0.0 {
            let source = format!("{SENT} over OutDatagrams (/proc/net/snmp)");
            figures.packets_per_message =
                CounterReading::new(packets / self.kernel.udp_messages, source);
        }
        if server > 0.0 {
            figures.acks_per_data_packet = match client_after.growth(client_before, ACK_ONLY) {
                Some(acks) => CounterReading::new(acks / server, ACK_ONLY),
                None => CounterReading::new(
                    client / server,
                    "upper bound: all packets of the client, since the programs do not count those with \
                     acknowledgements only",
                ),
            };
        }
    }

    /// Why the figures are not those of an undisturbed machine.
    pub fn reasons(&self, figures: &SweepFigures, point: &SweepPoint) -> Vec<String> {
        let mut reasons = Vec::new();
        let percent = |part: f64| (part * 100.0).round();
        if figures.others >= QUIET_CPU_SHARE {
            reasons.push(format!("others used {} % of the machine", percent(figures.others)));
        }
        if figures.steal >= QUIET_CPU_SHARE {
            let stolen = percent(figures.steal);
            reasons.push(format!("the hypervisor took {stolen} % of the machine"));
        }
        // Plain TCP has nothing else than the load.
        if point.way != SweepWay::Direct && self.busiest_load_thread >= BUSY_THREAD {
            reasons.push(format!(
                "a thread of the load generator was busy for {} % of the time: it limits the rate",
                percent(self.busiest_load_thread)
            ));
        }
        let delay_ms = figures.segments.map_or(0.0, |it| it.request_delay_p99_ms);
        if point.load == SweepLoad::Video && delay_ms > MAX_REQUEST_DELAY_MS {
            reasons.push(format!(
                "the load generator had too little CPU time: requests {delay_ms:.0} ms late (p99)"
            ));
        }
        reasons
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::record::SegmentFigures;

    fn interval() -> RunInterval {
        let seconds = |user_s, system_s| Seconds { user_s, system_s };
        RunInterval {
            wall_s: 2.0,
            shares: vec![1_000_000_000, 1_000_000_000],
            parts: BTreeMap::from([
                ("server".to_owned(), seconds(1.0, 0.5)),
                ("load".to_owned(), seconds(0.25, 0.25)),
                ("probe".to_owned(), seconds(0.5, 0.0)),
            ]),
            busiest_load_thread: 0.1,
            kernel: KernelCounts { tcp_segments: 0.0, udp_messages: 50_000.0 },
            busy_s: 2.5,
            steal_s: 0.0,
        }
    }

    fn extras() -> Extras {
        let missing = || CounterReading::missing("not in this test");
        Extras {
            calls_per_gb: BTreeMap::new(),
            pacing_p99_us: missing(),
            pacing_rate_error: missing(),
        }
    }

    fn point(load: SweepLoad, way: SweepWay) -> SweepPoint {
        SweepPoint { load, connections: 2, way }
    }

    fn metrics(text: &str) -> MetricValues {
        let mut values = MetricValues::default();
        values.add(text);
        values
    }

    #[test]
    fn cost_is_of_the_bytes_of_the_same_interval_and_without_the_paced_flow() {
        let figures = interval().figures(&point(SweepLoad::Bulk, SweepWay::PerFlow), extras());
        assert!((figures.gbps - 8.0).abs() < 1e-9, "{figures:?}");
        assert!((figures.cpu_s_per_gb - 1.0).abs() < 1e-9, "{figures:?}");
        assert_eq!(figures.parts_s_per_gb["server"], Seconds { user_s: 0.5, system_s: 0.25 });
        assert!(!figures.parts_s_per_gb.contains_key("probe"));
        assert!(figures.others.abs() < 1e-9, "{figures:?}");
    }

    #[test]
    fn acknowledgements_are_counted_where_the_programs_do_and_bounded_otherwise() {
        let mut figures = interval().figures(&point(SweepLoad::Bulk, SweepWay::PerFlow), extras());
        let before = [metrics(&format!("{SENT} 0\n")), metrics(&format!("{SENT} 0\n"))];
        let after = [metrics(&format!("{SENT} 1000\n")), metrics(&format!("{SENT} 600\n"))];
        interval().apply_metrics(&mut figures, &before, &after);
        assert_eq!(figures.acks_per_data_packet.value, Some(0.6));
        assert!(figures.acks_per_data_packet.source.starts_with("upper bound"));
        assert_eq!(figures.packets_per_gb.value, Some(800.0));
        let before = [before[0].clone(), metrics(&format!("{SENT} 0\n{ACK_ONLY} 0\n"))];
        let after = [after[0].clone(), metrics(&format!("{SENT} 600\n{ACK_ONLY} 100\n"))];
        interval().apply_metrics(&mut figures, &before, &after);
        assert_eq!(figures.acks_per_data_packet, CounterReading::new(0.1, ACK_ONLY));
    }

    #[test]
    fn disturbed_runs_and_a_starved_load_generator_have_their_reasons() {
        let video = point(SweepLoad::Video, SweepWay::PerFlow);
        let mut figures = interval().figures(&video, extras());
        assert_eq!(interval().reasons(&figures, &video), Vec::<String>::new());
        figures.others = 0.2;
        figures.segments = Some(SegmentFigures {
            segments: 10,
            late: 0,
            p99_ms: 10.0,
            request_delay_p99_ms: 80.0,
        });
        let busy = RunInterval { busiest_load_thread: 0.97, ..interval() };
        let reasons = busy.reasons(&figures, &video);
        assert_eq!(reasons.len(), 3, "{reasons:?}");
        assert_eq!(reasons[0], "others used 20 % of the machine");
        let direct = point(SweepLoad::Bulk, SweepWay::Direct);
        figures.others = 0.0;
        assert_eq!(busy.reasons(&figures, &direct), Vec::<String>::new());
    }
}
