//! What the viewers of a run do.

use std::net::SocketAddr;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::plan::SweepLoad;

/// When connections come up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Arrivals {
    /// All connections come up before any of them carries load
    BeforeLoad,
    /// Each carries load from its start, so that later handshakes compete with it; bulk only
    UnderLoad,
}

/// What the viewers of a run do.
#[derive(Debug, Clone)]
pub struct ViewerSettings {
    /// Flows.
    pub count: usize,
    /// Where they connect to, in turn.
    pub listeners: Vec<SocketAddr>,
    /// What they ask for.
    pub load: SweepLoad,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// When they come up.
    pub arrivals: Arrivals,
}
