//! `millrace-lab run`: scenarios in the simulator, or with real packets over the emulated link.

use std::collections::BTreeSet;
use std::io::{Write, stderr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;

use crate::checkout;
use crate::cli::outcome::OutcomeTally;
use crate::cli::scenarios::{ScenarioSelection, UNUSABLE};
use crate::emulate::{Emulation, MediaLibrary, PlayerPool, StreamLibrary};
use crate::emulator::FrameIo;
use crate::frames::{self, MaterialOptions};
use crate::interrupt;
use crate::proxies::Binaries;
use crate::runner::{self, RunnerOptions};
use crate::scenario::{Driver, FlowGroup};
use crate::simulate::Simulator;

/// Default output directory of the simulator.
const SIMULATOR_OUT: &str = "target/lab/results";
/// Default output directory of the emulator.
const EMULATOR_OUT: &str = "target/lab/emulated";
/// The emulated links of more runs than this take the processors away from each other.
const MAX_EMULATOR_JOBS: u16 = 4;
/// Attempts per run of the emulator, unless given.
const DEFAULT_ATTEMPTS: u32 = 3;
/// Where `tests/scripts/live555.sh` puts the server and openRTSP.
const LIVE555_DIRECTORY: &str = "target/tools/live555";

/// Options of `millrace-lab run`.
#[derive(Debug, Args)]
pub struct RunOptions {
    /// What runs the scenarios. Only the emulator takes --attempts, --frame-io, --live555-dir, --media,
    /// --media-dir, --streams-dir and --player-dir
    #[arg(long, value_enum)]
    driver: Driver,
    #[command(flatten)]
    selection: ScenarioSelection,
    /// Output directory [default: target/lab/results; with the emulator target/lab/emulated]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Number of parallel runs (use 1 unless links are slow) [default: one per processor; with the
    /// emulator 1, at most 4]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Attempts per run until neither the link nor the machine falls behind [default: 3]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    attempts: Option<u32>,
    /// How the emulator sends and receives frames [default: packet sockets if the kernel has them]
    #[arg(long, value_enum)]
    frame_io: Option<FrameIo>,
    /// Directory of live555's server and openRTSP; tests/scripts/live555.sh fetches them
    /// [default: target/tools/live555]
    #[arg(long)]
    live555_dir: Option<PathBuf>,
    #[command(flatten)]
    material: MaterialOptions,
}

impl RunOptions {
    /// The first option given that only the emulator takes.
    fn emulator_option(&self) -> Option<&'static str> {
        let given = [
            ("--attempts", self.attempts.is_some()),
            ("--frame-io", self.frame_io.is_some()),
            ("--live555-dir", self.live555_dir.is_some()),
        ];
        let given = given.into_iter().find(|(_, is_given)| *is_given);
        given.map(|(name, _)| name).or_else(|| self.material.first_given())
    }

    fn out(&self, default: &str) -> PathBuf {
        self.out.clone().unwrap_or_else(|| PathBuf::from(default))
    }
}

pub fn run(options: &RunOptions) -> Result<ExitCode> {
    match options.driver {
        Driver::Simulator => simulate(options),
        Driver::Emulator => emulate(options),
    }
}

fn simulate(options: &RunOptions) -> Result<ExitCode> {
    if let Some(name) = options.emulator_option() {
        bail!("{name} needs --driver emulator");
    }
    let selection = &options.selection;
    let Some(selected) = selection.load(Driver::Simulator)? else {
        return Ok(ExitCode::from(UNUSABLE));
    };
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let runner_options = RunnerOptions {
        out: options.out(SIMULATOR_OUT),
        jobs: options.jobs.map_or_else(cores, usize::from),
        attempts: 1,
        quick: selected.quick,
        earlier: selected.earlier,
    };
    let simulator = Simulator { traces: selected.traces };
    let display = selection.display();
    let mut tally = OutcomeTally::default();
    runner::run(&simulator, &selected.files, &runner_options, |summary, path| {
        tally.add(summary, path, display)
    })?;
    tally.close(display)
}

fn emulate(options: &RunOptions) -> Result<ExitCode> {
    let jobs = options.jobs.unwrap_or(1);
    if jobs > MAX_EMULATOR_JOBS {
        bail!("--jobs {jobs}: at most {MAX_EMULATOR_JOBS} with --driver emulator");
    }
    let selection = &options.selection;
    let Some(selected) = selection.load(Driver::Emulator)? else {
        return Ok(ExitCode::from(UNUSABLE));
    };
    let frame_io = options.frame_io.unwrap_or_else(FrameIo::best);
    let emulation = Emulation::new(selected.traces, Binaries::locate()?, frame_io)?;
    let scenarios = selected.files.iter().flat_map(|file| &file.cells).map(|cell| &cell.scenario);
    let groups: Vec<&FlowGroup> = scenarios.flat_map(|scenario| &scenario.groups).collect();
    let emulation = emulation.with(player_pool(options, &groups)?);
    let runner_options = RunnerOptions {
        out: options.out(EMULATOR_OUT),
        jobs: usize::from(jobs),
        attempts: options.attempts.unwrap_or(DEFAULT_ATTEMPTS),
        quick: selected.quick,
        earlier: selected.earlier,
    };
    let display = selection.display();
    let mut tally = OutcomeTally::default();
    let mut written = Vec::new();
    runner::run(&emulation, &selected.files, &runner_options, |summary, path| {
        written.push(path.to_owned());
        tally.add(summary, path, display)
    })?;
    // After the last measurement. Results are complete without frames.
    for path in written {
        match frames::draw_in(&path, &options.material) {
            Err(error) if error.is::<interrupt::Interrupted>() => return Err(error),
            Err(error) => _ = writeln!(stderr(), "millrace-lab: no frames: {error:#}"),
            Ok(()) => {}
        }
    }
    tally.close(display)
}

/// Prepares what the players of these groups need.
fn player_pool(options: &RunOptions, groups: &[&FlowGroup]) -> Result<PlayerPool> {
    let material = &options.material;
    let media = material.media.as_deref();
    let mut pool = PlayerPool::default();
    let watched = groups.iter().filter(|group| group.is_dash());
    if let Some(longest_s) = watched.map(|it| it.stop_s - it.start_s).reduce(f64::max) {
        let longest = Duration::from_secs_f64(longest_s);
        let media_dir = material.media_dir();
        let library = MediaLibrary::prepare(material.player_dir(), media_dir, media, longest)?;
        pool.media = Some(library);
    }
    let rates: BTreeSet<u64> = groups.iter().filter_map(|group| group.stream_mbps()).collect();
    if !rates.is_empty() {
        let live555 = options.live555_dir.clone();
        let live555 = live555.unwrap_or_else(|| checkout::existing(Path::new(LIVE555_DIRECTORY)));
        let (player_dir, streams_dir) = (material.player_dir(), material.streams_dir());
        let streams = StreamLibrary::prepare(&live555, player_dir, streams_dir, media, &rates)?;
        pool.streams = Some(streams);
    }
    Ok(pool)
}
