//! One flow as `/flows` shows it.

use std::collections::BTreeMap;
use std::time::Instant;

use millrace_cc::{Metrics, PathModel};
use millrace_config::{Class, Protocol};
use serde::{Deserialize, Serialize};

use crate::flow::FlowLabel;

/// A flow now. Rates are in Mbit/s (10^6 bit/s).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowInfo {
    /// Number of the flow, unique within the process.
    pub id: u64,
    /// What it is beyond the tunnel: tcp or udp.
    #[serde(default)]
    pub protocol: Protocol,
    /// The QUIC connection that carries it, in hexadecimal.
    pub connection: String,
    /// Address of the client, or `unix`.
    pub client: String,
    /// Where the flow goes, `host:port`.
    pub destination: String,
    /// What it carries.
    pub class: Class,
    /// Congestion control of its connection.
    pub algorithm: String,
    /// Bytes from client to destination so far.
    pub bytes_up: u64,
    /// Bytes from destination to client so far.
    pub bytes_down: u64,
    /// Time since it was accepted.
    pub age_s: f64,
    /// Smoothed round trip of the connection; none before the first sample.
    pub rtt_ms: Option<f64>,
    /// Both directions of the flow over the last second or so.
    pub rate_mbps: f64,
    /// Congestion window of the connection.
    pub cwnd_bytes: u64,
    /// Pacing rate of the connection; none when it isn't paced.
    pub pacing_mbps: Option<f64>,
    /// What the connection's controller says; none when it is one of quiche's own.
    pub controller: Option<ControllerInfo>,
    /// Lost packets of the connection as a fraction of those sent, 0 to 1.
    pub loss: f64,
    /// How far it is.
    pub state: FlowState,
}

/// What is the flow's own of that.
pub(crate) struct FlowSeen<'a> {
    /// Unique in its connection.
    pub(crate) number: u64,
    pub(crate) protocol: Protocol,
    pub(crate) label: &'a FlowLabel,
    pub(crate) opened: Instant,
    /// From the near end to the tunnel.
    pub(crate) sent_bytes: u64,
    /// From the tunnel to the near end.
    pub(crate) received_bytes: u64,
    pub(crate) rate_mbps: f64,
    pub(crate) state: FlowState,
}

/// A connection's congestion controller now, and what it knows of the path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ControllerInfo {
    /// Name of its state.
    pub state: String,
    /// The algorithm's own figures, by names with their units.
    pub figures: BTreeMap<String, f64>,
    /// Most recent rate at which the path delivered.
    pub delivery_mbps: f64,
    /// The highest ever.
    pub peak_delivery_mbps: f64,
    /// Smallest round trip; none before the first sample.
    pub min_rtt_ms: Option<f64>,
    /// Share of packets lost over about the last ten acknowledgements, 0 to 1.
    pub recent_loss: f64,
}

impl ControllerInfo {
    /// Figures that are no finite number, which JSON does not have, are left out.
    pub(crate) fn new(metrics: &Metrics, path: &PathModel) -> Self {
        let figures = metrics.figures.iter().filter(|(_, value)| value.is_finite());
        Self {
            state: metrics.state.to_owned(),
            figures: figures.map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            delivery_mbps: path.delivery_rate.mbps(),
            peak_delivery_mbps: path.peak_delivery_rate.mbps(),
            min_rtt_ms: path.min_rtt.map(|rtt| rtt.as_secs_f64() * 1e3),
            recent_loss: path.loss_short,
        }
    }
}

/// How far a flow is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowState {
    /// The destination is being connected to.
    Connecting,
    /// Both directions are open.
    Open,
    /// The client has ended its direction.
    ClientEnded,
    /// The destination has ended its direction.
    DestinationEnded,
    /// Both have ended; the last bytes are on their way.
    Closing,
}
