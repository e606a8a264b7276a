//! The commands of `millrace-lab`: the demo, scenarios, results, and the removal of what crashed runs left.

use std::io::{Write, stderr};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Command, CommandFactory, Parser, Subcommand};

use crate::dataset::DatasetOptions;
use crate::demo::DemoOptions;
use crate::frames::FramesOptions;
use crate::output;
use crate::report::ReportOptions;
use crate::report::archive::{self, ArchiveOptions};
use crate::report::claims_page::{self, ClaimsOptions};
use crate::{clean, dataset, demo, frames, interrupt, report};

mod calibrate;
mod media;
mod outcome;
mod run;
mod scenarios;

#[derive(Parser)]
#[command(version, about = "Experiments with Millrace over an emulated or simulated link")]
struct LabCli {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Subcommand)]
enum LabCommand {
    /// Play the same video over plain TCP and through Millrace, and compare
    Demo(DemoOptions),
    /// Run scenarios and judge their claims, in the simulator or with real packets (needs root)
    Run(run::RunOptions),
    /// Measure the emulated link itself; fails when it is out of tolerance
    Calibrate(calibrate::CalibrateOptions),
    /// Encode what players play, with tables of its quality: DASH, and streams for RTSP
    Media(media::MediaOptions),
    /// Draw the frames on the players' screens at other instants than `run` did
    Frames(FramesOptions),
    /// Write a training set for the Rules Learner: every algorithm on many paths in the simulator
    Dataset(DatasetOptions),
    /// List the scenarios, one a line
    List(scenarios::ListOptions),
    /// Check scenario files without running them
    Check(scenarios::CheckOptions),
    /// Draw results and claims as one self-contained page
    Report(ReportOptions),
    /// Write the claims of several results as one page of Markdown, with a column for each
    Claims(ClaimsOptions),
    /// Archive results in the repository: page, figures of each flow, and provenance
    Archive(ArchiveOptions),
    /// Remove namespaces, processes and files that a crashed run left
    Clean,
}

/// The command line.
#[must_use]
pub fn command() -> Command {
    LabCli::command()
}

/// What the program does, from its command line to its exit code.
pub fn main() -> ExitCode {
    match execute(LabCli::parse().command) {
        Ok(code) => code,
        Err(error) if error.is::<interrupt::Interrupted>() => {
            say("interrupted; temporary files and namespaces are removed");
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

fn execute(command: LabCommand) -> Result<ExitCode> {
    interrupt::install()?;
    match command {
        LabCommand::Demo(options) => demo::run(&options).map(|()| ExitCode::SUCCESS),
        LabCommand::Run(options) => run::run(&options),
        LabCommand::Calibrate(options) => calibrate::calibrate(&options),
        LabCommand::Media(options) => media::run(&options),
        LabCommand::Frames(options) => frames::run(&options).map(|()| ExitCode::SUCCESS),
        LabCommand::Dataset(options) => dataset::run(&options).map(|()| ExitCode::SUCCESS),
        LabCommand::List(options) => scenarios::list(&options),
        LabCommand::Check(options) => scenarios::check(&options),
        LabCommand::Report(options) => report::run(&options).map(|()| ExitCode::SUCCESS),
        LabCommand::Claims(options) => claims_page::run(&options).map(|()| ExitCode::SUCCESS),
        LabCommand::Archive(options) => archive::run(&options).map(|()| ExitCode::SUCCESS),
        LabCommand::Clean => {
            let removed = clean::clean()?;
            for name in &removed {
                output::line(format_args!("removed {name}"))?;
            }
            if removed.is_empty() {
                output::line("nothing was left")?;
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}
