//! Scenario files: what a run is made of, what varies between runs, and what is claimed of them.
//!
//! A file is TOML; `docs/research/scenarios.md` describes it. [`ScenarioFile::load`] reads it, replaces the swept
//! keys for each cell and checks every cell as a whole, so that nothing is left to go wrong later
//! but algorithms and traces that are not there.

mod claim;
mod file;
mod key_list;
mod keys;
mod meanings;
mod model;
pub mod part;
mod peer;
mod reader;
mod schema;
mod sweep;
#[cfg(test)]
mod tests;
mod tree;

pub use claim::{Against, Bound, Claim, Condition, Over, Reference, Statistic, Test, Where};
pub use file::{Cell, ScenarioFile};
pub use key_list::ScenarioKey;
pub use keys::scenario_keys;
pub use model::{
    Abr, App, At, Convergence, Driver, FlowChange, FlowGroup, GroupConnections, Ip, Link, Measure,
    PeerPrograms, RandomChange, Rate, STREAM_MBPS, Scenario, ScenarioHead, Series, Sim,
    StreamTransport, TimedLinkChange, TraceFormat, Via,
};
pub use tree::ScenarioError;
