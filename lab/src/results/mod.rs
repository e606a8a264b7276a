//! The result files of runs and scenarios. `docs/research/results.md` describes them.

mod bootstrap;
mod claim_reason;
pub mod claims;
mod figures;
pub mod meanings;
pub mod metric;
pub mod series;
mod stamp;
mod statistic;
mod summary;
mod verdict;
mod write;

pub use figures::{CellRuns, Figures, FlowFigures, RunFigures};
pub use stamp::RunStamp;
pub use statistic::Statistics;
pub use summary::{
    CellSummary, FlowSummary, GroupSummary, InvalidRun, RunCounts, RunProblem, Summary,
};
pub use write::{ResultsDirectory, RunFile, RunStatus, entries, read_json, write_json, write_run};
