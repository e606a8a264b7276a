//! Scenarios, whatever runs them: every cell and repeat, and what they leave.

mod earlier;
mod progress;
mod quick;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::Value;
use thiserror::Error;

use crate::interrupt;
use crate::results::{
    CellRuns, Counts, Directory, Problem, RunFigures, RunFile, Stamp, Summary, series, write_run,
};
use crate::scenario::{File, Scenario, Series};
use earlier::{LEFT_OUT, Wanted};
use progress::Progress;

pub use earlier::Earlier;
pub use quick::quicker;

/// What [`run`] is asked.
#[derive(Debug)]
pub struct Options {
    /// Where results go.
    pub out: PathBuf,
    /// How many runs at once.
    pub jobs: usize,
    /// How often a run that can't be trusted is done, until one can.
    pub attempts: u32,
    /// What was left out of the files for speed.
    pub quick: Option<String>,
    /// Runs that are taken over where they are what would be run.
    pub earlier: Option<Earlier>,
}

/// What can run a scenario.
pub trait Driver: Sync {
    /// As results call it.
    const NAME: &'static str;

    /// One run.
    ///
    /// # Errors
    /// What ends all of it: the user's wish, or results that can't be written. What concerns this run
    /// alone is [`NotDone`].
    fn run(&self, request: &Request<'_>) -> Result<Result<Ran, NotDone>>;

    /// Before a run that couldn't be trusted is done again.
    ///
    /// # Errors
    /// What ends all of it.
    fn before_another_attempt(&self) -> Result<()> {
        Ok(())
    }

    /// What a run costs, in a unit of the driver's own.
    fn weight(&self, scenario: &Scenario) -> u64;
}

/// One run, as a [`Driver`] is asked for it.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// What runs.
    pub scenario: &'a Scenario,
    /// Of all chance.
    pub seed: u64,
    /// Whether the series are wanted.
    pub with_series: bool,
    /// Where logs may go.
    pub directory: &'a Path,
}

/// A run that came to its end.
#[derive(Debug, Default)]
pub struct Ran {
    /// What it came to.
    pub figures: RunFigures,
    /// Its series, if they were wanted.
    pub rows: Option<Vec<series::Row>>,
    /// The algorithms that each flow had; empty where they are the scenario's.
    pub in_use: Vec<series::InUse>,
    /// Why it can't be trusted; empty when it can.
    pub invalid_because: Vec<String>,
    /// What the driver says of itself.
    pub account: Option<Value>,
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
    outcome: Result<Ended, NotDone>,
}

/// What is kept in mind of a run that came to its end.
struct Ended {
    figures: RunFigures,
    invalid_because: Vec<String>,
    /// How often it was done in vain before.
    left_out: usize,
    /// The build that did it, if it was taken over from earlier results.
    taken_from: Option<String>,
}

/// Runs all cells and repeats of `files` and writes their results. `each` sees a file's summary as
/// soon as it is there.
///
/// # Errors
/// Results can't be written, or the user asked for the end. What is not whole by then is removed.
pub fn run<D: Driver>(
    driver: &D,
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
    let progress =
        Progress::new(D::NAME, jobs.iter().map(|job| driver.weight(job.scenario())).sum())?;
    let (next, (sender, finished)) = (AtomicUsize::new(0), mpsc::channel::<Result<Finished>>());
    std::thread::scope(|scope| {
        for _ in 0..options.jobs.clamp(1, jobs.len().max(1)) {
            let (sender, next, jobs, paths, stamp) = (sender.clone(), &next, &jobs, &paths, &stamp);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(index) else { break };
                    let outcome = interrupt::check().map_err(Into::into).and_then(|()| {
                        let outcome = job.run(driver, options, &paths[index], stamp)?;
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
            progress.advance(driver.weight(jobs[job].scenario()));
            let slot = &mut pending[jobs[job].file];
            let Some(file) = slot else { return Ok(()) };
            file.take(&jobs[job], outcome);
            if file.left > 0 {
                return Ok(());
            }
            let Some(done) = slot.take() else { return Ok(()) };
            progress.suspend(|| done.finish(D::NAME, options, &stamp, &mut each))
        });
        // Whoever is still at it finds nothing more to do.
        next.store(jobs.len(), Ordering::Relaxed);
        collected
    })
}

/// Every cell and repeat, in the order of the files. What is compared takes turns, so that a machine that
/// changes with time changes it for all cells alike.
fn jobs(files: &[File]) -> Vec<Job<'_>> {
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

    fn scenario(&self) -> &Scenario {
        &self.of.cells[self.cell].scenario
    }

    /// The algorithms of the flows, as the scenario has them.
    fn named(&self) -> Vec<series::InUse> {
        let count = |group: &crate::scenario::Group| usize::try_from(group.count).unwrap_or(0);
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

    /// Runs it and writes what it left. A run that can't be trusted is kept and done again.
    fn run<D: Driver>(
        &self,
        driver: &D,
        options: &Options,
        path: &Path,
        stamp: &Stamp,
    ) -> Result<Result<Ended, NotDone>> {
        if let Some(ended) = self.taken::<D>(options, path)? {
            return Ok(Ok(ended));
        }
        let mut left_out = 0;
        loop {
            let outcome = self.attempt(driver, path, stamp)?;
            let invalid_because = match &outcome {
                Ok(ran) => ran.invalid_because.clone(),
                Err(_) => Vec::new(),
            };
            left_out += 1;
            if !invalid_because.is_empty() && left_out < options.attempts as usize {
                let kept = path.with_file_name(format!("{}{LEFT_OUT}{left_out}", self.name()));
                fs::rename(path, &kept).with_context(|| kept.display().to_string())?;
                fs::create_dir(path).with_context(|| path.display().to_string())?;
                driver.before_another_attempt()?;
                continue;
            }
            return Ok(outcome.map(|ran| Ended {
                figures: ran.figures,
                invalid_because,
                left_out: left_out - 1,
                taken_from: None,
            }));
        }
    }

    /// It as it was run earlier, if it was.
    fn taken<D: Driver>(&self, options: &Options, path: &Path) -> Result<Option<Ended>> {
        let Some(earlier) = &options.earlier else { return Ok(None) };
        let wanted = Wanted {
            driver: D::NAME,
            scenario: self.scenario(),
            seed: self.seed(),
            with_series: self.keeps_series(),
        };
        let Some(run) = earlier.find(wanted)? else { return Ok(None) };
        let (figures, left_out) = run.take(path, self.cell, self.repeat)?;
        let taken_from = Some(run.commit());
        Ok(Some(Ended { figures, invalid_because: Vec::new(), left_out, taken_from }))
    }

    fn attempt<D: Driver>(
        &self,
        driver: &D,
        path: &Path,
        stamp: &Stamp,
    ) -> Result<Result<Ran, NotDone>> {
        let begin = Instant::now();
        let seed = self.seed();
        let request = Request {
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

/// A file some of whose runs are still to come.
struct Pending<'a> {
    file: &'a File,
    directory: Directory,
    /// By cell and repeat.
    runs: Vec<Vec<Option<RunFigures>>>,
    left: usize,
    counts: Counts,
    problems: BTreeMap<String, usize>,
    /// How many runs each earlier build did.
    taken: BTreeMap<String, usize>,
    begin: Instant,
}

impl<'a> Pending<'a> {
    fn new(file: &'a File, directory: Directory) -> Self {
        let repeats = usize::try_from(file.head.repeat).unwrap_or(usize::MAX);
        let runs = vec![vec![None; repeats]; file.cells.len()];
        let left = file.cells.len() * repeats;
        let counts = Counts { runs: left, ..Counts::default() };
        Self {
            file,
            directory,
            runs,
            left,
            counts,
            problems: BTreeMap::new(),
            taken: BTreeMap::new(),
            begin: Instant::now(),
        }
    }

    fn take(&mut self, job: &Job<'_>, outcome: Result<Ended, NotDone>) {
        self.left -= 1;
        let problem = match outcome {
            Ok(Ended { figures, invalid_because, left_out, taken_from }) => {
                self.counts.done += 1;
                self.counts.left_out += left_out;
                if let Some(commit) = taken_from {
                    *self.taken.entry(commit).or_default() += 1;
                }
                if invalid_because.is_empty() {
                    let repeat = usize::try_from(job.repeat).unwrap_or(usize::MAX);
                    self.runs[job.cell][repeat] = Some(figures);
                    return;
                }
                self.counts.invalid += 1;
                format!("not valid: {}", invalid_because.join("; "))
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
        summary.driver = driver;
        summary.quick.clone_from(&options.quick);
        summary.taken_over = self.taken;
        summary.stamp = stamp.after(self.begin.elapsed().as_secs_f64());
        let path = self.directory.keep(&summary)?;
        each(&summary, &path)
    }
}
