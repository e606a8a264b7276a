//! `millrace-lab sim`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use millrace_lab::runner;
use millrace_lab::simulate::Simulator;
use millrace_lab::traces::Traces;

use crate::outcome::Tally;
use crate::scenarios::{Chosen, UNUSABLE};

#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    chosen: Chosen,
    /// Where results go
    #[arg(long, default_value = "target/lab/results")]
    out: PathBuf,
    /// Runs at the same time [default: one per processor]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let Some(work) = options.chosen.load()? else { return Ok(ExitCode::from(UNUSABLE)) };
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let asked = runner::Options {
        out: options.out.clone(),
        jobs: options.jobs.map_or_else(cores, usize::from),
        attempts: 1,
        quick: work.quick,
        earlier: work.earlier,
    };
    let simulator = Simulator { traces: Traces::find(options.chosen.traces.as_deref()) };
    let how = options.chosen.how();
    let mut tally = Tally::default();
    runner::run(&simulator, &work.files, &asked, |summary, path| tally.add(summary, path, how))?;
    tally.close(how)
}
