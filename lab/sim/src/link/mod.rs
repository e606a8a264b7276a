//! One direction of a link in virtual time, for the simulator and for the emulator of real packets.

pub mod config;
pub mod pipe;
pub mod queue;
mod schedule;

pub use config::{LinkConfig, PipeConfig};
pub use pipe::{ArrivalOutcome, Pipe, PipeCounters, Released};
