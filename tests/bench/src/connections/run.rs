//! One run of the sweep.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use millrace_lab::interrupt::{self, Interrupted};

use super::metrics::MetricValues;
use super::options::ConnectionsOptions;
use super::peers::PeersFile;
use super::plan::{SweepLoad, SweepPoint, SweepWay};
use super::record::{ConnectionMemory, CounterReading, Extras, SweepRun};
use super::run_times::{self, CALLS_S, PACING_CAPTURE, PACING_WARMUP};
use super::segments;
use super::snapshot::{RunSnapshot, residents};
use super::system_calls;
use super::viewers::{ViewerSettings, Viewers};
use crate::arena::Arena;
use crate::cpu;
use crate::measure::{self, pause};
use crate::origin::{Origin, UNLIMITED_BYTES};
use crate::pacing;
use crate::settings::{BenchLimits, BenchSettings};
use crate::sink::{self, Bulk};
use crate::tunnel_config::{self, PROBE_TUNNEL, SERVER_ADMIN};
use crate::variant::{BenchVariant, Way};

/// Beside load many packets arrive as one message, and that is what the figure shows.
const LEAST_PACED_MESSAGES: usize = 20;
/// How long the programs get to settle before their memory is read.
const SETTLE: Duration = Duration::from_millis(300);
/// What all runs share.
#[derive(Debug)]
pub struct SweepContext<'a> {
    /// The command line.
    pub options: &'a ConnectionsOptions,
    /// The hosts.
    pub arena: &'a Arena,
    /// The load generator's sending side.
    pub origin: &'a Origin,
    /// Third-party programs.
    pub peers: &'a PeersFile,
}

impl SweepContext<'_> {
    /// Runs `point` once. A run that fails has its reason instead of figures.
    ///
    /// # Errors
    /// On Ctrl-C.
    pub fn run(&self, point: &SweepPoint, round: usize) -> Result<SweepRun> {
        measure::await_quiet(Duration::from_secs(self.options.runs.quiet_timeout_s))?;
        let started = Instant::now();
        let mut run = SweepRun {
            round,
            point: point.clone(),
            up: 0,
            ended: 0,
            failure: None,
            invalid: Vec::new(),
            refusals: BTreeMap::new(),
            figures: None,
            took_s: 0.0,
        };
        match self.fill(&mut run) {
            Err(error) if error.is::<Interrupted>() => return Err(error),
            Err(error) => run.failure = Some(format!("{error:#}")),
            Ok(()) => {}
        }
        run.took_s = started.elapsed().as_secs_f64();
        Ok(run)
    }

    fn fill(&self, run: &mut SweepRun) -> Result<()> {
        let point = run.point.clone();
        let mut way = self.start(&point)?;
        pause(SETTLE)?;
        let memory_before = residents(&way)?;
        let mut listeners = vec![way.listener];
        listeners.extend_from_slice(&way.further_listeners);
        let viewers = Viewers::start(
            &self.arena.client,
            ViewerSettings {
                count: point.connections,
                listeners,
                load: point.load,
                segment_bytes: segments::segment_bytes(self.options.runs.video_mbps),
                arrivals: self.options.runs.arrivals,
            },
        )?;
        // The sink itself gives up on flows that do not come up.
        let opened = interrupt::wait_for(Duration::from_secs(300), || {
            way.must_run()?;
            Ok(viewers.is_open()?.then_some(()))
        })?;
        ensure!(opened.is_some(), "connections were still coming up after 300 s");
        run.up = viewers.up();
        if run.up == 0 {
            run.refusals = self.scrape(&point)?.as_ref().map(refusals).unwrap_or_default();
            bail!("none of {} connections came up", point.connections);
        }
        pause(SETTLE)?;
        let memory_opened = residents(&way)?;
        viewers.begin();
        pause(Duration::from_secs(run_times::warmup_s(point.load, self.options.runs.warmup_s)))?;

        let metrics_before = self.scrape(&point)?;
        let before = RunSnapshot::take(&way, &viewers, self.arena)?;
        pause(Duration::from_secs(self.options.runs.seconds))?;
        let after = RunSnapshot::take(&way, &viewers, self.arena)?;
        let metrics_after = self.scrape(&point)?;

        way.must_run()?;
        run.ended = viewers.ended();
        let extras = self.extras(&way, &viewers)?;
        way.must_run()?;
        let segments = viewers.finish()?;

        let interval = after.since(&before)?;
        let mut figures = interval.figures(&point, extras);
        let memory_loaded = after.resident();
        for (role, before) in &memory_before {
            let of = |all: &BTreeMap<String, f64>| {
                (all.get(role).copied().unwrap_or(*before) - before) / run.up as f64
            };
            let memory = ConnectionMemory {
                opened_bytes: of(&memory_opened),
                loaded_bytes: of(memory_loaded),
            };
            figures.memory.insert(role.clone(), memory);
        }
        if let (Some(before), Some(after)) = (&metrics_before, &metrics_after) {
            interval.apply_metrics(&mut figures, before, after);
            run.refusals = refusals(after);
        }
        if point.load == SweepLoad::Video {
            figures.segments = segments::figures(&segments, before.at, after.at);
        }
        run.invalid = interval.reasons(&figures, &point);
        run.figures = Some(figures);
        Ok(())
    }

    fn start(&self, point: &SweepPoint) -> Result<Way> {
        let options = &self.options.runs;
        let settings = BenchSettings {
            programs: options.programs.clone(),
            cc: options.cc.clone(),
            connections: match point.way {
                SweepWay::PerFlow => "per_flow",
                _ => "shared",
            }
            .to_owned(),
            workers: options.workers,
            limits: BenchLimits::Shipped,
            further_edges: match point.way {
                SweepWay::Edges => u16::try_from(point.connections - 1)?,
                _ => 0,
            },
            probe_mbps: (options.pacing_mbps > 0.0).then_some(options.pacing_mbps),
            ..BenchSettings::default()
        };
        let variant = match &point.way {
            SweepWay::Direct => BenchVariant::Direct,
            SweepWay::NginxStream => BenchVariant::NginxStream,
            SweepWay::Shared | SweepWay::PerFlow | SweepWay::Edges => BenchVariant::Millrace,
            SweepWay::Peer(name) => return self.peers.start(name, self.arena, self.origin),
        };
        Way::start(variant, self.arena, self.origin, &settings)
    }

    /// Metrics of the two ends, or of none where they are not ours.
    fn scrape(&self, point: &SweepPoint) -> Result<Option<[MetricValues; 2]>> {
        if !point.way.is_millrace() {
            return Ok(None);
        }
        let edges = if point.way == SweepWay::Edges { point.connections } else { 1 };
        let clients: Vec<SocketAddrV4> =
            (0..u16::try_from(edges)?).map(tunnel_config::client_admin).collect();
        let server = MetricValues::scrape(&self.arena.server, &[SERVER_ADMIN])?;
        let client = MetricValues::scrape(&self.arena.client, &clients)?;
        Ok(Some([server, client]))
    }

    /// What would disturb the interval: counting system calls, and a paced flow that is captured.
    fn extras(&self, way: &Way, viewers: &Viewers) -> Result<Extras> {
        let leaders: Vec<u32> = way.parts.iter().map(|part| part.process.pid()).collect();
        let mut pids: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for (part, group) in way.parts.iter().zip(cpu::groups(&leaders)?) {
            if part.role != "probe" {
                pids.entry(part.role.to_owned()).or_default().extend(group.pids);
            }
        }
        let (started, before) = (Instant::now(), viewers.received());
        let mut calls = system_calls::per_second(&pids, CALLS_S, self.arena.run.scratch())?;
        let bytes = viewers.received().iter().sum::<u64>() - before.iter().sum::<u64>();
        let gigabytes_per_s = bytes as f64 * 1e-9 / started.elapsed().as_secs_f64();
        for reading in calls.values_mut() {
            if gigabytes_per_s > 0.0 {
                reading.value = reading.value.map(|per_s| per_s / gigabytes_per_s);
            } else {
                *reading = CounterReading::missing("no byte arrived while calls were counted");
            }
        }
        let (pacing_p99_us, pacing_rate_error) = self.pacing(way)?;
        Ok(Extras { calls_per_gb: calls, pacing_p99_us, pacing_rate_error })
    }

    fn pacing(&self, way: &Way) -> Result<(CounterReading, CounterReading)> {
        let missing = |reason: &str| {
            let reading = CounterReading::missing(reason);
            (reading.clone(), reading)
        };
        if self.options.runs.pacing_mbps <= 0.0 {
            return Ok(missing("--pacing-mbps 0"));
        }
        if !way.parts.iter().any(|part| part.role == "probe") {
            return Ok(missing("only Millrace's rate can be set"));
        }
        match self.paced(self.options.runs.pacing_mbps) {
            Err(error) if error.is::<Interrupted>() => Err(error),
            Err(error) => Ok(missing(&format!("{error:#}"))),
            Ok(pacing) => {
                let source = "kernel timestamps of a paced flow beside the load";
                Ok((
                    CounterReading::new(pacing.gap_error_us.p99, source),
                    CounterReading::new(pacing.rate_error, source),
                ))
            }
        }
    }

    fn paced(&self, rate_mbps: f64) -> Result<pacing::Pacing> {
        let host = &self.arena.client;
        let listener = tunnel_config::probe_listener().into();
        let flow = Bulk::start(vec![sink::open(host, listener, UNLIMITED_BYTES)?])?;
        pause(PACING_WARMUP)?;
        let pacing =
            pacing::capture(host, PROBE_TUNNEL, rate_mbps, PACING_CAPTURE, LEAST_PACED_MESSAGES)?;
        flow.finish()?;
        Ok(pacing)
    }
}

/// What server and client refused or reset.
fn refusals([server, client]: &[MetricValues; 2]) -> BTreeMap<String, u64> {
    let of = |side: &'static str, values: &MetricValues| {
        values.refusals().into_iter().map(move |(what, count)| (format!("{side}: {what}"), count))
    };
    of("server", server).chain(of("client", client)).collect()
}
