//! Algorithms that set a window: Reno, CUBIC, Vegas, Westwood+, Illinois.
//!
//! Each is a law of growth and reduction in a file of its own, around what all have in common
//! (`core`): slow start, recovery periods, persistent congestion, pacing, and windows that only
//! grow when they are used. A probe timeout alone reduces nothing (RFC 9002, Section 7.5). The
//! page `docs/cc/window.md` compares them.

mod controller;
pub(crate) mod core;
mod cubic;
mod hystart;
mod illinois;
mod recovery;
mod reno;
mod usage;
mod vegas;
mod westwood;

#[cfg(test)]
pub(crate) mod bench;

use serde::Deserialize;
use serde::de::{Deserializer, Error};

pub use cubic::CubicConfig;
pub use illinois::IllinoisConfig;
pub use reno::RenoConfig;
pub use vegas::VegasConfig;
pub use westwood::WestwoodConfig;

use crate::registry::{self, Entry};

/// The algorithms of this family.
pub(crate) const ENTRIES: &[Entry] = &[
    Entry { names: &["reno"], make: registry::read::<RenoConfig> },
    Entry { names: &["cubic"], make: registry::read::<CubicConfig> },
    Entry { names: &["vegas"], make: registry::read::<VegasConfig> },
    Entry { names: &["westwood"], make: registry::read::<WestwoodConfig> },
    Entry { names: &["illinois"], make: registry::read::<IllinoisConfig> },
];

/// For settings: more than 0 and less than 1.
pub(crate) fn share<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let value = f64::deserialize(from)?;
    match value > 0.0 && value < 1.0 {
        true => Ok(value),
        false => Err(D::Error::custom(format!("{value} is not between 0 and 1"))),
    }
}

/// For settings: more than 0, and small enough for any arithmetic.
pub(crate) fn positive<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let value = f64::deserialize(from)?;
    match value > 0.0 && value <= 1e6 {
        true => Ok(value),
        false => Err(D::Error::custom(format!("{value} is not above 0 and at most 1000000"))),
    }
}
