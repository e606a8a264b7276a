//! Scenarios in the simulator: every cell and repeat, spread over the cores.

mod dynamics;
mod figures;
mod progress;
mod quick;
mod record;
mod setup;
mod traces;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use thiserror::Error;

use crate::interrupt;
use crate::results::{
    CellRuns, Counts, Directory, Problem, RunFigures, RunFile, Stamp, Summary, series, write_run,
};
use crate::scenario::{File, Rate, Scenario, Series};
use progress::Progress;
use record::{Record, SAMPLE_S};

pub use quick::quicker;
pub use traces::{DEFAULT_DIRECTORY, Traces, VARIABLE};

/// What [`run`] is asked.
#[derive(Debug)]
pub struct Options {
    /// Where results go.
    pub out: PathBuf,
    /// How many runs at once.
    pub jobs: usize,
    /// Recorded links.
    pub traces: Traces,
    /// What was left out of the files for speed.
    pub quick: Option<String>,
}

/// Why a run was not done.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotDone {
    /// For want of something.
    #[error("{0}")]
    Skipped(String),
    /// Something is wrong.
    #[error("{0}")]
    Failed(String),
}

/// One run to do.
struct Job<'a> {
    file: usize,
    of: &'a File,
    cell: usize,
    repeat: u64,
}

struct Finished {
    job: usize,
    outcome: Result<RunFigures, NotDone>,
}

/// Runs all cells and repeats of `files` and writes their results. `each` sees a file's summary as
/// soon as it is there.
///
/// # Errors
/// Results can't be written, or the user asked for the end. What is not whole by then is removed.
pub fn run(
    files: &[File],
    options: &Options,
    mut each: impl FnMut(&Summary, &Path) -> Result<()>,
) -> Result<()> {
    let stamp = Stamp::here();
    let jobs = jobs(files);
    let directories: Vec<Directory> = files
        .iter()
        .map(|file| Directory::begin(&options.out, &file.head.name))
        .collect::<Result<_>>()?;
    let mut pending: Vec<Option<Pending<'_>>> = files
        .iter()
        .zip(directories)
        .map(|(file, directory)| Some(Pending::new(file, directory)))
        .collect();
    let paths: Vec<PathBuf> = jobs
        .iter()
        .map(|job| pending[job.file].as_ref().map(|p| p.directory.run(&job.name())).transpose())
        .map(|path| path?.context("every file is pending"))
        .collect::<Result<_>>()?;
    let progress = Progress::new(jobs.iter().map(|job| weight(job.scenario())).sum())?;
    let (next, (sender, finished)) = (AtomicUsize::new(0), mpsc::channel::<Result<Finished>>());
    std::thread::scope(|scope| {
        for _ in 0..options.jobs.clamp(1, jobs.len().max(1)) {
            let (sender, next, jobs, paths, stamp) = (sender.clone(), &next, &jobs, &paths, &stamp);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(index) else { break };
                    let outcome = interrupt::check().map_err(Into::into).and_then(|()| {
                        let outcome = job.run(options, &paths[index], stamp)?;
                        Ok(Finished { job: index, outcome })
                    });
                    let stop = outcome.is_err();
                    if sender.send(outcome).is_err() || stop {
                        break;
                    }
                }
            });
        }
        drop(sender);
        let collected = finished.iter().try_for_each(|finished| {
            let Finished { job, outcome } = finished?;
            progress.advance(weight(jobs[job].scenario()));
            let slot = &mut pending[jobs[job].file];
            let Some(file) = slot else { return Ok(()) };
            file.take(&jobs[job], outcome);
            if file.left > 0 {
                return Ok(());
            }
            let Some(done) = slot.take() else { return Ok(()) };
            progress.suspend(|| done.finish(options, &stamp, &mut each))
        });
        // Whoever is still at it finds nothing more to do.
        next.store(jobs.len(), Ordering::Relaxed);
        collected
    })
}

/// Every cell and repeat, in the order of the files.
fn jobs(files: &[File]) -> Vec<Job<'_>> {
    let mut jobs = Vec::new();
    for (file, of) in files.iter().enumerate() {
        for cell in 0..of.cells.len() {
            jobs.extend((0..of.head.repeat).map(|repeat| Job { file, of, cell, repeat }));
        }
    }
    jobs
}

/// What a run costs, in about 10^6 bits.
fn weight(scenario: &Scenario) -> u64 {
    let redrawn = scenario.link.random_change.as_ref().and_then(|change| change.rate_mbps);
    let rate_mbps = match (&scenario.link.rate, redrawn) {
        (_, Some([low, high])) => (low + high) / 2.0,
        (Rate::Constant { rate_mbps }, None) => *rate_mbps,
        (Rate::Trace { .. }, None) => 5.0,
    };
    (rate_mbps * scenario.duration_s).ceil() as u64
}

impl Job<'_> {
    fn name(&self) -> String {
        format!("{:04}-r{:02}", self.cell, self.repeat)
    }

    fn scenario(&self) -> &Scenario {
        &self.of.cells[self.cell].scenario
    }

    fn keeps_series(&self) -> bool {
        match self.of.head.series {
            Series::All => true,
            Series::First => self.repeat == 0,
            Series::None => false,
        }
    }

    /// Runs it and writes what it left.
    fn run(
        &self,
        options: &Options,
        path: &Path,
        stamp: &Stamp,
    ) -> Result<Result<RunFigures, NotDone>> {
        let begin = Instant::now();
        // The same for all cells: a repeat's redraws of the link are those of its competitors.
        let seed = self.of.head.seed + self.repeat;
        let outcome = simulate(self.scenario(), seed, &options.traces, self.keeps_series());
        let (status, reason) = match &outcome {
            Ok(_) => ("done", None),
            Err(NotDone::Skipped(reason)) => ("skipped", Some(reason.clone())),
            Err(NotDone::Failed(reason)) => ("failed", Some(reason.clone())),
        };
        let (outcome, rows) = match outcome {
            Ok((figures, rows)) => (Ok(figures), rows),
            Err(not_done) => (Err(not_done), None),
        };
        if let Some(rows) = &rows {
            let count = |group: &crate::scenario::Group| usize::try_from(group.count).unwrap_or(0);
            let names = self.scenario().groups.iter();
            let names: Vec<String> =
                names.flat_map(|group| vec![group.cc.clone(); count(group)]).collect();
            series::write(&path.join("series.parquet"), rows, &names)?;
        }
        let file = RunFile {
            format: 1,
            scenario: &self.of.head.name,
            cell: self.cell,
            repeat: self.repeat,
            seed,
            at: &self.of.cells[self.cell].at,
            driver: "sim",
            status,
            reason: reason.as_deref(),
            valid: outcome.is_ok(),
            invalid_because: &[],
            series: rows.is_some(),
            settings: self.scenario(),
            stamp: stamp.after(begin.elapsed().as_secs_f64()),
        };
        write_run(path, &file, outcome.as_ref().ok())?;
        Ok(outcome)
    }
}

type Simulated = (RunFigures, Option<Vec<series::Row>>);

/// One run.
fn simulate(
    scenario: &Scenario,
    seed: u64,
    traces: &Traces,
    with_series: bool,
) -> Result<Simulated, NotDone> {
    let mut setup = setup::setup(scenario, seed, traces)?;
    setup.sample_every = Duration::from_secs_f64(SAMPLE_S);
    let mut record = Record::new(setup.flows.len(), with_series);
    let outcome = millrace_sim::run(&setup, &mut record)
        .map_err(|error| NotDone::Failed(error.to_string()))?;
    let figures = figures::figures(scenario, &outcome, &record);
    Ok((figures, record.rows))
}

/// A file some of whose runs are still to come.
struct Pending<'a> {
    file: &'a File,
    directory: Directory,
    /// By cell and repeat.
    runs: Vec<Vec<Option<RunFigures>>>,
    left: usize,
    counts: Counts,
    problems: BTreeMap<String, usize>,
    begin: Instant,
}

impl<'a> Pending<'a> {
    fn new(file: &'a File, directory: Directory) -> Self {
        let repeats = usize::try_from(file.head.repeat).unwrap_or(usize::MAX);
        let runs = vec![vec![None; repeats]; file.cells.len()];
        let left = file.cells.len() * repeats;
        let counts = Counts { runs: left, ..Counts::default() };
        let problems = BTreeMap::new();
        Self { file, directory, runs, left, counts, problems, begin: Instant::now() }
    }

    fn take(&mut self, job: &Job<'_>, outcome: Result<RunFigures, NotDone>) {
        self.left -= 1;
        let problem = match outcome {
            Ok(figures) => {
                self.counts.done += 1;
                let repeat = usize::try_from(job.repeat).unwrap_or(usize::MAX);
                self.runs[job.cell][repeat] = Some(figures);
                return;
            }
            Err(NotDone::Skipped(reason)) => {
                self.counts.skipped += 1;
                reason
            }
            Err(NotDone::Failed(reason)) => {
                self.counts.failed += 1;
                reason
            }
        };
        *self.problems.entry(problem).or_default() += 1;
    }

    fn finish(
        self,
        options: &Options,
        stamp: &Stamp,
        each: &mut impl FnMut(&Summary, &Path) -> Result<()>,
    ) -> Result<()> {
        let name = |cell: usize, repeat: usize| format!("{cell:04}-r{repeat:02}");
        let cells: Vec<CellRuns> = self
            .runs
            .into_iter()
            .enumerate()
            .map(|(cell, repeats)| {
                let named = repeats.into_iter().enumerate();
                named.filter_map(|(repeat, run)| Some((name(cell, repeat), run?))).collect()
            })
            .collect();
        let problems = self.problems.into_iter();
        let problems = problems.map(|(reason, runs)| Problem { reason, runs }).collect();
        let mut summary = Summary::of(self.file, &cells, self.counts, problems);
        summary.quick.clone_from(&options.quick);
        summary.stamp = stamp.after(self.begin.elapsed().as_secs_f64());
        let path = self.directory.keep(&summary)?;
        each(&summary, &path)
    }
}

#[cfg(test)]
mod tests;
