//! The user-space link emulator.
//!
//! [`millrace_sim::link`] is the link in virtual time, [`driver`] moves real Ethernet frames through
//! two of them, one a direction, between two interfaces of one namespace.

pub mod driver;
mod port;
pub(crate) mod sched;
pub mod stats;

pub use driver::Emulator;
pub use millrace_sim::link::{LinkConfig, PipeConfig};
pub use stats::Report;
