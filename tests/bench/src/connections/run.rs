//! One run of the sweep.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use millrace_lab::interrupt::{self, Interrupted};

use super::counters::CounterSnapshot;
use super::extras;
use super::memory;
use super::options::ConnectionsOptions;
use super::peers::SweepPeers;
use super::plan::{SweepLoad, SweepPoint, SweepWay};
use super::record::SweepRun;
use super::run_times;
use super::segments;
use super::snapshot::RunSnapshot;
use super::viewer_settings::ViewerSettings;
use super::viewers::Viewers;
use crate::arena::Arena;
use crate::measure::{self, pause};
use crate::origin::Origin;
use crate::settings::{BenchLimits, BenchSettings};
use crate::variant::{BenchVariant, Way};

/// How long the programs get to settle before their memory is read.
const SETTLE: Duration = Duration::from_millis(300);
/// The sink itself gives up on flows that do not come up, within a shorter time.
const OPENING_TIMEOUT: Duration = Duration::from_secs(300);

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
    pub peers: &'a SweepPeers,
}

/// What is read at both ends of the interval. Counters are read just outside of it: asking many programs takes time of
/// the processors.
struct IntervalReadings {
    counters: [CounterSnapshot; 2],
    snapshots: [RunSnapshot; 2],
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
        let memory_before = memory::resident_bytes(&way)?;
        let viewers = self.open(&point, &mut way)?;
        run.up = viewers.up();
        if run.up == 0 {
            run.refusals = CounterSnapshot::take(&point, self.arena, &viewers)?.refusals();
            bail!("none of {} connections came up", point.connections);
        }
        pause(SETTLE)?;
        let memory_opened = memory::resident_bytes(&way)?;
        viewers.begin();
        let warmup_s = run_times::warmup_s(point.load, self.options.runs.warmup_s);
        pause(Duration::from_secs(warmup_s))?;
        let readings = self.read_interval(&point, &mut way, &viewers)?;
        let [before, after] = &readings.snapshots;
        let [counters_before, counters_after] = &readings.counters;
        run.ended = viewers.ended();
        run.refusals = counters_after.refusals();
        let interval = after.since(before)?;
        let extras = extras::measure(self.arena, self.options.runs.pacing_mbps, &way, &viewers)?;
        way.must_run()?;
        let segments = viewers.finish()?;

        let segments = match point.load {
            SweepLoad::Bulk => None,
            SweepLoad::Video => segments::figures(&segments, before.at(), after.at()),
        };
        let memory = memory::by_connection(
            &memory_before,
            [&memory_opened, &after.usage.resident_bytes],
            run.up,
        );
        let packets = counters_after.since(counters_before, &point.way);
        let figures = interval.figures(memory, packets, segments, extras);
        run.invalid = interval.invalid_reasons(&figures, &point);
        run.figures = Some(figures);
        Ok(())
    }

    fn start(&self, point: &SweepPoint) -> Result<Way> {
        let variant = match &point.way {
            SweepWay::Direct => BenchVariant::Direct,
            SweepWay::NginxStream => BenchVariant::NginxStream,
            SweepWay::Shared | SweepWay::PerFlow | SweepWay::Edges => BenchVariant::Millrace,
            SweepWay::Peer(name) => return self.peers.start(name, self.arena, self.origin),
        };
        Way::start(variant, self.arena, self.origin, &self.settings(point)?)
    }

    fn settings(&self, point: &SweepPoint) -> Result<BenchSettings> {
        let options = &self.options.runs;
        let connections = if point.way == SweepWay::PerFlow { "per_flow" } else { "shared" };
        let edges = if point.way == SweepWay::Edges { point.connections } else { 1 };
        Ok(BenchSettings {
            programs: options.programs.clone(),
            cc: options.cc.clone(),
            connections: connections.to_owned(),
            workers: options.workers,
            limits: BenchLimits::Shipped,
            further_edges: u16::try_from(edges - 1)?,
            probe_mbps: (options.pacing_mbps > 0.0).then_some(options.pacing_mbps),
            ..BenchSettings::default()
        })
    }

    /// Opens the flows, and waits until each has come up or failed.
    fn open(&self, point: &SweepPoint, way: &mut Way) -> Result<Viewers> {
        let further = way.further_listeners.iter().copied();
        let settings = ViewerSettings {
            count: point.connections,
            listeners: std::iter::once(way.listener).chain(further).collect(),
            load: point.load,
            segment_bytes: segments::segment_bytes(self.options.runs.video_mbps),
            arrivals: self.options.runs.arrivals,
        };
        let mut viewers = Viewers::start(&self.arena.client, settings)?;
        let opened = interrupt::wait_for(OPENING_TIMEOUT, || {
            way.must_run()?;
            Ok(viewers.is_open()?.then_some(()))
        })?;
        let limit_s = OPENING_TIMEOUT.as_secs();
        ensure!(opened.is_some(), "connections were still coming up after {limit_s} s");
        Ok(viewers)
    }

    fn read_interval(
        &self,
        point: &SweepPoint,
        way: &mut Way,
        viewers: &Viewers,
    ) -> Result<IntervalReadings> {
        let counters_before = CounterSnapshot::take(point, self.arena, viewers)?;
        let before = RunSnapshot::take(way, viewers)?;
        pause(Duration::from_secs(self.options.runs.seconds))?;
        let after = RunSnapshot::take(way, viewers)?;
        let counters_after = CounterSnapshot::take(point, self.arena, viewers)?;
        way.must_run()?;
        Ok(IntervalReadings {
            counters: [counters_before, counters_after],
            snapshots: [before, after],
        })
    }
}
