//! What a sweep runs, and in which order.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What the flows of a run carry.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum SweepLoad {
    /// As much as gets through
    Bulk,
    /// A segment a second for each viewer
    Video,
}

impl fmt::Display for SweepLoad {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Bulk => "bulk",
            Self::Video => "video",
        })
    }
}

/// A way from sink to origin, and how flows share it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum SweepWay {
    /// Kernel TCP from end to end.
    Direct,
    /// One nginx `stream` proxy in between.
    NginxStream,
    /// The pair, `connections = "shared"`.
    Shared,
    /// The pair, `connections = "per_flow"`.
    PerFlow,
    /// A client edge for each flow, one server.
    Edges,
    /// A third-party pair of this name.
    Peer(String),
}

impl SweepWay {
    /// Those that can be given by name.
    const NAMED: [(Self, &'static str); 5] = [
        (Self::Direct, "direct"),
        (Self::NginxStream, "nginx_stream"),
        (Self::Shared, "shared"),
        (Self::PerFlow, "per_flow"),
        (Self::Edges, "edges"),
    ];

    /// Whether Millrace's programs are in between.
    pub fn is_millrace(&self) -> bool {
        matches!(self, Self::Shared | Self::PerFlow | Self::Edges)
    }
}

impl fmt::Display for SweepWay {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Self::NAMED.iter().find(|(way, _)| way == self) {
            Some((_, name)) => formatter.write_str(name),
            None => match self {
                Self::Peer(name) => write!(formatter, "peer:{name}"),
                _ => Err(fmt::Error),
            },
        }
    }
}

impl FromStr for SweepWay {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(name) = text.strip_prefix("peer:").filter(|name| !name.is_empty()) {
            return Ok(Self::Peer(name.to_owned()));
        }
        let found = Self::NAMED.iter().find(|(_, name)| *name == text);
        found.map(|(way, _)| way.clone()).ok_or_else(|| {
            let names = Self::NAMED.map(|(_, name)| name).join(", ");
            format!("unknown way {text:?}: one of {names}, peer:NAME")
        })
    }
}

impl From<SweepWay> for String {
    fn from(way: SweepWay) -> Self {
        way.to_string()
    }
}

impl TryFrom<String> for SweepWay {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// One cell of the sweep.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SweepPoint {
    /// What the flows carry.
    pub load: SweepLoad,
    /// Flows; with all ways but `direct`, `nginx_stream` and `shared` a connection each.
    pub connections: usize,
    /// The way.
    pub way: SweepWay,
}

impl fmt::Display for SweepPoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { load, connections, way } = self;
        write!(formatter, "{load:5} {connections:4} x {way}")
    }
}

/// What one pass has.
#[derive(Debug, Clone)]
pub struct SweepGrid {
    /// Loads, in this order.
    pub loads: Vec<SweepLoad>,
    /// Numbers of flows.
    pub counts: Vec<usize>,
    /// Ways; those of one load and one number of flows run one after the other.
    pub ways: Vec<SweepWay>,
    /// Number of client edges of the way `edges`, which has no other one.
    pub edges: usize,
}

impl SweepGrid {
    /// The runs of pass `round`, from 1. Each pass starts with another way: none always runs after the same one.
    pub fn pass(&self, round: usize) -> Vec<SweepPoint> {
        let mut counts = self.counts.clone();
        if self.ways.contains(&SweepWay::Edges) {
            counts.push(self.edges);
        }
        counts.sort_unstable();
        counts.dedup();
        let mut points = Vec::new();
        for &load in &self.loads {
            for &connections in &counts {
                let ways = self.ways.iter().filter(|way| match way {
                    SweepWay::Edges => connections == self.edges,
                    _ => self.counts.contains(&connections),
                });
                let ways: Vec<&SweepWay> = ways.collect();
                let turned = ways.iter().cycle().skip(round.saturating_sub(1) % ways.len().max(1));
                points.extend(turned.take(ways.len()).map(|way| SweepPoint {
                    load,
                    connections,
                    way: (*way).clone(),
                }));
            }
        }
        points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> SweepGrid {
        SweepGrid {
            loads: vec![SweepLoad::Bulk],
            counts: vec![1, 8],
            ways: vec![SweepWay::Direct, SweepWay::PerFlow, SweepWay::Edges],
            edges: 3,
        }
    }

    #[test]
    fn ways_are_read_as_they_are_written() {
        for text in ["direct", "nginx_stream", "shared", "per_flow", "edges", "peer:socat"] {
            assert_eq!(text.parse::<SweepWay>().unwrap().to_string(), text);
        }
        let error = "perflow".parse::<SweepWay>().unwrap_err();
        assert!(error.contains("per_flow, edges, peer:NAME"), "{error}");
        assert!("peer:".parse::<SweepWay>().is_err());
        let point: SweepPoint =
            serde_json::from_str(r#"{"load":"video","connections":50,"way":"peer:x"}"#).unwrap();
        assert_eq!(point.way, SweepWay::Peer("x".to_owned()));
    }

    #[test]
    fn each_pass_starts_with_another_way_and_has_the_same_runs() {
        let shown = |round| -> Vec<String> {
            grid().pass(round).iter().map(|it| format!("{} {}", it.connections, it.way)).collect()
        };
        assert_eq!(shown(1), ["1 direct", "1 per_flow", "3 edges", "8 direct", "8 per_flow"]);
        assert_eq!(shown(2), ["1 per_flow", "1 direct", "3 edges", "8 per_flow", "8 direct"]);
        assert_eq!(shown(3), shown(1));
    }

    #[test]
    fn edges_run_beside_the_other_ways_with_the_same_number() {
        let shown: Vec<String> = SweepGrid { edges: 8, ..grid() }
            .pass(1)
            .iter()
            .map(|it| format!("{} {}", it.connections, it.way))
            .collect();
        assert_eq!(shown, ["1 direct", "1 per_flow", "8 direct", "8 per_flow", "8 edges"]);
    }
}
