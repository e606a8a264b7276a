//! The training set of the Rules Learner (`learner/`): episodes of every algorithm on many simulated paths, in the
//! format of the telemetry.

mod path;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use millrace_cc::registry::{self, Algorithm, Spec};
use millrace_cc::{ControllerConfig, PathModel, Time};
use millrace_config::INITIAL_CONGESTION_WINDOW_PACKETS;
use millrace_mcc::rules::{Choice, LuaRules, SelectionRules};
use millrace_mcc::{
    Class, Config, ConnectionRecord, Episode, PathUpdate, RuleInput, RulesText, Selector,
    SelectorSettings, SwitchRequest, telemetry,
};
use millrace_sim::{DataSource, FlowSetup, NoObserver, Setup, Supervisor, run_supervised};

pub use path::{DatasetPath, RecordedLinks, TraceSplit};

use crate::interrupt;
use crate::output;
use crate::progress::RunProgress;
use crate::runner::NotDone;
use crate::traces::Traces;

/// Duration of a run, without [`EXTRA_ROUND_TRIPS`].
const DURATION: Duration = Duration::from_secs(40);
/// Round trips by which each run lasts longer.
const EXTRA_ROUND_TRIPS: u32 = 40;
/// Duration of a video segment.
const SEGMENT_DURATION: Duration = Duration::from_secs(2);
/// Bitrate of a video as a share of the path's rate.
const SEGMENT_RATE_SHARE: f64 = 0.5;
/// Interval between two batches of the Selector.
const EVALUATION_INTERVAL: Duration = Duration::from_millis(50);

/// Options of `millrace-lab dataset`.
#[derive(Debug, Args)]
pub struct DatasetOptions {
    /// Output file (Parquet)
    #[arg(long)]
    out: PathBuf,
    /// Number of paths
    #[arg(long, default_value_t = 1000)]
    paths: u64,
    /// Seed of the paths: the same seed draws the same paths
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of the first path; different numbers give different paths of the same seed
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Runs per path and algorithm, each with different random losses
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    repeat: u64,
    /// Algorithms to run on each path, by name
    #[arg(long, value_delimiter = ',', default_value = DEFAULT_ALGORITHMS)]
    algorithms: Vec<String>,
    /// Let these rules select the algorithm, instead of running each algorithm
    #[arg(long)]
    rules: Option<PathBuf>,
    /// Recorded links to use; a third, drawn by --split-seed, is held out from training
    #[arg(long, value_enum, default_value = "all")]
    recorded: TraceSplit,
    /// Share of the paths that use a recorded link
    #[arg(long, default_value_t = path::RECORDED_SHARE, value_parser = recorded_share)]
    recorded_share: f64,
    /// Seed of the split of the recorded links
    #[arg(long, default_value_t = 1)]
    split_seed: u64,
    /// Directory of recorded links [default: $MILLRACE_TRACES, else ../shared/traces]
    #[arg(long)]
    traces: Option<PathBuf>,
    /// Number of parallel runs [default: one per processor]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
}

/// One algorithm of each kind, and the best algorithm of each scenario.
const DEFAULT_ALGORITHMS: &str =
    "cubic,bbr,bbr3,westwood,illinois,copa,vegas,vivace-latency,vivace-loss,proteus-p,iris-min";

fn recorded_share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "not a share; allowed: 0 to 1".to_owned())
}

/// Draws the paths, runs the algorithms on them, and writes the episodes.
///
/// # Errors
/// An unknown algorithm, a failed run, or an output file that can't be written.
pub fn run(options: &DatasetOptions) -> Result<()> {
    let strategy = match &options.rules {
        None => {
            let controllers = options.algorithms.iter().map(|it| controller(it));
            Strategy::EachAlgorithm(controllers.collect::<Result<_>>()?)
        }
        Some(file) => Strategy::Rules(Box::new(RulesStrategy::new(file)?)),
    };
    let traces = Traces::find(options.traces.as_deref());
    let directory = traces.directory();
    let recorded = path::recorded(directory).with_context(|| directory.display().to_string())?;
    let names = path::split(recorded, options.recorded, options.split_seed);
    let recorded = RecordedLinks { names, share: options.recorded_share };
    match recorded.names.as_slice() {
        [] => output::error_line(format_args!(
            "no recorded links below {}: no path uses one",
            directory.display()
        )),
        names => output::line(format_args!("recorded links: {}", names.join(", ")))?,
    }

    let jobs = options
        .jobs
        .map_or_else(|| thread::available_parallelism().map_or(1, usize::from), usize::from);
    let end = options.from + options.paths;
    let next = AtomicU64::new(options.from);
    let done: Mutex<Vec<(u64, Vec<Episode>)>> = Mutex::default();
    let failed: Mutex<Option<anyhow::Error>> = Mutex::default();
    let weights = (0..usize::try_from(options.paths)?).map(|_| 1);
    let progress = RunProgress::new("paths", weights)?;
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= end {
                return;
            }
            let at = usize::try_from(number).unwrap_or(usize::MAX);
            progress.begin(at, format!("path {number}"));
            let path = path::draw(options.seed, number, &recorded);
            let checked = interrupt::check().map_err(anyhow::Error::from);
            match checked.and_then(|()| run_path(path, &strategy, options.repeat, &traces)) {
                Ok(episodes) => lock(&done).push((number, episodes)),
                Err(error) => {
                    next.store(end, Ordering::Relaxed);
                    *lock(&failed) = Some(error);
                    return;
                }
            }
            progress.end(at, 1);
            progress.write_when_due();
        }
    };
    thread::scope(|scope| (0..jobs).for_each(|_| _ = scope.spawn(work)));
    drop(progress);
    if let Some(error) = lock(&failed).take() {
        return Err(error);
    }
    let mut all = std::mem::take(&mut *lock(&done));
    all.sort_by_key(|(number, _)| *number);
    let rows: Vec<Episode> = all.into_iter().flat_map(|(_, episodes)| episodes).collect();
    if let Some(parent) = options.out.parent() {
        std::fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
    }
    telemetry::write_file(&options.out, &rows)?;
    output::line(format_args!(
        "{} episodes of {} paths: {}",
        rows.len(),
        options.paths,
        options.out.display()
    ))?;
    Ok(())
}

fn controller(name: &str) -> Result<Arc<dyn ControllerConfig>> {
    match registry::find(&Spec::named(name))? {
        Algorithm::Controller(controller) => Ok(controller),
        Algorithm::Transport { name, .. } => {
            bail!("{name} is the QUIC stack's own and does not run in the simulator")
        }
    }
}

// A panic under the lock leaves the list valid.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How the algorithm of the first flow is chosen.
enum Strategy {
    /// One run per algorithm.
    EachAlgorithm(Vec<Arc<dyn ControllerConfig>>),
    /// One run in which rules select the algorithm.
    Rules(Box<RulesStrategy>),
}

/// Rules, with the algorithms that they select from.
struct RulesStrategy {
    text: RulesText,
    settings: SelectorSettings,
    controllers: Vec<Arc<dyn ControllerConfig>>,
}

impl RulesStrategy {
    fn new(rules: &Path) -> Result<Self> {
        let text = RulesText::read(Some(rules)).map_err(anyhow::Error::msg)?;
        let (settings, algorithms) = millrace_mcc::resolve(&Config::default())?;
        let controllers =
            algorithms.iter().map(|it| controller(it.name())).collect::<Result<_>>()?;
        Ok(Self { text, settings, controllers })
    }
}

/// Runs a download and a video on a path.
fn run_path(
    mut path: DatasetPath,
    strategy: &Strategy,
    repeat: u64,
    traces: &Traces,
) -> Result<Vec<Episode>> {
    let link = path.link(traces).map_err(|problem| match problem {
        NotDone::Skipped(problem) | NotDone::Failed(problem) => anyhow::Error::msg(problem),
    })?;
    let name = serde_json::to_string(&path)?;
    let duration = DURATION + link.rtt * EXTRA_ROUND_TRIPS;
    let segment = path.rate_mbps * 1e6 / 8.0 * SEGMENT_DURATION.as_secs_f64() * SEGMENT_RATE_SHARE;
    let video = DataSource::Segments { bytes: (segment as u64).max(1), period: SEGMENT_DURATION };
    let rival = FlowSetup::bulk(controller("cubic")?);
    let mut all = Vec::new();
    // The simulator has no RTSP: with rules, a download stands in for class `rtsp`.
    for (class, source) in
        [(Class::Bulk, DataSource::Bulk), (Class::Dash, video), (Class::Rtsp, DataSource::Bulk)]
    {
        let mut supervisors = Vec::new();
        for round in 0..repeat {
            match strategy {
                Strategy::EachAlgorithm(_) if class == Class::Rtsp => {}
                Strategy::EachAlgorithm(controllers) => supervisors.extend(
                    controllers
                        .iter()
                        .map(|it| (round, DatasetSupervisor::fixed(Arc::clone(it), class))),
                ),
                Strategy::Rules(rules) => {
                    supervisors.push((round, DatasetSupervisor::selecting(rules, class)?));
                }
            }
        }
        for (round, mut supervisor) in supervisors {
            // The first round has the same seed whatever `repeat` is.
            let seed = path.number ^ (round << 32);
            let first = FlowSetup {
                source: source.clone(),
                initial_window_packets: INITIAL_CONGESTION_WINDOW_PACKETS as u64,
                ..FlowSetup::bulk(Arc::clone(&supervisor.controllers[0]))
            };
            let mut flows = vec![first];
            flows.extend((0..path.rivals).map(|_| rival.clone()));
            let random_change = path.rtt_changes();
            let setup = Setup { seed, random_change, ..Setup::new(link.clone(), flows, duration) };
            run_supervised(&setup, &mut NoObserver, &mut supervisor)
                .with_context(|| format!("{} on {name}", supervisor.controllers[0].name()))?;
            let episodes = supervisor.finish()?;
            // The number of the connection identifies the run.
            let connection = i64::try_from(round)?;
            let on_path = |it| Episode { path: Some(name.clone()), connection, ..it };
            all.extend(episodes.into_iter().map(on_path));
        }
    }
    Ok(all)
}

/// The Selector of the first flow, which records its episodes.
#[derive(Debug)]
struct DatasetSupervisor {
    selector: Selector<DatasetRules>,
    controllers: Vec<Arc<dyn ControllerConfig>>,
    class: Class,
    failure: Option<String>,
}

#[derive(Debug)]
enum DatasetRules {
    Keep,
    Lua(Box<LuaRules>),
}

impl SelectionRules for DatasetRules {
    fn select(&mut self, input: &RuleInput) -> Result<Option<Choice>, String> {
        match self {
            Self::Keep => Ok(None),
            Self::Lua(rules) => rules.select(input),
        }
    }
}

impl DatasetSupervisor {
    fn fixed(controller: Arc<dyn ControllerConfig>, class: Class) -> Self {
        let settings = SelectorSettings::new(vec![controller.name().to_owned()]);
        Self::new(DatasetRules::Keep, settings, vec![controller], class)
    }

    fn selecting(strategy: &RulesStrategy, class: Class) -> Result<Self> {
        let rules = strategy.text.load().map_err(anyhow::Error::msg)?;
        let rules = DatasetRules::Lua(Box::new(rules));
        Ok(Self::new(rules, strategy.settings.clone(), strategy.controllers.clone(), class))
    }

    fn new(
        rules: DatasetRules,
        settings: SelectorSettings,
        controllers: Vec<Arc<dyn ControllerConfig>>,
        class: Class,
    ) -> Self {
        let selector = Selector::new(rules, SelectorSettings { keeps_episodes: true, ..settings });
        Self { selector, controllers, class, failure: None }
    }

    fn finish(mut self) -> Result<Vec<Episode>> {
        if let Some(failure) = self.failure {
            bail!(failure);
        }
        self.selector.end();
        Ok(self.selector.take_episodes())
    }
}

impl Supervisor for DatasetSupervisor {
    fn watches(&self, flow: usize) -> bool {
        flow == 0
    }

    fn started(&mut self, flow: usize, now: Time) {
        let (connection, class) = (flow as u64, self.class);
        self.selector.ingest(PathUpdate::Opened { connection, now, class, algorithm: 0 });
    }

    fn ingest(&mut self, flow: usize, now: Time, path: &PathModel) {
        self.selector.ingest(PathUpdate::Acked(ConnectionRecord::new(flow as u64, now, path)));
    }

    fn evaluate(&mut self, now: Time) -> Vec<(usize, Arc<dyn ControllerConfig>)> {
        let Self { selector, controllers, failure, .. } = self;
        let mut switches = Vec::new();
        let try_send = |request: SwitchRequest| {
            switches.push((0, Arc::clone(&controllers[usize::from(request.algorithm)])));
            true
        };
        selector.evaluate(now, try_send, |problem| *failure = Some(problem.to_owned()));
        if controllers.len() == 1 {
            // A single algorithm does not restart after a path change either.
            switches.clear();
        }
        switches
    }

    fn interval(&self) -> Duration {
        EVALUATION_INTERVAL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_algorithm(algorithm: &str, number: u64) -> Vec<Episode> {
        let path = DatasetPath {
            number,
            rate_mbps: 10.0,
            rtt_ms: 40.0,
            buffer_bdp: 1.0,
            loss: 0.0,
            jitter_ms: 0.0,
            rivals: 0,
            moves_every_s: 0.0,
            trace: None,
        };
        let strategy = Strategy::EachAlgorithm(vec![controller(algorithm).unwrap()]);
        run_path(path, &strategy, 2, &Traces::find(None)).unwrap()
    }

    #[test]
    fn episodes_describe_path_and_outcome() {
        let episodes = run_algorithm("bbr", 1);
        assert_eq!(episodes, run_algorithm("bbr", 1), "the same run gives the same rows");
        let runs: Vec<_> = episodes.iter().map(|it| it.connection).collect();
        assert!(runs.contains(&0) && runs.contains(&1) && !runs.contains(&2), "{runs:?}");
        let bulk: Vec<_> = episodes.iter().filter(|it| it.class == "bulk").collect();
        let video: Vec<_> = episodes.iter().filter(|it| it.class == "dash").collect();
        assert!(bulk.len() >= 4 && video.len() >= 4, "{} and {}", bulk.len(), video.len());
        let later = bulk[1];
        assert!((later.rate_mbps - 9.7).abs() < 0.5, "{later:?}");
        assert!((later.min_rtt_ms - 41.0).abs() < 2.0, "{later:?}");
        assert!(later.path.as_ref().unwrap().contains("\"rate_mbps\":10.0"), "{later:?}");
        let later = video[1];
        assert!(later.active_s < 0.8 * later.lasted_s, "{later:?}");
        assert!(later.rate_mbps > 6.0, "the rate excludes pauses: {later:?}");
    }
}
