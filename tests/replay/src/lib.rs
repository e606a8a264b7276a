//! Drives a congestion controller without a network.
//!
//! - [`ClosedLoop`]: one sender and one bottleneck, the minimum for a controller to reach its steady state.
//!   Cheap compared to the controller, so that the controller's cost can be measured.
//! - [`Operations`]: random sequences of calls that a transport could make, for random and fuzz tests.

mod closed_loop;
mod operations;

pub use closed_loop::{ClosedLoop, Path};
use millrace_cc::registry::{self, Algorithm, Spec};
use millrace_cc::{ControllerConfig, PathStart};
pub use operations::{Choices, Operations};
use std::sync::Arc;
use std::time::Duration;

/// The algorithms of the library by their names in results, without those of a transport.
///
/// # Panics
/// When a name of the registry has no settings that work by default.
pub fn algorithms() -> Vec<Arc<dyn ControllerConfig>> {
    let found = registry::names().into_iter().filter_map(|name| {
        let spec = match name {
            "constant" => Spec::named(name).with("rate_mbps", 80.0),
            _ => Spec::named(name),
        };
        match registry::find(&spec) {
            Ok(Algorithm::Controller(config)) if config.name() == name => Some(config),
            Ok(_) => None,
            Err(error) => panic!("{error}"),
        }
    });
    found.collect()
}

/// Initial values of an unknown path in QUIC (RFC 9002, Sections 6.2.2 and 7.2).
pub fn unknown_path(mtu_bytes: u64, seed: u64) -> PathStart {
    PathStart {
        mtu_bytes,
        initial_window_bytes: 10 * mtu_bytes,
        initial_rtt: Duration::from_millis(333),
        seed,
    }
}
