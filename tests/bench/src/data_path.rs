//! `millrace-bench data-path`: the tunnel beside kernel TCP and nginx.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use millrace_lab::process::require;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::{Map, Value, json};

use crate::arena::{Arena, SERVER};
use crate::idle;
use crate::machine::Machine;
use crate::measure::{self, Plan, RunMeasurement};
use crate::options::Options;
use crate::origin::Origin;
use crate::report::{self, FLOW_COUNTS};
use crate::variant::BenchVariant;

/// `millrace-bench data-path`
#[derive(Debug, Args)]
pub struct DataPath {
    #[command(flatten)]
    common: Options,
    /// What to compare
    #[arg(long, value_enum, value_delimiter = ',',
          default_values = ["millrace", "direct", "nginx-stream"])]
    variants: Vec<BenchVariant>,
    /// Idle flows to measure memory with; 0 leaves that out
    #[arg(long, default_value_t = 2000)]
    idle_flows: usize,
    /// Where the results go
    #[arg(long, default_value = "target/bench/data-path.json")]
    output: PathBuf,
}

/// Runs it, prints the table and writes the file.
///
/// # Errors
/// Whatever made a run impossible; results so far are not written then.
pub fn run(options: &DataPath) -> Result<()> {
    let mut programs = vec![("ip", "iproute2"), ("sysctl", "procps")];
    if options.variants.contains(&BenchVariant::NginxStream) {
        programs.push(("nginx", "nginx libnginx-mod-stream"));
    }
    require(&programs)?;
    let machine = Machine::describe();
    let arena = Arena::build()?;
    let origin = Origin::start(&arena.server, SERVER)?;
    let settings = options.common.settings();
    let samples = interleaved(&options.common, &options.variants, &arena, &origin)?;

    let mut results = Map::new();
    for variant in &options.variants {
        results.insert(variant.name().to_owned(), report::of_variant(&samples, *variant));
    }
    if options.idle_flows > 0 && options.variants.contains(&BenchVariant::Millrace) {
        allow_descriptors(options.idle_flows * 3)?;
        let idle = idle::measure(options.idle_flows, &arena, &origin, &settings)?;
        println!("{}", report::idle_line(&idle));
        results.insert("idle_flow_bytes".to_owned(), serde_json::to_value(idle)?);
    }
    results.insert("machine".to_owned(), serde_json::to_value(machine)?);
    results.insert("options".to_owned(), serde_json::to_value(&options.common)?);
    results.insert("runs".to_owned(), json!(samples));
    println!("{}", report::table(&samples, &options.variants));
    if let Some(goals) = report::goals(&results) {
        println!("{goals}");
    }
    report::write(&options.output, &Value::Object(results))?;
    Ok(())
}

/// Every variant with every number of flows, round by round, so that whatever changes with time
/// changes for all of them. A disturbed run
/// is repeated, and kept.
///
/// # Errors
/// When a run fails.
pub fn interleaved(
    options: &Options,
    variants: &[BenchVariant],
    arena: &Arena,
    origin: &Origin,
) -> Result<Vec<RunMeasurement>> {
    let settings = options.settings();
    let mut samples = Vec::new();
    let mut left = options.rounds as usize * variants.len() * FLOW_COUNTS.len();
    for round in 1..=options.rounds as usize {
        for flows in FLOW_COUNTS {
            // Each round starts with another one: no variant always runs after the same neighbour.
            for variant in variants.iter().cycle().skip(round - 1).take(variants.len()) {
                let plan = Plan {
                    variant: *variant,
                    flows,
                    warmup: options.warmup(),
                    duration: options.duration(),
                    quiet_timeout: options.quiet_timeout(),
                };
                left -= 1;
                for _ in 0..=options.retries {
                    let sample = measure::run(&plan, round, arena, origin, &settings)?;
                    eprintln!("{}", report::progress(&sample, left, options));
                    let quiet = sample.quiet;
                    samples.push(sample);
                    if quiet {
                        break;
                    }
                }
            }
        }
    }
    Ok(samples)
}

/// Raises the soft limit of open files, which the programs started from here inherit.
///
/// # Errors
/// When the hard limit is lower, and can't be raised.
pub fn allow_descriptors(wanted: usize) -> Result<()> {
    let wanted = wanted as u64 + 1024;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < wanted {
        // The hard limit too, as far as the account may.
        setrlimit(Resource::RLIMIT_NOFILE, wanted, hard.max(wanted)).with_context(|| {
            format!("idle flows take {wanted} descriptors, but {hard} are allowed: `ulimit -Hn {wanted}`")
        })?;
    }
    Ok(())
}
