//! A packet-level simulator in virtual time that drives the controllers of `millrace-cc`.
//!
//! [`run`] takes a [`Setup`]: one bottleneck and the flows that share it. The same setup gives the
//! same [`SimulationOutcome`] and the same calls of the [`Observer`], on every machine. Memory depends on the
//! packets in flight and not on the length of a run, but for some bytes a segment that a player has fetched.
//!
//! # What is modelled
//!
//! Data packets meet, in this order, random loss, a byte-limited drop-tail queue, a serialiser (a
//! constant rate or a [`RateTrace`]), and propagation with jitter: [`link`], which the emulator of real
//! packets uses too. Acknowledgements have the way back to themselves: propagation and loss.
//! Senders recover from loss as RFC 9002 says and pace as the tunnel does; receivers acknowledge as
//! RFC 9000, Section 13.2 says, unless [`AckPolicy`] says otherwise.
//!
//! A flow with [`DataSource::Player`] has a player of DASH at its receiver, whose requests have half a round trip
//! to the sender.
//!
//! # Bytes
//!
//! Queue and rate count bytes of the network layer, as the papers do: [`FlowSetup::packet_bytes`] (1500) for
//! a full packet. The controller's MTU, window and pacing rate are in bytes of UDP payload, as in the
//! tunnel: [`HEADER_BYTES`] less per packet. *Throughput* counts the packets that arrived, in bytes of the
//! network layer; *goodput* the UDP payload that arrived for the first time.

mod attached_player;
mod bottleneck;
mod data_source;
mod engine;
mod event_queue;
mod flow;
pub mod link;
mod observe;
mod outcome;
mod player;
mod random;
mod receiver;
mod sender;
mod setup;
mod setup_checks;
mod supervisor;
mod tally;
mod timers;
pub mod trace;

pub use bottleneck::Bottleneck;
pub use data_source::{DataSource, EncoderSetup};
pub use event_queue::{EventQueue, Item};
pub use observe::{FlowSample, LinkSample, NoObserver, Observer, PacketDelivered, SegmentDone};
pub use outcome::{Delays, FrameTotals, LinkOutcome, SimulatedFlowTotals, SimulationOutcome};
pub use player::{
    BitrateLadder, BitrateStrategy, LadderRung, PlayerOutcome, PlayerSample, PlayerSetup,
};
pub use setup::{
    AckPolicy, FlowSetup, HEADER_BYTES, LinkChange, LinkRate, LinkSetup, Order, RandomLinkChange,
    Setup,
};
pub use setup_checks::SetupError;
pub use supervisor::{Supervisor, Unsupervised};
pub use tally::DelayTally;
pub use trace::RateTrace;

/// Runs `setup` from its first moment to its last.
///
/// # Errors
/// When a value of the setup is out of range: which, and what is allowed.
///
/// # Panics
/// If packets are not conserved (delivered, lost or inside): an error of the simulator.
pub fn run(setup: &Setup, observer: &mut dyn Observer) -> Result<SimulationOutcome, SetupError> {
    run_supervised(setup, observer, &mut Unsupervised)
}

/// Runs `setup` with a supervisor that may replace the flows' controllers.
///
/// # Errors
/// When a value of the setup is out of range: which, and what is allowed.
///
/// # Panics
/// If packets are not conserved (delivered, lost or inside): an error of the simulator.
pub fn run_supervised(
    setup: &Setup,
    observer: &mut dyn Observer,
    supervisor: &mut dyn Supervisor,
) -> Result<SimulationOutcome, SetupError> {
    setup.validate()?;
    Ok(engine::Engine::new(setup, observer, supervisor).run())
}
