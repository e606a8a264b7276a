//! Micro Congestion Control: which algorithm suits a connection, asked again and again while it lives.
//!
//! After *Micro Congestion Control: Every Flow Deserves a Second Chance* (Chen and Ren). Beside each worker
//! runs a [`Selector`]. The worker's agent tells it of every acknowledgement ([`Record`]) through one
//! [`pipe`]; through another come [`Order`]s back, which the worker carries out by
//! [`Driven::succeeded_by`](millrace_cc::Driven::succeeded_by). Which algorithm it is to be, [`rules`] say:
//! a function in Lua.
//!
//! The data path never waits: a pipe that is full costs records, and says how many.

mod config;
mod episode;
mod facts;
mod flow;
pub mod pipe;
mod record;
pub mod rules;
mod selector;
pub mod telemetry;
pub mod thread;
mod window;

pub use config::{ConfigError, RulesText, resolve};
pub use episode::Episode;
pub use facts::{Facts, Player};
pub use millrace_config::{Class, Mcc as Config};
pub use record::{Nanos, News, Order, Record};
pub use selector::{Counts, Explained, Selector, Settings};
