//! Algorithms that set a window: Reno, CUBIC, Vegas, Westwood+, Illinois, Hybla.
//!
//! Each is a law of growth and reduction in its own file, around the common part (`core`): slow start,
//! recovery periods, persistent congestion, pacing, and windows that only grow while they are used. A
//! probe timeout alone reduces nothing (RFC 9002, Section 7.5). `docs/research/cc/window.md` compares
//! the algorithms.

mod controller;
pub(crate) mod core;
mod cubic;
mod hybla;
mod hystart;
mod illinois;
mod recovery;
mod reno;
pub(crate) mod settings;
mod usage;
mod vegas;
mod westwood;

#[cfg(test)]
pub(crate) mod bench;

pub use cubic::CubicConfig;
pub use hybla::HyblaConfig;
pub use illinois::IllinoisConfig;
pub use reno::RenoConfig;
pub use vegas::VegasConfig;
pub use westwood::WestwoodConfig;

use crate::algorithm::{self, AlgorithmEntry};

/// The algorithms of this family.
pub(crate) const ENTRIES: &[AlgorithmEntry] = &[
    AlgorithmEntry {
        names: &["reno"],
        summary: "NewReno: half the window after a loss",
        source: "RFC 9002",
        make: algorithm::read_settings::<RenoConfig>,
    },
    AlgorithmEntry {
        names: &["cubic"],
        summary: "CUBIC with HyStart++: what most of the Internet uses",
        source: "RFC 9438, RFC 9406",
        make: algorithm::read_settings::<CubicConfig>,
    },
    AlgorithmEntry {
        names: &["vegas"],
        summary: "Vegas: keeps a few packets queued, by the RTT",
        source: "TCP Vegas, SIGCOMM 1994",
        make: algorithm::read_settings::<VegasConfig>,
    },
    AlgorithmEntry {
        names: &["westwood"],
        summary: "Westwood+: after a loss, the measured bandwidth instead of half the window",
        source: "Grieco and Mascolo, CCR 2004",
        make: algorithm::read_settings::<WestwoodConfig>,
    },
    AlgorithmEntry {
        names: &["illinois"],
        summary: "Illinois: faster growth and smaller reductions while the queue is short",
        source: "Liu, Basar and Srikant, Performance Evaluation 2008",
        make: algorithm::read_settings::<IllinoisConfig>,
    },
    AlgorithmEntry {
        names: &["hybla"],
        summary: "Hybla: on long paths the growth of a connection with a short round trip",
        source: "Caini and Firrincieli, IJSCN 2004",
        make: algorithm::read_settings::<HyblaConfig>,
    },
];
