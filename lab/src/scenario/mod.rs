//! Scenario files: what a run is made of, what varies between runs, and what is claimed of them.
//!
//! A file is TOML; `docs/research/scenarios.md` describes it. [`ScenarioFile::load`] reads it, replaces the swept
//! keys for each cell and checks every cell as a whole. [`crate::traces::Traces::check`] checks the recorded links.

mod algorithm;
mod app;
mod claim;
mod external;
mod file;
mod filter;
mod key_list;
mod keys;
mod link;
mod link_schema;
mod meanings;
mod model;
pub mod part;
mod peer;
mod programs;
mod ranges;
mod reader;
mod reason;
mod schema;
mod source;
mod spread;
mod sweep;
#[cfg(test)]
mod tests;
mod tree;
mod variant;
mod variant_settings;

pub use claim::{Against, Claim, Condition, Over, Reference, Statistic};
pub use file::{Cell, ScenarioFile};
pub use filter::{Bound, Test, Where};
pub use key_list::ScenarioKey;
pub use keys::scenario_keys;
pub use link::{Link, RandomChange, Rate, TimedLinkChange, TraceFormat, TraceReference};
pub use model::{
    Abr, App, At, Convergence, Driver, FlowChange, FlowGroup, GroupConnections, Ip, Measure,
    RepeatSpread, STREAM_MBPS, SavedParameters, Scenario, ScenarioHead, Series, Sim,
    StreamTransport, Via,
};
pub use peer::load_peers;
pub use programs::{ExternalProgram, PeerPrograms};
pub use reason::{ClaimReason, ReasonPart};
pub use tree::ScenarioError;
pub use variant::{AlgorithmPreset, AlgorithmVariant, BaselineSettings};
