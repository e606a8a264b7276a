//! Runs scenarios with a driver: every cell and repeat, and their result files.

mod driver;
mod earlier;
mod quick;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::interrupt;
use crate::progress::RunProgress;
use crate::results::{
    CellRuns, CellSummary, InvalidRun, ResultsDirectory, RunCounts, RunFigures, RunFile,
    RunProblem, RunStamp, Summary, series, write_run,
};
use crate::scenario::{Scenario, ScenarioFile, Series};
use earlier::{DISCARDED, RunKey};

pub use driver::{NotDone, RunRequest, RunResult, ScenarioDriver};
pub use earlier::Earlier;
pub use quick::quicker;

/// Options of [`run`].
#[derive(Debug)]
pub struct RunnerOptions {
    /// Output directory.
    pub out: PathBuf,
    /// Number of parallel runs.
    pub jobs: usize,
    /// Attempts per run until one is valid.
    pub attempts: u32,
    /// How `--quick` has shortened the files.
    pub quick: Option<String>,
    /// Runs that are reused instead of being done again.
    pub earlier: Option<Earlier>,
}

/// One run to do.
struct Job<'a> {
    file: usize,
    of: &'a ScenarioFile,
    cell: usize,
    repeat: u64,
}

struct FinishedJob {
    job: usize,
    outcome: Result<CompletedRun, NotDone>,
}

/// What the summary needs of a run that has ended.
struct CompletedRun {
    figures: RunFigures,
    invalid_because: Vec<String>,
    /// Number of discarded attempts before it.
    discarded: usize,
    /// The build that did it, if it was reused from earlier results.
    reused_from: Option<String>,
}

/// Runs all cells and repeats of `files` and writes their results. `each` sees a file's summary as
/// soon as it is there.
///
/// # Errors
/// When results can't be written, or on Ctrl-C. Incomplete results are removed.
pub fn run<D: ScenarioDriver>(
    driver: &D,
    files: &[ScenarioFile],
    options: &RunnerOptions,
    mut each: impl FnMut(&Summary, &Path) -> Result<()>,
) -> Result<()> {
    let stamp = RunStamp::here();
    let jobs = jobs(files);
    let directories: Vec<ResultsDirectory> = files
        .iter()
        .map(|file| ResultsDirectory::begin(&options.out, &file.head.name))
        .collect::<Result<_>>()?;
    let mut pending: Vec<Option<PendingScenario<'_>>> = files
        .iter()
        .zip(directories)
        .map(|(file, directory)| Some(PendingScenario::new(file, directory)))
        .collect();
    let paths: Vec<PathBuf> = jobs
        .iter()
        .map(|job| pending[job.file].as_ref().map(|p| p.directory.run(&job.name())).transpose())
        .map(|path| path?.context("every file is pending"))
        .collect::<Result<_>>()?;
    let weights = jobs.iter().map(|job| driver.weight(job.scenario()));
    let progress = RunProgress::new(D::NAME, weights)?;
    let (next, (sender, finished)) = (AtomicUsize::new(0), mpsc::channel::<Result<FinishedJob>>());
    std::thread::scope(|scope| {
        for _ in 0..options.jobs.clamp(1, jobs.len().max(1)) {
            let (sender, next, jobs, paths, stamp) = (sender.clone(), &next, &jobs, &paths, &stamp);
            let progress = &progress;
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(index) else { break };
                    progress.begin(index, job.description());
                    let outcome = interrupt::check().map_err(Into::into).and_then(|()| {
                        let outcome = job.run(driver, options, &paths[index], stamp)?;
                        Ok(FinishedJob { job: index, outcome })
                    });
                    let stop = outcome.is_err();
                    if sender.send(outcome).is_err() || stop {
                        break;
                    }
                }
            });
        }
        drop(sender);
        let mut arrivals = std::iter::from_fn(|| progress.next(&finished));
        let collected = arrivals.try_for_each(|finished| {
            let FinishedJob { job, outcome } = finished?;
            progress.end(job, driver.weight(jobs[job].scenario()));
            let slot = &mut pending[jobs[job].file];
            let Some(file) = slot else { return Ok(()) };
            file.take(&jobs[job], outcome);
            if file.left > 0 {
                return Ok(());
            }
            let Some(done) = slot.take() else { return Ok(()) };
            progress.suspend(|| done.finish(D::NAME, options, &stamp, &mut each))
        });
        // The other threads find no more jobs.
        next.store(jobs.len(), Ordering::Relaxed);
        collected
    })
}

/// Every cell and repeat, in the order of the files. The cells of a repeat take turns, so that changes of the
/// machine over time affect all cells alike.
fn jobs(files: &[ScenarioFile]) -> Vec<Job<'_>> {
    let mut jobs = Vec::new();
    for (file, of) in files.iter().enumerate() {
        for repeat in 0..of.head.repeat {
            jobs.extend((0..of.cells.len()).map(|cell| Job { file, of, cell, repeat }));
        }
    }
    jobs
}

impl Job<'_> {
    fn name(&self) -> String {
        format!("{:04}-r{:02}", self.cell, self.repeat)
    }

    /// Scenario, run and swept values, as `vivace-fig02 0003-r01 (flow.0.cc=bbr)`.
    fn description(&self) -> String {
        let at = self.of.cells[self.cell].at.iter().filter(|(_, value)| !value.is_object());
        let words = at.map(|(key, value)| {
            value.as_str().map_or_else(|| format!("{key}={value}"), |text| format!("{key}={text}"))
        });
        let words: Vec<_> = words.collect();
        let at = if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) };
        format!("{} {}{at}", self.of.head.name, self.name())
    }

    fn scenario(&self) -> &Scenario {
        &self.of.cells[self.cell].scenario
    }

    /// The algorithms of the flows, as the scenario has them.
    fn named(&self) -> Vec<series::InUse> {
        let count = |group: &crate::scenario::FlowGroup| usize::try_from(group.count).unwrap_or(0);
        let groups = self.scenario().groups.iter();
        groups.flat_map(|group| vec![vec![(0.0, group.cc.clone())]; count(group)]).collect()
    }

    /// The same for all cells: a repeat's redraws of the link are those of its competitors.
    fn seed(&self) -> u64 {
        self.of.head.seed + self.repeat
    }

    fn keeps_series(&self) -> bool {
        match self.of.head.series {
            Series::All => true,
            Series::First => self.repeat == 0,
            Series::None => false,
        }
    }

    /// Runs it and writes its results. An invalid run is kept as a discarded attempt and done again.
    fn run<D: ScenarioDriver>(
        &self,
        driver: &D,
        options: &RunnerOptions,
        path: &Path,
        stamp: &RunStamp,
    ) -> Result<Result<CompletedRun, NotDone>> {
        if let Some(ended) = self.reuse::<D>(options, path)? {
            return Ok(Ok(ended));
        }
        let mut discarded = 0;
        loop {
            let outcome = self.attempt(driver, path, stamp)?;
            let invalid_because = match &outcome {
                Ok(ran) => ran.invalid_because.clone(),
                Err(_) => Vec::new(),
            };
            discarded += 1;
            if !invalid_because.is_empty() && discarded < options.attempts as usize {
                let kept = path.with_file_name(format!("{}{DISCARDED}{discarded}", self.name()));
                fs::rename(path, &kept).with_context(|| kept.display().to_string())?;
                fs::create_dir(path).with_context(|| path.display().to_string())?;
                driver.before_another_attempt()?;
                continue;
            }
            return Ok(outcome.map(|ran| CompletedRun {
                figures: ran.figures,
                invalid_because,
                discarded: discarded - 1,
                reused_from: None,
            }));
        }
    }

    /// Reuses an earlier run of this job; `None` without one.
    fn reuse<D: ScenarioDriver>(
        &self,
        options: &RunnerOptions,
        path: &Path,
    ) -> Result<Option<CompletedRun>> {
        let Some(earlier) = &options.earlier else { return Ok(None) };
        let wanted = RunKey {
            driver: D::NAME,
            scenario: self.scenario(),
            seed: self.seed(),
            with_series: self.keeps_series(),
        };
        let Some(run) = earlier.find(wanted)? else { return Ok(None) };
        let (figures, discarded) = run.take(path, self.cell, self.repeat)?;
        let reused_from = Some(run.commit());
        Ok(Some(CompletedRun { figures, invalid_because: Vec::new(), discarded, reused_from }))
    }

    fn attempt<D: ScenarioDriver>(
        &self,
        driver: &D,
        path: &Path,
        stamp: &RunStamp,
    ) -> Result<Result<RunResult, NotDone>> {
        let begin = Instant::now();
        let seed = self.seed();
        let request = RunRequest {
            scenario: self.scenario(),
            seed,
            with_series: self.keeps_series(),
            directory: path,
        };
        let outcome = driver.run(&request)?;
        let (status, reason) = match &outcome {
            Ok(_) => ("done", None),
            Err(NotDone::Skipped(reason)) => ("skipped", Some(reason.as_str())),
            Err(NotDone::Failed(reason)) => ("failed", Some(reason.as_str())),
        };
        let ran = outcome.as_ref().ok();
        let rows = ran.and_then(|ran| ran.rows.as_ref());
        if let Some(rows) = rows {
            let in_use = match ran.map_or(&[][..], |ran| &ran.in_use) {
                [] => &self.named(),
                told => told,
            };
            series::write(&path.join("series.parquet"), rows, in_use)?;
        }
        let invalid_because = ran.map_or(&[][..], |ran| &ran.invalid_because);
        let file = RunFile {
            format: 1,
            scenario: &self.of.head.name,
            cell: self.cell,
            repeat: self.repeat,
            seed,
            at: &self.of.cells[self.cell].at,
            driver: D::NAME,
            status,
            reason,
            valid: outcome.is_ok() && invalid_because.is_empty(),
            invalid_because,
            series: rows.is_some(),
            settings: self.scenario(),
            account: ran.and_then(|ran| ran.account.as_ref()),
            stamp: stamp.after(begin.elapsed().as_secs_f64()),
        };
        write_run(path, &file, ran.map(|ran| &ran.figures))?;
        Ok(outcome)
    }
}

/// A file with runs that are not finished.
struct PendingScenario<'a> {
    file: &'a ScenarioFile,
    directory: ResultsDirectory,
    /// By cell and repeat.
    runs: Vec<Vec<Option<RunFigures>>>,
    left: usize,
    counts: RunCounts,
    problems: BTreeMap<String, usize>,
    invalid_runs: Vec<InvalidRun>,
    /// Number of runs reused from each earlier build.
    reused: BTreeMap<String, usize>,
    begin: Instant,
}

impl<'a> PendingScenario<'a> {
    fn new(file: &'a ScenarioFile, directory: ResultsDirectory) -> Self {
        let repeats = usize::try_from(file.head.repeat).unwrap_or(usize::MAX);
        let runs = vec![vec![None; repeats]; file.cells.len()];
        let left = file.cells.len() * repeats;
        let counts = RunCounts { runs: left, ..RunCounts::default() };
        Self {
            file,
            directory,
            runs,
            left,
            counts,
            problems: BTreeMap::new(),
            invalid_runs: Vec::new(),
            reused: BTreeMap::new(),
            begin: Instant::now(),
        }
    }

    fn take(&mut self, job: &Job<'_>, outcome: Result<CompletedRun, NotDone>) {
        self.left -= 1;
        let problem = match outcome {
            Ok(CompletedRun { figures, invalid_because, discarded, reused_from }) => {
                self.counts.done += 1;
                self.counts.discarded += discarded;
                if let Some(commit) = reused_from {
                    *self.reused.entry(commit).or_default() += 1;
                }
                if invalid_because.is_empty() {
                    let repeat = usize::try_from(job.repeat).unwrap_or(usize::MAX);
                    self.runs[job.cell][repeat] = Some(figures);
                    return;
                }
                self.counts.invalid += 1;
                let at = &self.file.cells[job.cell].at;
                let run: CellRuns = vec![(job.name(), figures)];
                let problem = format!("invalid: {}", invalid_because.join("; "));
                let cell = CellSummary::of(job.cell, at, &run);
                self.invalid_runs.push(InvalidRun { cell, because: invalid_because });
                problem
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
        driver: &'static str,
        options: &RunnerOptions,
        stamp: &RunStamp,
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
        let problems = problems.map(|(reason, runs)| RunProblem { reason, runs }).collect();
        let mut summary = Summary::of(self.file, &cells, self.counts, problems);
        summary.driver = driver;
        summary.quick.clone_from(&options.quick);
        summary.reused = self.reused;
        summary.invalid_runs = self.invalid_runs;
        summary.invalid_runs.sort_by(|one, other| one.cell.runs.cmp(&other.cell.runs));
        summary.stamp = stamp.after(self.begin.elapsed().as_secs_f64());
        let path = self.directory.keep(&summary)?;
        each(&summary, &path)
    }
}

#[cfg(test)]
mod tests;
