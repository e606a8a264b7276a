//! The user-space link emulator.
//!
//! [`millrace_sim::link`] is the link in virtual time and [`millrace_sim::Bottleneck`] its changes over time, as in the
//! simulator. [`forward`] moves real Ethernet frames through two of them, one per direction, between two
//! interfaces of one namespace; [`link_trace`] records what crosses in a run.

mod clock;
mod driver;
mod forward;
mod frame;
mod link_control;
pub mod link_trace;
pub mod plan;
mod port;
mod read_schedule;
pub mod sched;
pub mod sniffer;
pub mod stats;

pub use clock::monotonic_ns;
pub use driver::Emulator;
pub use link_trace::LinkTrace;
pub use millrace_sim::link::{LinkConfig, PipeConfig};
pub use plan::{FlowPlan, LinkPlan, ReversePath};
pub use port::{FrameIo, Port};
pub use sched::FIFO_PRIORITY;
pub use stats::EmulatorReport;
