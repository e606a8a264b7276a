//! The tables of a sweep.

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};

use super::footnotes::Footnotes;
use super::plan::SweepLoad;
use super::record::{CounterReading, SweepFigures, SweepRun};
use super::summary::{self, SummaryRow};
use crate::cpu::Seconds;
use crate::measure::median;
use crate::median_range::MedianRange;

/// Stands where a run has no such figure.
const NONE: &str = "-";

/// Rates and costs, then counters, memory and pacing, then what a reader has to know of single runs.
pub fn tables(runs: &[SweepRun]) -> String {
    let rows = summary::rows(runs);
    let mut notes = Footnotes::default();
    let mut text = format!("{}\n\n{}\n", costs(&rows), counters(&rows, &mut notes));
    text += &notes.text();
    for row in &rows {
        for remark in &row.remarks {
            text += &format!("{}: {remark}\n", row.point);
        }
    }
    text
}

fn costs(rows: &[SummaryRow<'_>]) -> Table {
    let mut table = table(&[
        "Gbit/s",
        "CPU-s/GB",
        "client user+kernel",
        "server user+kernel",
        "proxy user+kernel",
        "load user+kernel",
        "busy cores",
        "late segments",
        "p99 ms",
        "fairness",
        "runs",
    ]);
    for row in rows {
        let cells = [
            range(row, 2, |it| Some(it.gbps)),
            range(row, 2, |it| Some(it.cpu_s_per_gb)),
            part(row, "client"),
            part(row, "server"),
            part(row, "proxy"),
            part(row, "load"),
            range(row, 2, |it| Some(it.busy_cores())),
            late(row),
            range(row, 0, |it| it.segments.map(|it| it.p99_ms)),
            range(row, 3, |it| Some(it.fairness)),
            row.shown_runs(),
        ];
        table.add_row(point(row).into_iter().chain(cells));
    }
    table
}

fn counters(rows: &[SummaryRow<'_>], notes: &mut Footnotes) -> Table {
    let mut table = table(&[
        "packets/GB",
        "packets/message",
        "calls/GB client",
        "calls/GB server",
        "calls/GB proxy",
        "ACKs/data packet",
        "pacing p99 us",
        "rate error %",
        "KiB/connection client",
        "server",
        "proxy",
    ]);
    for row in rows {
        let cells = [
            counter(row, notes, 0, |it| Some(&it.packets.packets_per_gb)),
            counter(row, notes, 1, |it| Some(&it.packets.packets_per_message)),
            counter(row, notes, 0, |it| it.extras.calls_per_gb.get("client")),
            counter(row, notes, 0, |it| it.extras.calls_per_gb.get("server")),
            counter(row, notes, 0, |it| it.extras.calls_per_gb.get("proxy")),
            counter(row, notes, 3, |it| Some(&it.packets.acks_per_data_packet)),
            counter(row, notes, 0, |it| Some(&it.extras.pacing_p99_us)),
            percentage(row, notes, |it| Some(&it.extras.pacing_rate_error)),
            kib(row, "client"),
            kib(row, "server"),
            kib(row, "proxy"),
        ];
        table.add_row(point(row).into_iter().chain(cells));
    }
    table
}

/// A table whose rows begin with their point.
fn table(columns: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(ASCII_MARKDOWN);
    table.set_header([&["load", "connections", "way"][..], columns].concat());
    for column in table.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn point(row: &SummaryRow<'_>) -> [String; 3] {
    let point = row.point;
    [point.load.to_string(), point.connections.to_string(), point.way.to_string()]
}

fn range(
    row: &SummaryRow<'_>,
    digits: usize,
    figure: impl Fn(&SweepFigures) -> Option<f64>,
) -> String {
    let values = row.counted.iter().filter_map(|figures| figure(figures));
    MedianRange::of(values).map_or_else(|| NONE.to_owned(), |it| it.shown(digits))
}

/// CPU seconds of a role for 10^9 bytes.
fn part(row: &SummaryRow<'_>, role: &str) -> String {
    let middle = |figure: fn(&Seconds) -> f64| {
        let parts = row.counted.iter().filter_map(|it| it.parts_s_per_gb.get(role));
        median(parts.map(figure))
    };
    match (middle(|it| it.user_s), middle(|it| it.system_s)) {
        (Some(user), Some(system)) => format!("{user:.2}+{system:.2}"),
        _ => NONE.to_owned(),
    }
}

fn late(row: &SummaryRow<'_>) -> String {
    if row.point.load == SweepLoad::Bulk {
        return NONE.to_owned();
    }
    let segments = || row.counted.iter().filter_map(|it| it.segments);
    let late: usize = segments().map(|it| it.late).sum();
    format!("{late} of {}", segments().map(|it| it.segments).sum::<usize>())
}

fn kib(row: &SummaryRow<'_>, role: &str) -> String {
    range(row, 0, |it| it.memory.get(role).map(|it| it.loaded_bytes / 1024.0))
}

/// A counter with the mark of its source, or of the reason why it can't be had.
fn counter<'a>(
    row: &SummaryRow<'a>,
    notes: &mut Footnotes,
    digits: usize,
    reading: impl Fn(&'a SweepFigures) -> Option<&'a CounterReading>,
) -> String {
    let readings: Vec<&CounterReading> = row.counted.iter().copied().filter_map(reading).collect();
    let values = readings.iter().filter_map(|it| it.value);
    marked(&readings, MedianRange::of(values).map(|it| it.shown(digits)), notes)
}

/// The same of a part of 1.
fn percentage<'a>(
    row: &SummaryRow<'a>,
    notes: &mut Footnotes,
    reading: impl Fn(&'a SweepFigures) -> Option<&'a CounterReading>,
) -> String {
    let readings: Vec<&CounterReading> = row.counted.iter().copied().filter_map(reading).collect();
    let values = readings.iter().filter_map(|it| it.value).map(|it| it * 100.0);
    marked(&readings, MedianRange::of(values).map(|it| it.shown(1)), notes)
}

fn marked(readings: &[&CounterReading], shown: Option<String>, notes: &mut Footnotes) -> String {
    let counts = readings.iter().filter(|it| shown.is_none() || it.value.is_some());
    let mut sources: Vec<&str> = counts.map(|it| it.source.as_str()).collect();
    sources.sort_unstable();
    sources.dedup();
    let marks: String = sources.iter().map(|source| notes.mark(source)).collect();
    match shown {
        Some(shown) => format!("{shown} {marks}"),
        None if marks.is_empty() => NONE.to_owned(),
        None => marks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::plan::SweepWay;
    use crate::connections::record::samples;

    #[test]
    fn failed_run_has_a_row_and_its_reason_below_the_tables() {
        let mut run = samples::run(1, SweepWay::PerFlow, 1.0, 16.0);
        run.figures = None;
        run.failure = Some("server ended".to_owned());
        let text = tables(&[run]);
        assert!(text.contains("0 of 1 FAILED"), "{text}");
        assert!(text.contains("run 1: FAILED: server ended"), "{text}");
    }

    #[test]
    fn missing_counter_has_its_reason_below_the_table() {
        let runs = [samples::run(1, SweepWay::PerFlow, 1.5, 9.25)];
        let text = tables(&runs);
        assert!(text.contains("9.25") && text.contains("700000 [1]"), "{text}");
        assert!(text.contains("[1] metrics\n[2] not in this sample\n"), "{text}");
    }
}
