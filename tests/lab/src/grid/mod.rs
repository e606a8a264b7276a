//! What each algorithm makes of each of many paths, in the simulator, in the form of the telemetry: what the
//! Rules Learner learns from (`learner/`).

mod path;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use millrace_cc::registry::{self, Algorithm, Spec};
use millrace_cc::{ControllerConfig, PathModel, Time};
use millrace_mcc::rules::{Choice, LuaRules, Rules};
use millrace_mcc::{
    Class, Config, Episode, Facts, News, Record, RulesText, Selector, Settings, telemetry,
};
use millrace_sim::{Flow, NoObserver, Setup, Source, Supervisor, run_supervised};

pub use path::{GridPath, Part};

use crate::interrupt;
use crate::runner::NotDone;
use crate::traces::{DEFAULT_DIRECTORY, Traces, VARIABLE};

/// A run lasts so long, and so many round trips longer.
const DURATION: Duration = Duration::from_secs(40);
const ROUND_TRIPS: u32 = 40;
/// A video has a segment so often, of so much of what the path carries.
const SEGMENT_EVERY: Duration = Duration::from_secs(2);
const SEGMENT_SHARE: f64 = 0.5;
/// How often the Selector has its turn.
const INTERVAL: Duration = Duration::from_millis(50);
/// As the tunnel has it.
const INITIAL_WINDOW_PACKETS: u64 = 32;

/// `millrace-lab grid`.
#[derive(Debug, Args)]
pub struct Options {
    /// File to write, in Parquet
    #[arg(long)]
    out: PathBuf,
    /// How many paths
    #[arg(long, default_value_t = 1000)]
    paths: u64,
    /// Which paths: the same seed draws the same ones
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The first of them: the same seed has others from here on
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Runs of each, with chance losses of their own: the best of several algorithms in one run is in part
    /// the luckiest
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    repeat: u64,
    /// Algorithms to try on each, by name
    #[arg(long, value_delimiter = ',', default_value = DEFAULT_ALGORITHMS)]
    algorithms: Vec<String>,
    /// Let these rules select, instead of trying each algorithm
    #[arg(long)]
    rules: Option<PathBuf>,
    /// Which of the recorded links; a third, drawn by --split-seed, is held out from training
    #[arg(long, value_enum, default_value = "all")]
    recorded: Part,
    /// Which of them are held out
    #[arg(long, default_value_t = 1)]
    split_seed: u64,
    /// Directory of recorded links [default: $MILLRACE_TRACES, else ../shared/traces]
    #[arg(long)]
    traces: Option<PathBuf>,
    /// Runs at the same time [default: one per processor]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
}

/// One of each kind, and those that are best at something in the scenarios.
const DEFAULT_ALGORITHMS: &str =
    "cubic,bbr,bbr3,westwood,illinois,copa,vegas,vivace-latency,vivace-loss,proteus-p,iris-min";

/// Draws paths, runs all of it, and writes the episodes.
///
/// # Errors
/// An algorithm that there is not; a run that fails; a file that can't be written.
pub fn run(options: &Options) -> Result<()> {
    let tried = match &options.rules {
        None => {
            Tried::Each(options.algorithms.iter().map(|it| controller(it)).collect::<Result<_>>()?)
        }
        Some(file) => Tried::Selected(Box::new(Mcc::new(file)?)),
    };
    let traces = Traces::find(options.traces.as_deref());
    let directory = options.traces.clone().or_else(|| std::env::var_os(VARIABLE).map(Into::into));
    let directory = directory.unwrap_or_else(|| PathBuf::from(DEFAULT_DIRECTORY));
    let recorded = path::recorded(&directory).with_context(|| directory.display().to_string())?;
    let recorded = path::part_of(recorded, options.recorded, options.split_seed);
    match recorded.as_slice() {
        [] => eprintln!("no recorded links below {}: no path has one", directory.display()),
        names => println!("recorded links: {}", names.join(", ")),
    }

    let jobs = options
        .jobs
        .map_or_else(|| thread::available_parallelism().map_or(1, usize::from), usize::from);
    let end = options.from + options.paths;
    let next = AtomicU64::new(options.from);
    let done: Mutex<Vec<(u64, Vec<Episode>)>> = Mutex::default();
    let failed: Mutex<Option<anyhow::Error>> = Mutex::default();
    let bar = ProgressBar::new(options.paths).with_style(
        ProgressStyle::with_template("paths [{wide_bar}] {pos} of {len}, {eta} left")?
            .progress_chars("=> "),
    );
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= end {
                return;
            }
            let path = path::draw(options.seed, number, &recorded);
            let done_on = interrupt::check().map_err(anyhow::Error::from);
            match done_on.and_then(|()| all_on(path, &tried, options.repeat, &traces)) {
                Ok(episodes) => lock(&done).push((number, episodes)),
                Err(error) => {
                    next.store(end, Ordering::Relaxed);
                    *lock(&failed) = Some(error);
                    return;
                }
            }
            bar.inc(1);
        }
    };
    thread::scope(|scope| (0..jobs).for_each(|_| _ = scope.spawn(work)));
    bar.finish_and_clear();
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
    println!("{} episodes of {} paths: {}", rows.len(), options.paths, options.out.display());
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

// A list is right whatever thread panicked beside it.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who drives the first flow.
enum Tried {
    /// One after the other.
    Each(Vec<Arc<dyn ControllerConfig>>),
    /// Whichever the rules select.
    Selected(Box<Mcc>),
}

/// Rules with all that there is to choose from.
struct Mcc {
    text: RulesText,
    settings: Settings,
    candidates: Vec<Arc<dyn ControllerConfig>>,
}

impl Mcc {
    fn new(rules: &Path) -> Result<Self> {
        let text = RulesText::read(Some(rules)).map_err(anyhow::Error::msg)?;
        let (settings, algorithms) = millrace_mcc::resolve(&Config::default())?;
        let candidates =
            algorithms.iter().map(|it| controller(it.name())).collect::<Result<_>>()?;
        Ok(Self { text, settings, candidates })
    }
}

/// What comes of it on a path, for a download and for a video.
fn all_on(mut path: GridPath, tried: &Tried, repeat: u64, traces: &Traces) -> Result<Vec<Episode>> {
    let link = path.link(traces).map_err(|problem| match problem {
        NotDone::Skipped(problem) | NotDone::Failed(problem) => anyhow::Error::msg(problem),
    })?;
    let name = serde_json::to_string(&path)?;
    let duration = DURATION + link.rtt * ROUND_TRIPS;
    let segment = path.rate_mbps * 1e6 / 8.0 * SEGMENT_EVERY.as_secs_f64() * SEGMENT_SHARE;
    let video = Source::Segments { bytes: (segment as u64).max(1), period: SEGMENT_EVERY };
    let rival = Flow::bulk(controller("cubic")?);
    let mut all = Vec::new();
    // The simulator has no RTSP: rules, which know the class, select for a download in its place.
    for (class, source) in
        [(Class::Bulk, Source::Bulk), (Class::Dash, video), (Class::Rtsp, Source::Bulk)]
    {
        let mut watchers = Vec::new();
        for round in 0..repeat {
            match tried {
                Tried::Each(_) if class == Class::Rtsp => {}
                Tried::Each(algorithms) => watchers.extend(
                    algorithms.iter().map(|it| (round, Watcher::of(Arc::clone(it), class))),
                ),
                Tried::Selected(mcc) => watchers.push((round, Watcher::selecting(mcc, class)?)),
            }
        }
        for (round, mut watcher) in watchers {
            // The first round has the seed that a single one has.
            let seed = path.number ^ (round << 32);
            let first = Flow {
                source,
                initial_window_packets: INITIAL_WINDOW_PACKETS,
                ..Flow::bulk(Arc::clone(&watcher.candidates[0]))
            };
            let mut flows = vec![first];
            flows.extend((0..path.rivals).map(|_| rival.clone()));
            let random_change = path.moves();
            let setup = Setup { seed, random_change, ..Setup::new(link.clone(), flows, duration) };
            run_supervised(&setup, &mut NoObserver, &mut watcher)
                .with_context(|| format!("{} on {name}", watcher.candidates[0].name()))?;
            let episodes = watcher.finish()?;
            // One connection a run is judged: its number tells the runs apart.
            let connection = i64::try_from(round)?;
            let on_path = |it| Episode { path: Some(name.clone()), connection, ..it };
            all.extend(episodes.into_iter().map(on_path));
        }
    }
    Ok(all)
}

/// The Selector of the first flow, which keeps its episodes.
#[derive(Debug)]
struct Watcher {
    selector: Selector<Judge>,
    candidates: Vec<Arc<dyn ControllerConfig>>,
    class: Class,
    failure: Option<String>,
}

#[derive(Debug)]
enum Judge {
    Stay,
    Lua(Box<LuaRules>),
}

impl Rules for Judge {
    fn select(&mut self, facts: &Facts) -> Result<Option<Choice>, String> {
        match self {
            Self::Stay => Ok(None),
            Self::Lua(rules) => rules.select(facts),
        }
    }
}

impl Watcher {
    fn of(algorithm: Arc<dyn ControllerConfig>, class: Class) -> Self {
        let settings = Settings::new(vec![algorithm.name().to_owned()]);
        Self::new(Judge::Stay, settings, vec![algorithm], class)
    }

    fn selecting(mcc: &Mcc, class: Class) -> Result<Self> {
        let rules = mcc.text.load().map_err(anyhow::Error::msg)?;
        let judge = Judge::Lua(Box::new(rules));
        Ok(Self::new(judge, mcc.settings.clone(), mcc.candidates.clone(), class))
    }

    fn new(
        judge: Judge,
        settings: Settings,
        candidates: Vec<Arc<dyn ControllerConfig>>,
        class: Class,
    ) -> Self {
        let selector = Selector::new(judge, Settings { keeps_episodes: true, ..settings });
        Self { selector, candidates, class, failure: None }
    }

    fn finish(mut self) -> Result<Vec<Episode>> {
        if let Some(failure) = self.failure {
            bail!(failure);
        }
        self.selector.end();
        Ok(self.selector.take_episodes())
    }
}

impl Supervisor for Watcher {
    fn watches(&self, flow: usize) -> bool {
        flow == 0
    }

    fn started(&mut self, flow: usize, now: Time) {
        let (connection, class) = (flow as u64, self.class);
        self.selector.hear(News::Opened { connection, now, class, algorithm: 0 });
    }

    fn heard(&mut self, flow: usize, now: Time, path: &PathModel) {
        self.selector.hear(News::Acked(Record::new(flow as u64, now, path)));
    }

    fn decide(&mut self, now: Time) -> Vec<(usize, Arc<dyn ControllerConfig>)> {
        let Self { selector, candidates, failure, .. } = self;
        let mut orders = Vec::new();
        let give = |order: millrace_mcc::Order| {
            orders.push((0, Arc::clone(&candidates[usize::from(order.algorithm)])));
            true
        };
        selector.decide(now, give, |problem| *failure = Some(problem.to_owned()));
        if candidates.len() == 1 {
            // Nobody lets it start anew where the path seems another one, either.
            orders.clear();
        }
        orders
    }

    fn interval(&self) -> Duration {
        INTERVAL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(algorithm: &str, number: u64) -> Vec<Episode> {
        let path = GridPath {
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
        let tried = Tried::Each(vec![controller(algorithm).unwrap()]);
        all_on(path, &tried, 2, &Traces::find(None)).unwrap()
    }

    #[test]
    fn episodes_have_what_the_path_is_like_and_what_came_of_it() {
        let episodes = of("bbr", 1);
        assert_eq!(episodes, of("bbr", 1), "the same run gives the same rows");
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
        assert!(later.rate_mbps > 6.0, "of the time in which it had data: {later:?}");
    }
}
