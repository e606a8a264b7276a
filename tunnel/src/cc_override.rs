//! Congestion control that an operator sets by hand.

use millrace_cc::Tuning;
use millrace_cc::registry::Algorithm;
use serde::Serialize;

/// A change of a connection's congestion control by an operator.
#[derive(Clone, Debug)]
pub enum CcOverride {
    /// Pin this algorithm, regardless of flows and rules.
    Set(Algorithm),
    /// Return the choice to flows and rules.
    Clear,
    /// Keep the algorithm and change one of its settings.
    Tune(Tuning),
}

impl CcOverride {
    /// Why `algorithm` does not do what is asked of it.
    pub fn untunable(tuning: Tuning, algorithm: &'static str) -> CcOverrideError {
        let (asked, able) = match tuning {
            Tuning::Share(_) => ("share", "vivace-weighted, above 0 and at most 1,"),
            Tuning::YieldAbove(_) => ("yield_above_mbps", "proteus-h, from 0 on,"),
        };
        CcOverrideError::Untunable { algorithm, asked, able }
    }
}

/// Why the algorithm of a connection was not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CcOverrideError {
    /// No connection has the identifier.
    #[error("there is no such connection; /flows shows the connections of flows")]
    NoConnection,
    /// One of the two is the QUIC stack's own, and it can't be replaced while it runs.
    #[error("{from} can't be replaced by {to} in a connection that runs")]
    Irreplaceable {
        /// What drives it.
        from: &'static str,
        /// What was to take over.
        to: &'static str,
    },
    /// What drives it has no such thing.
    #[error("{algorithm} does not take {asked}, or not with this value; {able} does")]
    Untunable {
        /// What drives it.
        algorithm: &'static str,
        /// What was asked of it.
        asked: &'static str,
        /// What would take it.
        able: &'static str,
    },
    /// The worker that has the connection did not answer.
    #[error("no answer in time; try again")]
    NoAnswer,
}

/// What drives a connection now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CcOverrideResult {
    /// Its algorithm.
    pub algorithm: &'static str,
    /// Whether it stays, whatever flows begin on the connection.
    pub pinned: bool,
}
