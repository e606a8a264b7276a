//! `millrace-lab emu` and `calibrate`.

use std::collections::BTreeSet;
use std::io::{Write, stderr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use millrace_lab::calibrate;
use millrace_lab::demo::LinkOptions;
use millrace_lab::emulate::{Emulation, Equipment, Streams, Theatre};
use millrace_lab::emulator::Access;
use millrace_lab::interrupt;
use millrace_lab::pictures::{self, Material};
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
    /// So many runs at once; more than one takes the machine away from the others, unless they are slow
    /// links. Runs in which it falls behind are done again
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4))]
    jobs: u32,
    #[command(flatten)]
    access: AccessOption,
    /// live555's server and openRTSP, as tests/scripts/live555.sh fetches them
    #[arg(long, default_value = "target/tools/live555")]
    live555_dir: PathBuf,
    #[command(flatten)]
    played: Material,
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
    let emulation = Emulation::new(traces, Binaries::locate()?, options.access.get())?;
    let scenarios = work.files.iter().flat_map(|file| &file.cells).map(|cell| &cell.scenario);
    let groups: Vec<&Group> = scenarios.flat_map(|scenario| &scenario.groups).collect();
    let Material { media, media_dir, streams_dir, player_dir } = &options.played;
    let media = media.as_deref();
    let mut equipment = Equipment::default();
    let watched = groups.iter().filter(|group| group.is_dash());
    if let Some(longest_s) = watched.map(|it| it.stop_s - it.start_s).reduce(f64::max) {
        let longest = Duration::from_secs_f64(longest_s);
        let theatre = Theatre::prepare(player_dir, media_dir, media, longest)?;
        equipment.theatre = Some(theatre);
    }
    let rates: BTreeSet<u64> = groups.iter().filter_map(|group| group.stream_mbps()).collect();
    if !rates.is_empty() {
        let live555 = &options.live555_dir;
        let streams = Streams::prepare(live555, player_dir, streams_dir, media, &rates)?;
        equipment.streams = Some(streams);
    }
    let emulation = emulation.with(equipment);
    let asked = runner::Options {
        out: options.out.clone(),
        jobs: usize::try_from(options.jobs)?,
        attempts: options.attempts,
        quick: work.quick,
        earlier: work.earlier,
    };
    let how = options.chosen.how();
    let mut tally = Tally::default();
    let mut kept = Vec::new();
    runner::run(&emulation, &work.files, &asked, |summary, path| {
        kept.push(path.to_owned());
        tally.add(summary, path, how)
    })?;
    // When nothing is measured any more. What was measured stands without pictures.
    for path in kept {
        match pictures::draw_in(&path, &options.played) {
            Err(error) if error.is::<interrupt::Interrupted>() => return Err(error),
            Err(error) => _ = writeln!(stderr(), "millrace-lab: no pictures: {error:#}"),
            Ok(()) => {}
        }
    }
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
