//! `millrace-lab`: the demo, scenarios in the simulator, the emulated link, and the removal of what
//! crashed runs left.

use std::io::{Write, stderr};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use millrace_lab::demo::DemoOptions;
use millrace_lab::{clean, demo, grid, interrupt, pictures, report};

mod emu;
mod media;
mod outcome;
mod scenarios;
mod sim;

#[derive(Parser)]
#[command(version, about = "Experiments with Millrace over an emulated or simulated link")]
struct Cli {
    #[command(subcommand)]
    command: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Play the same video over plain TCP and through Millrace, and compare
    Demo(DemoOptions),
    /// Run scenarios with real packets and judge their claims; needs root
    Emu(emu::Options),
    /// Measure the emulated link itself; fails when it is out of tolerance
    Calibrate(emu::CalibrateOptions),
    /// Make what players play, with tables of its quality: DASH, and streams for RTSP
    Media(media::Options),
    /// Draw what was on the players' screens at other instants than `emu` did
    Pictures(pictures::Options),
    /// Run scenarios in the simulator and judge their claims
    Sim(sim::Options),
    /// Run every algorithm on many paths in the simulator, for the Rules Learner
    Grid(grid::Options),
    /// Show the scenarios with a line each
    List(scenarios::ListOptions),
    /// Check scenario files without running them
    Check(scenarios::CheckOptions),
    /// Draw results and judge claims: one page that needs nothing but a browser
    Report(report::Options),
    /// Keep results in the repository: page, figures of each flow, and how they were got
    Keep(report::keep::Options),
    /// Remove namespaces, processes and files that a crashed run left
    Clean,
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) if error.is::<interrupt::Interrupted>() => {
            say("interrupted; everything it had made is removed");
            ExitCode::from(130)
        }
        Err(error) => {
            say(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// A closed standard error must not turn an orderly end into a panic.
fn say(what: &str) {
    writeln!(stderr(), "millrace-lab: {what}").ok();
}

fn run(action: Action) -> Result<ExitCode> {
    interrupt::install()?;
    match action {
        Action::Demo(options) => demo::run(&options).map(|()| ExitCode::SUCCESS),
        Action::Emu(options) => emu::run(&options),
        Action::Calibrate(options) => emu::calibrate(&options),
        Action::Media(options) => media::run(&options),
        Action::Pictures(options) => pictures::run(&options).map(|()| ExitCode::SUCCESS),
        Action::Sim(options) => sim::run(&options),
        Action::Grid(options) => grid::run(&options).map(|()| ExitCode::SUCCESS),
        Action::List(options) => scenarios::list(&options),
        Action::Check(options) => scenarios::check(&options),
        Action::Report(options) => report::run(&options).map(|()| ExitCode::SUCCESS),
        Action::Keep(options) => report::keep::run(&options).map(|()| ExitCode::SUCCESS),
        Action::Clean => {
            let removed = clean::clean()?;
            for name in &removed {
                println!("removed {name}");
            }
            if removed.is_empty() {
                println!("nothing was left");
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}
