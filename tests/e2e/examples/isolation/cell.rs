//! What one measurement is of: a link, the programs' settings and the flows that stand still.

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What the flows beside the active one do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Background {
    /// Viewers that read the start of a download and stop reading.
    PausedViewer,
    /// Origins that read the start of an upload and stop reading.
    PausedOrigin,
    /// Viewers that read 1 kB/s.
    SlowViewer,
    /// Viewers that have ended their own direction and stop reading.
    HalfClosed,
    /// Uploads to a destination that never answers the connection attempt.
    NotConnected,
    /// Paused viewers whose flows bypass the tunnel.
    Bypassed,
}

/// How flows share connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Connections {
    /// One connection for all flows of a class.
    Shared,
    /// One connection for each flow.
    PerFlow,
}

impl Connections {
    /// As the configuration has it.
    pub fn key(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::PerFlow => "per_flow",
        }
    }
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cell {
    /// Flows that stand still.
    pub flows: usize,
    /// What they do.
    pub background: Background,
    /// Rate of the link in both directions.
    pub rate_mbps: u64,
    /// Round trip of the link.
    pub rtt_ms: u64,
    /// Workers of both programs.
    pub workers: usize,
    /// How flows share connections.
    pub connections: Connections,
}

/// Flows that stand still beside the active one.
const FLOWS: [usize; 4] = [1, 4, 60, 1000];
/// Rate and round trip of the links.
const LINKS: [(u64, u64); 3] = [(100, 0), (100, 50), (42, 800)];
const WORKERS: [usize; 2] = [1, 2];
const CONNECTIONS: [Connections; 2] = [Connections::Shared, Connections::PerFlow];
/// What each background is measured with beside the full grid of the paused viewers and origins.
const OTHERS: [Background; 4] = [
    Background::SlowViewer,
    Background::HalfClosed,
    Background::NotConnected,
    Background::Bypassed,
];

impl Cell {
    /// The corners: few and many flows, shortest and longest path, both ways of sharing, both
    /// directions, one worker and two.
    pub fn corners() -> Vec<Self> {
        use Background::{PausedOrigin, PausedViewer};
        use Connections::{PerFlow, Shared};
        let corner = |flows, background, (rate_mbps, rtt_ms), workers, connections| Self {
            flows,
            background,
            rate_mbps,
            rtt_ms,
            workers,
            connections,
        };
        vec![
            corner(4, PausedViewer, (100, 50), 1, Shared),
            corner(1000, PausedViewer, (100, 0), 2, Shared),
            corner(60, PausedOrigin, (42, 800), 1, Shared),
            corner(60, PausedViewer, (100, 50), 2, PerFlow),
        ]
    }

    /// The full grid, and each other background once on each link.
    pub fn all() -> Vec<Self> {
        let mut cells = Vec::new();
        for (rate_mbps, rtt_ms) in LINKS {
            for workers in WORKERS {
                for connections in CONNECTIONS {
                    for flows in FLOWS {
                        for background in [Background::PausedViewer, Background::PausedOrigin] {
                            let cell =
                                Self { flows, background, rate_mbps, rtt_ms, workers, connections };
                            cells.push(cell);
                        }
                    }
                }
            }
            cells.extend(OTHERS.map(|background| Self {
                flows: 60,
                background,
                rate_mbps,
                rtt_ms,
                workers: 1,
                connections: Connections::Shared,
            }));
        }
        cells
    }

    /// The link's round trip.
    pub fn rtt(&self) -> Duration {
        Duration::from_millis(self.rtt_ms)
    }

    /// Whether the active flow sends from the viewer to the origin.
    pub fn is_upload(&self) -> bool {
        matches!(self.background, Background::PausedOrigin | Background::NotConnected)
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { flows, background, rate_mbps, rtt_ms, workers, connections } = self;
        let background = background.to_possible_value().expect("no variant is skipped");
        let connections = connections.key();
        write!(
            f,
            "{flows} x {} at {rate_mbps} Mbit/s, {rtt_ms} ms, {connections}, {workers} worker(s)",
            background.get_name()
        )
    }
}
