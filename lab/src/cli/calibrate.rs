//! `millrace-lab calibrate`: measures the emulated link itself.

use std::io::{Write, stderr};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;

use crate::calibrate;
use crate::demo::LinkOptions;
use crate::emulator::FrameIo;
use crate::output;
use crate::run::Run;
use crate::topology::{KernelCc, Topology};

/// Options of `millrace-lab calibrate`.
#[derive(Debug, Args)]
pub struct CalibrateOptions {
    /// Duration of the measurement in seconds
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(3..=3600))]
    duration_s: u64,
    #[command(flatten)]
    link: LinkOptions,
    /// How the emulator sends and receives frames [default: packet sockets if the kernel has them]
    #[arg(long, value_enum)]
    frame_io: Option<FrameIo>,
}

pub fn calibrate(options: &CalibrateOptions) -> Result<ExitCode> {
    let link = options.link.config()?;
    let run = Run::start()?;
    writeln!(stderr(), "run {}", run.name()).ok();
    let frame_io = options.frame_io.unwrap_or_else(FrameIo::best);
    let topology = Topology::with_frame_io(&run, KernelCc::Cubic, frame_io)?;
    let found = calibrate::run(&topology, link, Duration::from_secs(options.duration_s))?;
    output::line(serde_json::to_string_pretty(&found)?)?;
    let faults = found.faults();
    for fault in &faults {
        writeln!(stderr(), "millrace-lab: out of tolerance: {fault}").ok();
    }
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
