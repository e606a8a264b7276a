//! `millrace-bench pace`: how evenly packets leave at a rate that is set.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};
use serde_json::{Map, Value, json};

use crate::arena::{Arena, SERVER};
use crate::machine::Machine;
use crate::measure::median;
use crate::options::Options;
use crate::origin::Origin;
use crate::pacing::{self, PaceRun};
use crate::report;

/// `millrace-bench pace`
#[derive(Debug, Args)]
pub struct Pace {
    #[command(flatten)]
    common: Options,
    /// Rates at which pacing is measured, in Mbit/s
    #[arg(long, value_delimiter = ',', default_values_t = [10, 100, 500])]
    pace_mbps: Vec<u32>,
    /// Where the results go
    #[arg(long, default_value = "target/bench/pace.json")]
    output: PathBuf,
}

/// Runs it, prints the tables and writes the file.
///
/// # Errors
/// Whatever made a run impossible.
pub fn run(options: &Pace) -> Result<()> {
    let machine = Machine::describe();
    let arena = Arena::build()?;
    let origin = Origin::start(&arena.server, SERVER)?;
    let paced = paced(options, &arena, &origin)?;
    println!("{}", pacing_table(&paced, options));
    let mut results = Map::new();
    results.insert("machine".to_owned(), serde_json::to_value(machine)?);
    results.insert("options".to_owned(), serde_json::to_value(&options.common)?);
    results.insert("pacing".to_owned(), json!(paced));
    report::write(&options.output, &Value::Object(results))
}

fn paced(options: &Pace, arena: &Arena, origin: &Origin) -> Result<Vec<PaceRun>> {
    let settings = options.common.settings();
    let times = [options.common.warmup(), options.common.duration().min(Duration::from_secs(5))];
    let mut results = Vec::new();
    for round in 1..=options.common.rounds as usize {
        for rate in &options.pace_mbps {
            let one = pacing::measure(round, arena, origin, &settings, f64::from(*rate), times)?;
            eprintln!(
                "round {round}, paced at {rate} Mbit/s: {:.1}, bursts p99 {:.0} us",
                one.pacing.came_mbps, one.pacing.burst_us.p99
            );
            results.push(one);
        }
    }
    Ok(results)
}

fn pacing_table(paced: &[PaceRun], options: &Pace) -> String {
    let mut table = Table::new();
    table.load_preset(ASCII_MARKDOWN);
    table.set_header([
        "asked Mbit/s",
        "rate error",
        "burst p50 us",
        "p99 us",
        "max us",
        "in 1 ms, p99",
        "max",
        "gap error us, p99",
        "sender CPU",
    ]);
    for rate in &options.pace_mbps {
        let of = |value: fn(&PaceRun) -> f64| {
            let runs = paced.iter().filter(|p| p.pacing.asked_mbps == f64::from(*rate));
            median(runs.map(value)).unwrap_or(f64::NAN)
        };
        table.add_row([
            format!("{rate}"),
            format!("{:+.1} %", of(|p| p.pacing.rate_error) * 100.0),
            format!("{:.0}", of(|p| p.pacing.burst_us.p50)),
            format!("{:.0}", of(|p| p.pacing.burst_us.p99)),
            format!("{:.0}", of(|p| p.pacing.burst_us.max)),
            format!("{:.2}", of(|p| p.pacing.per_ms.p99)),
            format!("{:.2}", of(|p| p.pacing.per_ms.max)),
            format!("{:.0}", of(|p| p.pacing.gap_error_us.p99)),
            format!("{:.0} %", of(|p| p.sender_cpu) * 100.0),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}
