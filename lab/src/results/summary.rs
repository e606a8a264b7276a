//! `summary.json`: the statistics of every cell, and the verdicts on the claims.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::claims::Judged;
use super::figures::{CellRuns, Figures, FlowFigures, RunFigures};
use super::stamp::RunStamp;
use super::statistic::Statistics;
use crate::report::Plot;
use crate::scenario::{At, Driver, ScenarioFile, ScenarioHead};

/// Statistics by the name of the figure.
pub type FigureStatistics = BTreeMap<&'static str, Statistics>;

/// `summary.json`.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// 1.
    pub format: u32,
    /// The driver that ran it: `simulator` or `emulator`.
    pub driver: &'static str,
    /// The head of the scenario file.
    pub scenario: ScenarioHead,
    /// How `--quick` has shortened the runs; such a summary proves nothing.
    pub quick: Option<String>,
    /// The swept keys.
    pub keys: Vec<String>,
    /// Their values, in the order of the file.
    pub values: BTreeMap<String, Vec<Value>>,
    /// How many runs there were.
    pub counts: RunCounts,
    /// Number of runs reused from earlier results, by the commit that did them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub reused: BTreeMap<String, usize>,
    /// Why runs are missing, with their number.
    pub problems: Vec<RunProblem>,
    /// The claims with their verdicts.
    pub claims: Vec<Judged>,
    /// How to draw it.
    pub plots: Vec<Plot>,
    /// Every combination of the swept values.
    pub cells: Vec<CellSummary>,
    /// The invalid runs, which are not in `cells`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub invalid_runs: Vec<InvalidRun>,
    /// Program, machine and time.
    pub stamp: RunStamp,
}

/// How many runs there were.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RunCounts {
    /// In all.
    pub runs: usize,
    /// To the end.
    pub done: usize,
    /// Something that it needs is missing.
    pub skipped: usize,
    /// Because something is wrong.
    pub failed: usize,
    /// Done, but invalid.
    pub invalid: usize,
    /// Discarded attempts at runs; not counted in `runs`.
    pub discarded: usize,
}

/// Why runs are missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunProblem {
    /// The reason.
    pub reason: String,
    /// Of how many runs.
    pub runs: usize,
}

/// One combination of the swept values.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CellSummary {
    /// Its number.
    pub cell: usize,
    /// The values.
    pub at: At,
    /// Directories of the valid runs.
    pub runs: Vec<String>,
    /// Of the link.
    pub link: FigureStatistics,
    /// Of the flows with the same settings: their mean in each run.
    pub groups: Vec<GroupSummary>,
    /// Of each flow.
    pub flows: Vec<FlowSummary>,
}

/// An invalid run: its figures count nowhere else.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct InvalidRun {
    /// As a cell with this run alone.
    #[serde(flatten)]
    pub cell: CellSummary,
    /// Why it is invalid.
    pub because: Vec<String>,
}

/// Flows with the same settings.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GroupSummary {
    /// Number of the `[[flow]]`.
    pub group: usize,
    /// Algorithm.
    pub cc: String,
    /// Name in plots.
    pub label: String,
    /// How many flows.
    pub count: usize,
    /// Statistics over the repeats.
    pub figures: FigureStatistics,
}

/// One flow.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FlowSummary {
    /// Its number.
    pub flow: usize,
    /// Number of its `[[flow]]`.
    pub group: usize,
    /// Algorithm.
    pub cc: String,
    /// Name in plots.
    pub label: String,
    /// Statistics over the repeats.
    pub figures: FigureStatistics,
}

impl CellSummary {
    /// Of these runs.
    #[must_use]
    pub fn of(cell: usize, at: &At, runs: &CellRuns) -> Self {
        let all = || runs.iter().map(|(_, figures)| figures);
        let first = all().next();
        let flows = first.map_or(&[][..], |figures| &figures.flows);
        let flow = |(index, flow): (usize, &FlowFigures)| FlowSummary {
            flow: flow.flow,
            group: flow.group,
            cc: flow.cc.clone(),
            label: flow.label.clone(),
            figures: table(all().map(|run| run.flows[index].figures.clone())),
        };
        let mut groups: Vec<GroupSummary> = Vec::new();
        for flow in flows.iter().filter(|flow| flow.flow == first_of(flows, flow.group)) {
            groups.push(GroupSummary {
                group: flow.group,
                cc: flow.cc.clone(),
                label: flow.label.clone(),
                count: flows.iter().filter(|other| other.group == flow.group).count(),
                figures: table(all().map(|run| mean_of_group(run, flow.group))),
            });
        }
        Self {
            cell,
            at: at.clone(),
            runs: runs.iter().map(|(name, _)| name.clone()).collect(),
            link: table(all().map(|run| run.link.clone())),
            flows: flows.iter().enumerate().map(flow).collect(),
            groups,
        }
    }
}

fn first_of(flows: &[FlowFigures], group: usize) -> usize {
    flows.iter().find(|flow| flow.group == group).map_or(0, |flow| flow.flow)
}

/// Mean of each figure over the flows of a group that have it.
fn mean_of_group(run: &RunFigures, group: usize) -> Figures {
    let mut sums: BTreeMap<&'static str, (f64, usize)> = BTreeMap::new();
    for flow in run.flows.iter().filter(|flow| flow.group == group) {
        for (name, value) in &flow.figures.0 {
            let sum = sums.entry(name).or_default();
            *sum = (sum.0 + value, sum.1 + 1);
        }
    }
    Figures(sums.into_iter().map(|(name, (sum, n))| (name, sum / n as f64)).collect())
}

fn table(runs: impl Iterator<Item = Figures>) -> FigureStatistics {
    let mut values: BTreeMap<&'static str, Vec<f64>> = BTreeMap::new();
    for Figures(figures) in runs {
        for (name, value) in figures {
            values.entry(name).or_default().push(value);
        }
    }
    values.into_iter().filter_map(|(name, values)| Some((name, Statistics::of(values)?))).collect()
}

impl Summary {
    /// Of a file's runs: for each cell those that are valid.
    #[must_use]
    pub fn of(
        file: &ScenarioFile,
        runs: &[CellRuns],
        counts: RunCounts,
        problems: Vec<RunProblem>,
    ) -> Self {
        let cells = file.cells.iter().zip(runs).enumerate();
        Self {
            format: 1,
            driver: Driver::Simulator.name(),
            scenario: file.head.clone(),
            quick: None,
            keys: file.sweep.iter().map(|(key, _)| key.clone()).collect(),
            values: file.sweep.iter().cloned().collect(),
            counts,
            reused: BTreeMap::new(),
            problems,
            claims: super::claims::judge(file, runs),
            plots: file.plots.clone(),
            cells: cells
                .map(|(index, (cell, runs))| CellSummary::of(index, &cell.at, runs))
                .collect(),
            invalid_runs: Vec::new(),
            stamp: RunStamp::here(),
        }
    }
}
