//! Congestion control for Millrace.
//!
//! Nothing here knows a socket, a clock, a runtime or (but for one adapter
//! file, behind the feature `quiche`) a QUIC implementation: time and randomness
//! come in as arguments, so that the same [`Controller`] is driven by a
//! simulator in virtual time and by a real connection.
//!
//! - [`Controller`]: what an algorithm is asked and told.
//! - [`PathModel`]: what is known of a path, kept by whoever owns a controller.
//! - [`Driven`]: a path whose controller can be replaced while packets are in flight.
//! - [`window`], [`bbr`], [`copa`], [`pcc`], [`iris`]: the families of algorithms.
//! - [`registry`]: algorithms by name.
//! - [`Bandwidth`], [`Time`]: units.

mod bandwidth;
pub mod bbr;
mod constant;
mod controller;
pub mod copa;
mod driven;
mod estimators;
pub mod iris;
mod path_change;
mod path_model;
pub mod pcc;
pub mod registry;
mod time;
pub mod window;

#[cfg(feature = "quiche")]
pub mod quiche_adapter;

pub use bandwidth::Bandwidth;
pub use constant::{Constant, ConstantConfig};
pub use controller::{
    AckedPacket, CongestionEvent, Controller, ControllerConfig, LostPacket, Metrics, PathStart,
    RttSample, SentPacket, Tuning,
};
pub use driven::Driven;
pub use path_model::PathModel;
pub use time::Time;
