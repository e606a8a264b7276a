//! Careful resume (RFC 9959): a connection between two hosts that know the path begins with what the last one found.
//!
//! - `saved`: what a connection leaves, and a bounded store of it by peer.
//! - `phase`: when saved parameters are used, confirmed, and given up.
//! - `controller`: any algorithm, begun with saved parameters.
//!
//! The initial window confirms the path. A jump to half of the saved window follows, evenly spread over a round trip;
//! the algorithm continues from there as from a larger initial window. If the path does not carry the jump, the sender
//! retreats to half of what arrived until all of the jump is accounted for, and continues at the delivery rate.

mod controller;
mod phase;
mod saved;

use std::sync::Arc;

pub use saved::{SavedPath, SavedPaths};

use crate::ControllerConfig;

/// An algorithm with the saved parameters that its connection begins with.
#[derive(Clone, Debug)]
pub struct CarefulResumeConfig {
    algorithm: Arc<dyn ControllerConfig>,
    saved: SavedPath,
}

impl CarefulResumeConfig {
    /// `algorithm`, begun with what the last connection to the same peer saved.
    #[must_use]
    pub fn new(algorithm: Arc<dyn ControllerConfig>, saved: SavedPath) -> Self {
        Self { algorithm, saved }
    }
}
