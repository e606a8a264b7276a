//! The user-space link emulator.
//!
//! [`engine`] is the link in virtual time, [`driver`] moves real Ethernet frames through two of
//! them, one a direction, between two interfaces of one namespace.

pub mod config;
pub mod driver;
pub mod engine;
mod port;
pub mod queue;
pub(crate) mod sched;
pub mod stats;

pub use config::{LinkConfig, PipeConfig};
pub use driver::Emulator;
pub use stats::Report;
