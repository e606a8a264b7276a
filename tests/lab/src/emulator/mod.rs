//! The user-space link emulator.
//!
//! [`millrace_sim::link`] is the link in virtual time and [`millrace_sim::Bottleneck`] what becomes
//! of it, as in the simulator. [`forward`] moves real Ethernet frames through two of them, one a
//! direction, between two interfaces of one namespace; [`course`] is what it sees of a run.

mod clock;
pub mod course;
mod driver;
mod forward;
mod frame;
pub mod plan;
mod port;
mod reading;
pub(crate) mod sched;
pub(crate) mod sniffer;
pub mod stats;

pub(crate) use clock::monotonic_ns;
pub use course::Course;
pub use driver::Emulator;
pub use millrace_sim::link::{LinkConfig, PipeConfig};
pub use plan::{Back, FlowPlan, Plan};
pub use port::{Access, Port};
pub use sched::FIFO_PRIORITY;
pub use stats::Report;
