//! BBR: a model of the path's bandwidth and round trip (versions 1 and 3).
//!
//! The flow paces at the highest recent delivery rate of the path, and limits the bytes in flight to a
//! multiple of the bandwidth-delay product.
//!
//! - `v1`: the version to which the papers compare.
//! - `v3`: the version that is being standardised; it responds to losses.
//! - `common`, `full_pipe`, `ack_aggregation`, `recovery`, `gain`: shared by both versions.

mod ack_aggregation;
mod common;
mod full_pipe;
mod gain;
mod recovery;
#[cfg(test)]
mod test_path;
mod v1;
mod v3;

pub use v1::{Bbr, BbrConfig};
pub use v3::{Bbr3, Bbr3Config};

use crate::algorithm::{self, AlgorithmEntry};

/// The algorithms of this family.
pub(crate) const ENTRIES: &[AlgorithmEntry] = &[
    AlgorithmEntry {
        names: &["bbr"],
        summary: "BBR version 1: paces at the highest delivery rate seen",
        source: "draft-cardwell-iccrg-bbr-congestion-control-00",
        make: algorithm::read_settings::<BbrConfig>,
    },
    AlgorithmEntry {
        names: &["bbr3"],
        summary: "BBR version 3: BBR with bounds from loss",
        source: "draft-ietf-ccwg-bbr",
        make: algorithm::read_settings::<Bbr3Config>,
    },
];
