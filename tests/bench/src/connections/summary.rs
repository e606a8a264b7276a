//! Medians of the sweep's runs, as tables.

use std::collections::BTreeMap;

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;

use super::footnotes::Footnotes;
use super::plan::{SweepLoad, SweepPoint};
use super::record::{CounterReading, SweepFigures, SweepRun};
use crate::measure::median;

/// A median with its range.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MedianRange {
    /// The median.
    pub median: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest one.
    pub max: f64,
    /// Number of values.
    pub count: usize,
}

impl MedianRange {
    /// Of these values; `None` of none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.into_iter().collect();
        Some(Self {
            median: median(values.iter().copied())?,
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            count: values.len(),
        })
    }

    /// With so many digits after the point, and the range where there are several values.
    fn shown(&self, digits: usize) -> String {
        let Self { median, min, max, count } = *self;
        match count {
            1 => format!("{median:.digits$}"),
            _ => format!("{median:.digits$} ({min:.digits$}-{max:.digits$})"),
        }
    }
}

/// Which runs a row's figures are from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RowState {
    /// Complete ones on a quiet machine.
    Valid,
    /// Complete ones, all of them invalid.
    Invalid,
    /// There is no run in which all connections came up.
    Incomplete,
    /// There is no run with figures.
    Failed,
}

/// One row: the runs of one point.
#[derive(Debug, Serialize)]
pub struct SummaryRow<'a> {
    /// What ran.
    #[serde(flatten)]
    pub point: &'a SweepPoint,
    /// Which runs count.
    pub state: RowState,
    /// How many of them.
    pub counted_runs: usize,
    /// All that there are.
    pub all_runs: usize,
    /// Of those, the ones in which connections were missing or ended.
    pub incomplete_runs: usize,
    /// Payload.
    pub gbps: Option<MedianRange>,
    /// Cost.
    pub cpu_s_per_gb: Option<MedianRange>,
    /// What a reader has to know, of all runs.
    pub remarks: Vec<String>,
    #[serde(skip)]
    counted: Vec<&'a SweepFigures>,
}

/// A row for each point, in the order of loads, numbers and ways.
pub fn rows(runs: &[SweepRun]) -> Vec<SummaryRow<'_>> {
    let mut points: BTreeMap<&SweepPoint, Vec<&SweepRun>> = BTreeMap::new();
    for run in runs {
        points.entry(&run.point).or_default().push(run);
    }
    points.into_iter().map(|(point, runs)| row(point, &runs)).collect()
}

fn row<'a>(point: &'a SweepPoint, runs: &[&'a SweepRun]) -> SummaryRow<'a> {
    let select = |wanted: fn(&SweepRun) -> bool| -> Vec<&'a SweepFigures> {
        let wanted = runs.iter().filter(|run| wanted(run));
        wanted.filter_map(|run| run.figures.as_ref()).collect()
    };
    // Runs with missing connections, and those that measure their neighbours too, only count where there is no other.
    let choices: [(RowState, fn(&SweepRun) -> bool); 3] = [
        (RowState::Valid, SweepRun::is_valid),
        (RowState::Invalid, SweepRun::is_complete),
        (RowState::Incomplete, |_| true),
    ];
    let mut chosen = choices.into_iter().map(|(state, wanted)| (state, select(wanted)));
    let (state, counted) =
        chosen.find(|(_, it)| !it.is_empty()).unwrap_or((RowState::Failed, Vec::new()));
    let is_incomplete = |run: &&&SweepRun| !run.is_complete();
    let range = |figure: fn(&SweepFigures) -> f64| {
        MedianRange::of(counted.iter().map(|figures| figure(figures)))
    };
    SummaryRow {
        point,
        state,
        counted_runs: counted.len(),
        all_runs: runs.len(),
        incomplete_runs: runs.iter().filter(is_incomplete).count(),
        gbps: range(|it| it.gbps),
        cpu_s_per_gb: range(|it| it.cpu_s_per_gb),
        remarks: runs
            .iter()
            .flat_map(|run| run.remarks().into_iter().map(|it| format!("run {}: {it}", run.round)))
            .collect(),
        counted,
    }
}

/// Rates and costs, then counters, memory and pacing, then what a reader has to know of single runs.
pub fn tables(runs: &[SweepRun]) -> String {
    let rows = rows(runs);
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
        "load",
        "connections",
        "way",
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
        let range = |figure: &dyn Fn(&SweepFigures) -> Option<f64>, digits: usize| {
            let values = row.counted.iter().filter_map(|figures| figure(figures));
            MedianRange::of(values).map_or_else(|| "-".to_owned(), |it| it.shown(digits))
        };
        let part = |role: &str| {
            let middle = |figure: fn(&crate::cpu::Seconds) -> f64| {
                let parts = row.counted.iter().filter_map(|it| it.parts_s_per_gb.get(role));
                median(parts.map(figure))
            };
            match (middle(|it| it.user_s), middle(|it| it.system_s)) {
                (Some(user), Some(system)) => format!("{user:.2}+{system:.2}"),
                _ => "-".to_owned(),
            }
        };
        let late = match row.point.load {
            SweepLoad::Bulk => "-".to_owned(),
            SweepLoad::Video => {
                let segments = || row.counted.iter().filter_map(|it| it.segments);
                let late: usize = segments().map(|it| it.late).sum();
                format!("{late} of {}", segments().map(|it| it.segments).sum::<usize>())
            }
        };
        table.add_row([
            row.point.load.to_string(),
            row.point.connections.to_string(),
            row.point.way.to_string(),
            range(&|it| Some(it.gbps), 2),
            range(&|it| Some(it.cpu_s_per_gb), 2),
            part("client"),
            part("server"),
            part("proxy"),
            part("load"),
            range(&|it| Some(it.busy_cores()), 2),
            late,
            range(&|it| it.segments.map(|it| it.p99_ms), 0),
            range(&|it| Some(it.fairness), 3),
            counted_runs(row),
        ]);
    }
    table
}

/// How many runs the figures are from, and in capitals that they are not what they seem.
fn counted_runs(row: &SummaryRow<'_>) -> String {
    let mark = match row.state {
        RowState::Valid => "",
        RowState::Invalid => " INVALID",
        RowState::Incomplete => " INCOMPLETE",
        RowState::Failed => " FAILED",
    };
    let incomplete = match row.incomplete_runs {
        0 => String::new(),
        count => format!(", {count} incomplete"),
    };
    format!("{} of {}{mark}{incomplete}", row.counted_runs, row.all_runs)
}

fn counters(rows: &[SummaryRow<'_>], notes: &mut Footnotes) -> Table {
    let mut table = table(&[
        "load",
        "connections",
        "way",
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
        let mut counter = |reading: &dyn Fn(&SweepFigures) -> Option<&CounterReading>,
                           digits: usize,
                           factor: f64| {
            let readings: Vec<&CounterReading> =
                row.counted.iter().filter_map(|figures| reading(figures)).collect();
            let values = readings.iter().filter_map(|it| it.value).map(|it| it * factor);
            let shown = MedianRange::of(values).map(|it| it.shown(digits));
            let mut sources: Vec<&str> = readings
                .iter()
                .filter(|it| shown.is_none() || it.value.is_some())
                .map(|it| it.source.as_str())
                .collect();
            sources.sort_unstable();
            sources.dedup();
            let marks: String = sources.iter().map(|source| notes.mark(source)).collect();
            match shown {
                Some(shown) => format!("{shown} {marks}"),
                None if marks.is_empty() => "-".to_owned(),
                None => marks,
            }
        };
        let memory = |role: &str| {
            let values = row.counted.iter().filter_map(|it| it.memory.get(role));
            let kib = MedianRange::of(values.map(|it| it.loaded_bytes / 1024.0));
            kib.map_or_else(|| "-".to_owned(), |it| it.shown(0))
        };
        table.add_row([
            row.point.load.to_string(),
            row.point.connections.to_string(),
            row.point.way.to_string(),
            counter(&|it| Some(&it.packets_per_gb), 0, 1.0),
            counter(&|it| Some(&it.packets_per_message), 1, 1.0),
            counter(&|it| it.extras.calls_per_gb.get("client"), 0, 1.0),
            counter(&|it| it.extras.calls_per_gb.get("server"), 0, 1.0),
            counter(&|it| it.extras.calls_per_gb.get("proxy"), 0, 1.0),
            counter(&|it| Some(&it.acks_per_data_packet), 3, 1.0),
            counter(&|it| Some(&it.extras.pacing_p99_us), 0, 1.0),
            counter(&|it| Some(&it.extras.pacing_rate_error), 1, 100.0),
            memory("client"),
            memory("server"),
            memory("proxy"),
        ]);
    }
    table
}

fn table(columns: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(ASCII_MARKDOWN);
    table.set_header(columns.to_vec());
    for column in table.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::plan::SweepWay;
    use crate::connections::record::samples;

    fn only(runs: &[SweepRun]) -> SummaryRow<'_> {
        let mut rows = rows(runs);
        assert_eq!(rows.len(), 1);
        rows.remove(0)
    }

    #[test]
    fn median_has_its_range_where_there_are_several_values() {
        let range = MedianRange::of([3.0, 1.0, 2.0]).unwrap();
        assert_eq!(range.shown(1), "2.0 (1.0-3.0)");
        assert_eq!(MedianRange::of([2.5]).unwrap().shown(2), "2.50");
        assert_eq!(MedianRange::of([]), None);
    }

    #[test]
    fn incomplete_and_invalid_runs_are_left_out_of_medians_and_named() {
        let way = || SweepWay::PerFlow;
        let mut runs = vec![
            samples::run(1, way(), 3.0, 5.0),
            samples::run(2, way(), 1.0, 16.0),
            samples::run(3, way(), 0.4, 50.0),
        ];
        runs[1].up = 7;
        runs[2].invalid.push("others used 40 % of the machine".to_owned());
        let row = only(&runs);
        assert_eq!((row.state, row.counted_runs, row.all_runs), (RowState::Valid, 1, 3));
        assert_eq!(row.gbps.unwrap().median, 3.0);
        assert_eq!(counted_runs(&row), "1 of 3, 1 incomplete");
        assert_eq!(row.remarks[0], "run 2: INCOMPLETE: 7 of 8 came up");
        assert!(row.remarks[1].starts_with("run 3: INVALID: others used 40 %"));
    }

    #[test]
    fn row_without_a_complete_run_says_so() {
        let mut run = samples::run(1, SweepWay::PerFlow, 1.0, 16.0);
        run.up = 5;
        let runs = [run];
        assert_eq!(counted_runs(&only(&runs)), "1 of 1 INCOMPLETE, 1 incomplete");
        let mut run = samples::run(1, SweepWay::PerFlow, 1.0, 16.0);
        run.figures = None;
        run.failure = Some("server ended".to_owned());
        let runs = [run];
        assert_eq!(only(&runs).state, RowState::Failed);
        assert!(tables(&runs).contains("run 1: FAILED: server ended"));
    }

    #[test]
    fn missing_counter_has_its_reason_below_the_table() {
        let runs = [samples::run(1, SweepWay::PerFlow, 1.5, 9.25)];
        let text = tables(&runs);
        assert!(text.contains("9.25") && text.contains("700000 [1]"), "{text}");
        assert!(text.contains("[1] metrics\n[2] not in this sample\n"), "{text}");
    }
}
