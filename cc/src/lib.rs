//! Congestion control for Millrace.
//!
//! Independent of sockets, clocks, runtimes and (except for one adapter file, behind the
//! feature `quiche`) of a QUIC implementation. Time and randomness are arguments, so that a
//! simulator in virtual time and a real connection use the same [`Controller`].
//!
//! - [`Controller`]: the interface of an algorithm.
//! - [`PathModel`]: what is known of a path; it outlives the controller.
//! - [`PathController`]: a path whose controller can be replaced while packets are in flight.
//! - [`window`], [`bbr`], [`copa`], [`pcc`], [`iris`]: the families of algorithms.
//! - [`careful_resume`]: saved parameters that a new connection begins with.
//! - [`registry`]: algorithms by name.
//! - [`rate_cap`]: a cap for what a player gets, beside any algorithm.
//! - [`Bandwidth`], [`Time`]: units.

mod algorithm;
mod bandwidth;
pub mod bbr;
pub mod careful_resume;
mod constant;
mod controller;
pub mod copa;
mod estimators;
mod events;
pub mod iris;
mod path_change;
mod path_controller;
mod path_model;
pub mod pcc;
pub mod rate_cap;
pub mod registry;
mod time;
pub mod window;

#[cfg(feature = "quiche")]
pub mod quiche_adapter;

pub use algorithm::{Algorithm, AlgorithmEntry, Spec, read_settings};
pub use bandwidth::Bandwidth;
pub use constant::{Constant, ConstantConfig};
pub use controller::{Controller, ControllerConfig, ControllerMetrics, PathStart, Tuning};
pub use events::{AckedPacket, CongestionEvent, LostPacket, RttSample, SentPacket};
pub use path_controller::PathController;
pub use path_model::PathModel;
pub use time::Time;
