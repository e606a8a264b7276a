//! `millrace-lab emu`: traffic with known properties over the emulated link.

use std::io::{Write, stderr};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use millrace_lab::demo::LinkOptions;
use millrace_lab::run::Run;
use millrace_lab::topology::{KernelCc, Topology};
use millrace_lab::{bulk, calibrate};

/// What to run over the link.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Traffic {
    /// One bulk TCP flow with CUBIC
    Cubic,
    /// One bulk TCP flow with BBR
    Bbr,
    /// One bulk TCP flow with Reno
    Reno,
    /// UDP probes that measure rate, delay and loss; fails when one is out of tolerance
    Calibrate,
}

#[derive(Debug, Args)]
pub struct Options {
    /// What to send from the origin to the player
    #[arg(long, value_enum, default_value = "calibrate")]
    traffic: Traffic,
    /// How long, in seconds
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(3..=3600))]
    duration_s: u64,
    /// Seconds at the start that do not count
    #[arg(long, default_value_t = 0)]
    warmup_s: u64,
    #[command(flatten)]
    link: LinkOptions,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let link = options.link.config()?;
    let cc = match options.traffic {
        Traffic::Cubic => KernelCc::Cubic,
        Traffic::Bbr => KernelCc::Bbr,
        Traffic::Reno => KernelCc::Reno,
        Traffic::Calibrate => return calibrate(options),
    };
    let run = Run::start()?;
    writeln!(stderr(), "run {}", run.name()).ok();
    let topology = Topology::build(&run, cc)?;
    let emulator = topology.start_link(link)?;
    let bar = ProgressBar::new(options.duration_s);
    bar.set_style(ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} s")?);
    bar.set_message(cc.name());
    let times = bulk::Times {
        duration: Duration::from_secs(options.duration_s),
        warmup: Duration::from_secs(options.warmup_s.min(options.duration_s - 1)),
    };
    let flow = bulk::run(&topology, cc, times, |elapsed| bar.set_position(elapsed.as_secs()))?;
    bar.finish_and_clear();
    let mut emulator = emulator.finish()?;
    emulator.series.clear();
    println!(
        "{}",
        serde_json::to_string_pretty(&serde_json::json!({
            "flow": flow,
            "emulator": emulator,
        }))?
    );
    Ok(ExitCode::SUCCESS)
}

fn calibrate(options: &Options) -> Result<ExitCode> {
    let link = options.link.config()?;
    let run = Run::start()?;
    writeln!(stderr(), "run {}", run.name()).ok();
    let topology = Topology::build(&run, KernelCc::Cubic)?;
    let mut found = calibrate::run(&topology, link, Duration::from_secs(options.duration_s))?;
    for report in &mut found.emulator {
        report.series.clear();
    }
    println!("{}", serde_json::to_string_pretty(&found)?);
    let faults = found.faults();
    for fault in &faults {
        writeln!(stderr(), "millrace-lab: out of tolerance: {fault}").ok();
    }
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
