//! A packet-level simulator in virtual time that drives the controllers of `millrace-cc`.
//!
//! [`run`] takes a [`Setup`]: one bottleneck and the flows that share it. The same setup gives the
//! same [`Outcome`] and the same calls of the [`Observer`], on every machine. Memory depends on what
//! is under way at once and not on how long a run lasts.
//!
//! # What is modelled
//!
//! Data packets meet, in this order, random loss, a byte-limited drop-tail queue, a serialiser (a
//! constant rate or a [`Trace`]), and propagation with jitter: [`link`], which the emulator of real
//! packets uses too. Acknowledgements have the way back to themselves: propagation and loss.
//! Senders recover from loss as RFC 9002 says and pace as the tunnel does; receivers acknowledge as
//! RFC 9000, Section 13.2 says, unless [`AckPolicy`] says otherwise.
//!
//! # Bytes
//!
//! A packet of [`Flow::packet_bytes`] (1500) occupies so much of the queue and of the rate: bytes of
//! the network layer, as the papers count. [`HEADER_BYTES`] of it are not the controller's: its MTU,
//! window and pacing rate are in bytes of UDP payload, as in the tunnel. *Throughput* counts the
//! packets that arrived, in bytes of the network layer; *goodput* the UDP payload that arrived for
//! the first time.

mod agenda;
mod bottleneck;
mod engine;
mod flow;
pub mod link;
mod observe;
mod outcome;
mod random;
mod receiver;
mod sender;
mod setup;
mod supervisor;
mod tally;
mod timers;
pub mod trace;

pub use agenda::{Agenda, Item};
pub use bottleneck::Bottleneck;
pub use observe::{FlowSample, LinkSample, NoObserver, Observer, PacketDelivered, SegmentDone};
pub use outcome::{Delays, FlowOutcome, LinkOutcome, Outcome};
pub use setup::{
    AckPolicy, Flow, HEADER_BYTES, Link, LinkChange, Order, RandomChange, Rate, Setup, SetupError,
    Source,
};
pub use supervisor::{Supervisor, Unsupervised};
pub use tally::DelayTally;
pub use trace::Trace;

/// Runs `setup` from its first moment to its last.
///
/// # Errors
/// When a value of the setup is out of range: which, and what is allowed.
///
/// # Panics
/// When a packet was neither delivered nor lost nor is still inside: a fault of the simulator.
pub fn run(setup: &Setup, observer: &mut dyn Observer) -> Result<Outcome, SetupError> {
    run_supervised(setup, observer, &mut Unsupervised)
}

/// The same with somebody who may replace the flows' controllers.
///
/// # Errors
/// When a value of the setup is out of range: which, and what is allowed.
///
/// # Panics
/// When a packet was neither delivered nor lost nor is still inside: a fault of the simulator.
pub fn run_supervised(
    setup: &Setup,
    observer: &mut dyn Observer,
    supervisor: &mut dyn Supervisor,
) -> Result<Outcome, SetupError> {
    setup.validate()?;
    Ok(engine::Engine::new(setup, observer, supervisor).run())
}
