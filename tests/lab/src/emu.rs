//! `millrace-lab emu` and `calibrate`.

use std::io::{Write, stderr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use millrace_lab::calibrate;
use millrace_lab::demo::LinkOptions;
use millrace_lab::emulate::{Emulation, Theatre};
use millrace_lab::emulator::Access;
use millrace_lab::proxies::Binaries;
use millrace_lab::run::Run;
use millrace_lab::runner;
use millrace_lab::scenario::Group;
use millrace_lab::topology::{KernelCc, Topology};
use millrace_lab::traces::Traces;

use crate::outcome::Tally;
use crate::scenarios::{Chosen, UNUSABLE};

#[derive(Debug, Args)]
struct AccessOption {
    /// How the emulator gets at the frames [default: packet sockets if the kernel has them]
    #[arg(long, value_enum)]
    access: Option<Access>,
}

impl AccessOption {
    fn get(&self) -> Access {
        self.access.unwrap_or_else(Access::best)
    }
}

#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    chosen: Chosen,
    /// Where results go
    #[arg(long, default_value = "target/lab/emulated")]
    out: PathBuf,
    /// How often a run is done at most, until neither the link nor the machine falls behind
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    attempts: u32,
    #[command(flatten)]
    access: AccessOption,
    /// Video for flows with app = "dash" instead of Big Buck Bunny (anything ffmpeg reads)
    #[arg(long)]
    media: Option<PathBuf>,
    /// Where the encoded video is kept for the next time
    #[arg(long, default_value = "target/media")]
    media_dir: PathBuf,
    /// The built player
    #[arg(long, default_value = "player")]
    player_dir: PathBuf,
}

#[derive(Debug, Args)]
pub struct CalibrateOptions {
    /// How long, in seconds
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(3..=3600))]
    duration_s: u64,
    #[command(flatten)]
    link: LinkOptions,
    #[command(flatten)]
    access: AccessOption,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let Some(work) = options.chosen.load()? else { return Ok(ExitCode::from(UNUSABLE)) };
    let traces = Traces::find(options.chosen.traces.as_deref());
    let mut emulation = Emulation::new(traces, Binaries::locate()?, options.access.get())?;
    let scenarios = work.files.iter().flat_map(|file| &file.cells).map(|cell| &cell.scenario);
    if scenarios.flat_map(|scenario| &scenario.groups).any(Group::is_dash) {
        let media = options.media.as_deref();
        let theatre = Theatre::prepare(&options.player_dir, &options.media_dir, media)?;
        emulation = emulation.with_theatre(theatre);
    }
    let asked = runner::Options {
        out: options.out.clone(),
        // Two at once would take the machine away from each other.
        jobs: 1,
        attempts: options.attempts,
        quick: work.quick,
    };
    let how = options.chosen.how();
    let mut tally = Tally::default();
    runner::run(&emulation, &work.files, &asked, |summary, path| tally.add(summary, path, how))?;
    tally.close(how)
}

pub fn calibrate(options: &CalibrateOptions) -> Result<ExitCode> {
    let link = options.link.config()?;
    let run = Run::start()?;
    writeln!(stderr(), "run {}", run.name()).ok();
    let topology = Topology::with_access(&run, KernelCc::Cubic, options.access.get())?;
    let found = calibrate::run(&topology, link, Duration::from_secs(options.duration_s))?;
    println!("{}", serde_json::to_string_pretty(&found)?);
    let faults = found.faults();
    for fault in &faults {
        writeln!(stderr(), "millrace-lab: out of tolerance: {fault}").ok();
    }
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
