//! Tables for people, JSON for programs.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};
use serde_json::{Map, Value, json};

use crate::idle::Idle;
use crate::measure::{RunMeasurement, median};
use crate::options::Options;
use crate::variant::BenchVariant;

/// The numbers of flows that are measured.
pub const FLOW_COUNTS: [usize; 2] = [1, 8];

/// Median figures of the runs of one variant with one number of flows.
struct Medians {
    gbps: f64,
    cpu_s_per_gb: f64,
    fairness: f64,
    /// Smallest and largest.
    gbps_range: [f64; 2],
    /// Runs that count.
    runs: usize,
    /// Whether those were left alone.
    quiet: bool,
    /// Runs that were not.
    disturbed: usize,
}

impl Medians {
    fn of(samples: &[RunMeasurement], variant: BenchVariant, flows: usize) -> Option<Self> {
        let all =
            || samples.iter().filter(|sample| sample.variant == variant && sample.flows == flows);
        let disturbed = all().filter(|sample| !sample.quiet).count();
        let mut runs: Vec<&RunMeasurement> = all().filter(|sample| sample.quiet).collect();
        // Disturbed runs measure their neighbours too: they only count where there is nothing else.
        let quiet = !runs.is_empty();
        if !quiet {
            runs = all().collect();
        }
        let gbps = || runs.iter().map(|sample| sample.gbps);
        Some(Self {
            gbps: median(gbps())?,
            cpu_s_per_gb: median(runs.iter().map(|sample| sample.cpu_s_per_gb))?,
            fairness: median(runs.iter().map(|sample| sample.fairness))?,
            gbps_range: [
                gbps().fold(f64::INFINITY, f64::min),
                gbps().fold(f64::NEG_INFINITY, f64::max),
            ],
            runs: runs.len(),
            quiet,
            disturbed,
        })
    }

    fn to_json(&self) -> Value {
        json!({
            "gbps": rounded(self.gbps),
            "cpu_s_per_gb": rounded(self.cpu_s_per_gb),
            "fairness": rounded(self.fairness),
            "gbps_min": rounded(self.gbps_range[0]),
            "gbps_max": rounded(self.gbps_range[1]),
            "runs": self.runs,
            "quiet": self.quiet,
            "disturbed_runs": self.disturbed,
        })
    }
}

/// A variant's medians: those of one flow, and both again by name.
pub fn of_variant(samples: &[RunMeasurement], variant: BenchVariant) -> Value {
    let mut result = Map::new();
    if let Some(one) = Medians::of(samples, variant, 1) {
        result.insert("gbps".to_owned(), json!(rounded(one.gbps)));
        result.insert("cpu_s_per_gb".to_owned(), json!(rounded(one.cpu_s_per_gb)));
        result.insert("one_flow".to_owned(), one.to_json());
    }
    if let Some(eight) = Medians::of(samples, variant, 8) {
        result.insert("eight_flows".to_owned(), eight.to_json());
    }
    Value::Object(result)
}

/// All medians, and their ratio to the first variant's.
pub fn table(samples: &[RunMeasurement], variants: &[BenchVariant]) -> String {
    let mut table = Table::new();
    table.load_preset(ASCII_MARKDOWN);
    table.set_header([
        "variant", "flows", "Gbit/s", "min-max", "ratio", "CPU-s/GB", "ratio", "fairness", "runs",
    ]);
    let mut all_quiet = true;
    for flows in FLOW_COUNTS {
        let base = variants.first().and_then(|first| Medians::of(samples, *first, flows));
        for variant in variants {
            let Some(medians) = Medians::of(samples, *variant, flows) else { continue };
            let ratio = |value: f64, of: fn(&Medians) -> f64| match &base {
                Some(base) => format!("{:.2}", value / of(base)),
                None => String::new(),
            };
            all_quiet &= medians.quiet;
            let mark = if medians.quiet { "" } else { " disturbed" };
            table.add_row([
                variant.name().to_owned(),
                flows.to_string(),
                format!("{:.2}", medians.gbps),
                format!("{:.2}-{:.2}", medians.gbps_range[0], medians.gbps_range[1]),
                ratio(medians.gbps, |base| base.gbps),
                format!("{:.2}", medians.cpu_s_per_gb),
                ratio(medians.cpu_s_per_gb, |base| base.cpu_s_per_gb),
                format!("{:.3}", medians.fairness),
                format!("{}{mark}", medians.runs),
            ]);
        }
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let note = if all_quiet {
        ""
    } else {
        "\nDisturbed: there was no run during which nothing else used more than 5 % of the machine."
    };
    format!("{table}{note}")
}

/// A line for a finished run.
pub fn progress(sample: &RunMeasurement, left: usize, options: &Options) -> String {
    let seconds_left = left as u64 * (options.warmup_s + options.seconds + 1);
    format!(
        "round {} {:12} {} flow(s): {:6.2} Gbit/s {:5.2} CPU-s/GB{}   ({left} runs, about {} s left)",
        sample.round,
        sample.variant.name(),
        sample.flows,
        sample.gbps,
        sample.cpu_s_per_gb,
        if sample.quiet {
            String::new()
        } else {
            format!(", disturbed: others {:.0} %", (sample.others + sample.steal) * 100.0)
        },
        seconds_left,
    )
}

/// A line for the memory of idle flows.
pub fn idle_line(idle: &Idle) -> String {
    let kib = |bytes: f64| bytes / 1024.0;
    format!(
        "idle flow ({} flows): client {:.1} KiB, server {:.1} KiB; after 256 KiB each: client \
         {:.1} KiB, server {:.1} KiB",
        idle.flows,
        kib(idle.opened.client),
        kib(idle.opened.server),
        kib(idle.after_transfer.client),
        kib(idle.after_transfer.server),
    )
}

/// What the data path must reach with one flow, and what it is to reach, beside what it did.
pub fn goals(results: &Map<String, Value>) -> Option<String> {
    let of = |variant: &str, key: &str| results.get(variant)?.get(key)?.as_f64();
    let (gbps, cpu) = (of("millrace", "gbps")?, of("millrace", "cpu_s_per_gb")?);
    let said = |met: bool| if met { "met" } else { "MISSED" };
    let mut lines = vec![
        format!("at least 3 Gbit/s: {}; aim 5.5: {}", said(gbps >= 3.0), said(gbps >= 5.5)),
        format!("at most 4.5 CPU-s/GB: {}; aim 2.8: {}", said(cpu <= 4.5), said(cpu <= 2.8)),
    ];
    let idle = of("idle_flow_bytes", "client").zip(of("idle_flow_bytes", "server"));
    if let Some((client, server)) = idle {
        let met = client.max(server) < 65_536.0;
        lines.push(format!("less than 64 KiB for an idle flow at each end: {}", said(met)));
    }
    Some(lines.join("\n"))
}

/// Writes `results` to `path`, whose directory is made.
///
/// # Errors
/// When it can't be written.
pub fn write(path: &Path, results: &Value) -> Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    }
    let text = serde_json::to_string_pretty(results)? + "\n";
    fs::write(path, text).with_context(|| path.display().to_string())?;
    println!("written: {}", path.display());
    Ok(())
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
