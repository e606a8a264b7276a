//! Medians of the sweep's runs.

use std::collections::BTreeMap;

use serde::Serialize;

use super::plan::SweepPoint;
use super::record::{SweepFigures, SweepRun};
use crate::median_range::MedianRange;

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
    /// Figures of the runs that count.
    #[serde(skip)]
    pub counted: Vec<&'a SweepFigures>,
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
    let (state, counted) = counted(runs);
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

/// The figures that count: those of runs with missing connections, or that measure their neighbours too, only where there
/// is no other.
fn counted<'a>(runs: &[&'a SweepRun]) -> (RowState, Vec<&'a SweepFigures>) {
    let select = |wanted: fn(&SweepRun) -> bool| -> Vec<&'a SweepFigures> {
        let wanted = runs.iter().filter(|run| wanted(run));
        wanted.filter_map(|run| run.figures.as_ref()).collect()
    };
    let choices = [
        (RowState::Valid, select(SweepRun::is_valid)),
        (RowState::Invalid, select(SweepRun::is_complete)),
        (RowState::Incomplete, select(|_| true)),
    ];
    let chosen = choices.into_iter().find(|(_, figures)| !figures.is_empty());
    chosen.unwrap_or((RowState::Failed, Vec::new()))
}

impl SummaryRow<'_> {
    /// How many runs the figures are from, and in capitals that they are not what they seem.
    pub fn shown_runs(&self) -> String {
        let mark = match self.state {
            RowState::Valid => "",
            RowState::Invalid => " INVALID",
            RowState::Incomplete => " INCOMPLETE",
            RowState::Failed => " FAILED",
        };
        let incomplete = match self.incomplete_runs {
            0 => String::new(),
            count => format!(", {count} incomplete"),
        };
        format!("{} of {}{mark}{incomplete}", self.counted_runs, self.all_runs)
    }
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
        assert_eq!(row.shown_runs(), "1 of 3, 1 incomplete");
        assert_eq!(row.remarks[0], "run 2: INCOMPLETE: 7 of 8 came up");
        assert!(row.remarks[1].starts_with("run 3: INVALID: others used 40 %"));
    }

    #[test]
    fn row_without_a_complete_run_says_so() {
        let mut run = samples::run(1, SweepWay::PerFlow, 1.0, 16.0);
        run.up = 5;
        let runs = [run];
        assert_eq!(only(&runs).shown_runs(), "1 of 1 INCOMPLETE, 1 incomplete");
        let mut run = samples::run(1, SweepWay::PerFlow, 1.0, 16.0);
        run.figures = None;
        run.failure = Some("server ended".to_owned());
        let runs = [run];
        assert_eq!(only(&runs).state, RowState::Failed);
        assert_eq!(only(&runs).remarks, ["run 1: FAILED: server ended"]);
    }
}
