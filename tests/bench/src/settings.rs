//! What the ways that are compared need to know.

use std::path::PathBuf;

/// Limits of flows and memory that both programs get.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BenchLimits {
    /// So high that no run reaches them.
    #[default]
    Raised,
    /// The defaults of the configuration, which also serves metrics then.
    Shipped,
}

/// What the variants need to know.
#[derive(Debug, Clone, Default)]
pub struct BenchSettings {
    /// Directory of `millrace-client` and `millrace-server`.
    pub programs: PathBuf,
    /// Congestion control of the tunnel.
    pub cc: String,
    /// Rate of the tunnel in Mbit/s, of the controller `constant`.
    pub rate_mbps: Option<f64>,
    /// `shared` or `per_flow`.
    pub connections: String,
    /// Event loops of each proxy; 0 is one per core.
    pub workers: usize,
    /// Rules of the server, where `cc` is `mcc`; the client has BBR then.
    pub rules: Option<PathBuf>,
    /// Limits of both programs.
    pub limits: BenchLimits,
    /// Client edges besides the first one, a process each.
    pub further_edges: u16,
    /// Rate in Mbit/s of the flow through a client of its own, whose pacing is measured.
    pub probe_mbps: Option<f64>,
}
