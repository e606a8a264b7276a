//! Micro Congestion Control (MCC): selects the congestion controller of a connection while the connection runs.
//!
//! After *Micro Congestion Control: Every Flow Deserves a Second Chance* (Chen and Ren). A [`Selector`] runs
//! beside each worker. The worker's agent sends it a [`ConnectionRecord`] after acknowledgements through one [`queue`].
//! [`SwitchRequest`]s come back through a second queue, and the worker applies them to its connections. The
//! [`rules`], a function in Lua, choose the algorithm.
//!
//! The data path never blocks: records that do not fit into a full queue are dropped and counted.

mod config;
mod connection;
mod episode;
pub mod queue;
mod record;
mod rule_input;
pub mod rules;
mod selector;
pub mod telemetry;
pub mod thread;
mod window;

pub use config::{MccConfigError, RulesText, resolve};
pub use episode::Episode;
pub use millrace_config::{Class, Mcc as Config};
pub use record::{ConnectionRecord, Nanos, PathUpdate, SwitchRequest};
pub use rule_input::{Player, RuleInput};
pub use selector::{Explained, Selector, SelectorCounts, SelectorSettings};
