//! `millrace-bench connections`: what a byte costs by the number of connections.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use millrace_lab::process::{output_of, require};
use serde_json::Value;

mod counters;
mod csv;
mod extras;
mod footnotes;
mod kernel_counts;
mod memory;
mod metrics;
mod options;
mod peers;
mod plan;
mod progress;
mod record;
mod run;
mod run_times;
mod segments;
mod snapshot;
mod store;
mod summary;
mod system_calls;
mod tables;
mod viewer_settings;
mod viewer_thread;
mod viewers;

pub use options::ConnectionsOptions;

use crate::arena::{Arena, SERVER};
use crate::data_path::allow_descriptors;
use crate::machine::Machine;
use crate::origin::Origin;
use peers::SweepPeers;
use plan::{SweepPoint, SweepWay};
use progress::SweepProgress;
use record::SweepRun;
use run::SweepContext;
use store::SweepStore;

/// Runs the sweep, prints the tables and writes the files.
///
/// # Errors
/// When nothing can be run, or the results can't be written; those of earlier runs are in the files then.
pub fn run(options: &ConnectionsOptions) -> Result<()> {
    require_programs(options)?;
    let peers =
        options.points.peers.as_deref().map(SweepPeers::read).transpose()?.unwrap_or_default();
    let (present, missing) = peers.present();
    for (name, reason) in &missing {
        eprintln!("peer {name} is left out: {reason}");
    }
    let settings = settings(options, &peers)?;
    let mut store = SweepStore::open(&options.output, settings, missing, options.resume)?;
    run_missing(options, &present, &peers, &mut store)?;
    println!("{}", tables::tables(store.runs()));
    println!("written: {}, and .csv", options.output.display());
    Ok(())
}

fn require_programs(options: &ConnectionsOptions) -> Result<()> {
    let mut programs = vec![("ip", "iproute2"), ("sysctl", "procps")];
    if options.points.ways.contains(&SweepWay::NginxStream) {
        programs.push(("nginx", "nginx libnginx-mod-stream"));
    }
    require(&programs)
}

/// Runs what `store` does not have.
fn run_missing(
    options: &ConnectionsOptions,
    present: &[String],
    peers: &SweepPeers,
    store: &mut SweepStore,
) -> Result<()> {
    let grid = options.grid(present);
    let passes = (1..=options.repeat as usize)
        .flat_map(|round| grid.pass(round).into_iter().map(move |point| (round, point)));
    let missing: Vec<(usize, SweepPoint)> =
        passes.filter(|(round, point)| !store.has(*round, point)).collect();
    let mut left = SweepProgress::new(options, &missing);
    eprintln!("{left} on a quiet machine");
    let largest = missing.iter().map(|(_, point)| point.connections).max().unwrap_or(1);
    // The sink's and the origin's ends, and those of nginx or of one of the programs.
    allow_descriptors(largest * 3)?;
    let arena = Arena::build()?;
    let origin = Origin::start(&arena.server, SERVER)?;
    let context = SweepContext { options, arena: &arena, origin: &origin, peers };
    for (round, point) in &missing {
        left.subtract(options.estimate_s(point));
        for _attempt in 0..=options.retries {
            let run = context.run(point, *round)?;
            eprintln!("{}   ({left} left)", line(&run));
            let is_invalid = !run.invalid.is_empty();
            store.add(run)?;
            if !is_invalid {
                break;
            }
        }
    }
    Ok(())
}

/// What has to be the same in all runs of a file.
fn settings(options: &ConnectionsOptions, peers: &SweepPeers) -> Result<Value> {
    let mut settings = serde_json::to_value(options)?;
    settings["machine"] = Value::String(Machine::describe().name());
    settings["peers"] = serde_json::to_value(peers)?;
    for program in ["millrace-server", "millrace-client"] {
        let version = version(&options.runs.programs.join(program))?;
        settings[program] = Value::String(version);
    }
    Ok(settings)
}

/// Its version and size: builds of one commit with different changes have one version.
fn version(program: &Path) -> Result<String> {
    let printed = output_of(Command::new(program).arg("--version"));
    let printed = printed.context("build the programs: make programs")?;
    let bytes = fs::metadata(program).with_context(|| program.display().to_string())?.len();
    Ok(format!("{}, {bytes} bytes", printed.trim()))
}

fn line(run: &SweepRun) -> String {
    let figures = run.figures.as_ref().map_or_else(String::new, |it| {
        let late = it.segments.map_or_else(String::new, |segments| {
            format!(", {} of {} segments late", segments.late, segments.segments)
        });
        format!(" {:6.2} Gbit/s {:6.2} CPU-s/GB{late}", it.gbps, it.cpu_s_per_gb)
    });
    let remarks: String = run.remarks().iter().map(|remark| format!("; {remark}")).collect();
    format!(
        "round {} {:30}{figures}{remarks}; {:.1} s",
        run.round,
        run.point.to_string(),
        run.took_s
    )
}
