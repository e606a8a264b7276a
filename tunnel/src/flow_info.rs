//! One flow as `/flows` shows it.

use std::collections::BTreeMap;
use std::time::Instant;

use millrace_cc::{ControllerMetrics, PathModel};
use millrace_config::{Class, Protocol};
use millrace_wire::cmcd::PlayerReport;
use serde::{Deserialize, Serialize};

use crate::flow_label::FlowLabel;

/// Where a flow's number has its connection's.
const CONNECTION_SHIFT: u32 = 32;

/// A flow now. Rates are in Mbit/s (10^6 bit/s).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowInfo {
    /// Number of the flow, unique within the process.
    pub id: u64,
    /// Protocol outside the tunnel: tcp or udp.
    #[serde(default)]
    pub protocol: Protocol,
    /// Whether it bypasses the tunnel, by TCP to its destination.
    #[serde(default)]
    pub bypassed: bool,
    /// The QUIC connection that carries it, in hexadecimal. A flow that bypasses the tunnel has neither this nor any
    /// other value of a connection.
    pub connection: Option<String>,
    /// Group of the connection's key exchange (TLS 1.3), once its handshake is over.
    #[serde(default)]
    pub key_exchange: Option<String>,
    /// Address of the client, or `unix`.
    pub client: String,
    /// Where the flow goes, `host:port`.
    pub destination: String,
    /// What it carries.
    pub class: Class,
    /// Congestion control of its connection.
    pub algorithm: Option<String>,
    /// Whether an operator pinned the algorithm.
    #[serde(default)]
    pub pinned: bool,
    /// Whether rules select the algorithm.
    #[serde(default)]
    pub managed: bool,
    /// How often the algorithm changed, by any trigger.
    #[serde(default)]
    pub switches: Option<u64>,
    /// Time since the last change; none before the first.
    #[serde(default)]
    pub since_switch_s: Option<f64>,
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
    pub cwnd_bytes: Option<u64>,
    /// Largest packet that the connection sends, UDP payload.
    #[serde(default)]
    pub path_mtu_bytes: Option<u64>,
    /// Pacing rate of the connection; none when it isn't paced.
    pub pacing_mbps: Option<f64>,
    /// State of the connection's controller; none for quiche's own controllers.
    pub controller: Option<ControllerInfo>,
    /// Lost packets of the connection as a fraction of those sent, 0 to 1.
    pub loss: Option<f64>,
    /// What its connection has sent and received.
    #[serde(default)]
    pub counts: Option<ConnectionCounts>,
    /// What its player reports (CMCD); only at a server, for flows of class dash.
    #[serde(default)]
    pub player: Option<PlayerInfo>,
    /// RTP in its RTSP connection that waits for the tunnel; only at a server.
    #[serde(default)]
    pub queue: Option<QueueInfo>,
    /// Its state.
    pub state: FlowState,
}

/// Frames in an RTSP connection that wait for the tunnel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueInfo {
    /// How long the oldest has waited.
    pub held_s: f64,
    /// What waits.
    pub held_bytes: u64,
    /// Frames dropped so far, because they had waited for too long.
    pub dropped_frames: u64,
}

impl QueueInfo {
    fn new(queue: QueueSeen, now: Instant) -> Self {
        let held = queue.oldest.map(|oldest| now.saturating_duration_since(oldest));
        Self {
            held_s: held.unwrap_or_default().as_secs_f64(),
            held_bytes: queue.held_bytes,
            dropped_frames: queue.dropped_frames,
        }
    }
}

/// The last report of a player in its requests (CTA-5004).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlayerInfo {
    /// Media in its buffer then.
    pub buffer_s: Option<f64>,
    /// Bitrate of what it asked for.
    pub bitrate_kbps: Option<u64>,
    /// The highest that it may ask for.
    pub top_bitrate_kbps: Option<u64>,
    /// Throughput that it has measured.
    pub throughput_kbps: Option<u64>,
    /// Whether its buffer had run empty before.
    pub starved: bool,
    /// Cap of the rate at which the flow gets its data now; none without `dash.rate_cap`, and where the last request
    /// allows no cap.
    #[serde(default)]
    pub rate_cap_mbps: Option<f64>,
    /// Name of its playback session (`sid`). A player's connections all have the same.
    #[serde(default)]
    pub session: Option<String>,
    /// Time since then.
    pub age_s: f64,
}

impl PlayerInfo {
    fn of(flow: &FlowSeen<'_>, now: Instant) -> Option<Self> {
        let (heard, report) = flow.player?;
        Some(Self {
            buffer_s: report.buffer_ms.map(|ms| ms as f64 / 1e3),
            bitrate_kbps: report.bitrate_kbps,
            top_bitrate_kbps: report.top_bitrate_kbps,
            throughput_kbps: report.throughput_kbps,
            starved: report.starved,
            rate_cap_mbps: flow.rate_cap_mbps,
            session: report.session.map(|session| session.as_str().to_owned()),
            age_s: now.saturating_duration_since(heard).as_secs_f64(),
        })
    }
}

/// What a connection has sent and received so far; bytes are UDP payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionCounts {
    /// QUIC packets sent.
    pub sent_packets: u64,
    /// Of these, packets with data that had been sent before.
    pub retransmitted_packets: u64,
    /// Of these, packets given up as lost.
    pub lost_packets: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// QUIC packets received.
    pub received_packets: u64,
    /// Bytes received.
    pub received_bytes: u64,
}

/// A flow's queue of media (`rtsp/send_queue`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSeen {
    /// When the oldest frame arrived that waits.
    pub oldest: Option<Instant>,
    /// What waits.
    pub held_bytes: u64,
    /// Frames dropped so far.
    pub dropped_frames: u64,
}

/// The part of [`FlowInfo`] that is the flow's own.
#[derive(Clone, Copy, Debug)]
pub struct FlowSeen<'a> {
    /// Unique in its connection, or among the bypassed flows.
    pub number: u64,
    /// Beyond the tunnel.
    pub protocol: Protocol,
    /// Its destination and class.
    pub label: &'a FlowLabel,
    /// When it began.
    pub opened: Instant,
    /// From the local socket to the tunnel, or to the destination of a bypassed flow.
    pub sent_bytes: u64,
    /// To the local socket.
    pub received_bytes: u64,
    /// Of both directions.
    pub rate_mbps: f64,
    /// Its state.
    pub state: FlowState,
    /// The last report of its player, and its time.
    pub player: Option<(Instant, PlayerReport)>,
    /// Cap of its sending rate now, which its player's last request set.
    pub rate_cap_mbps: Option<f64>,
    /// Its queue of media.
    pub queue: Option<QueueSeen>,
}

impl FlowInfo {
    /// Of a connection and of a flow in it.
    pub(crate) fn number(connection: u64, flow: u64) -> u64 {
        connection << CONNECTION_SHIFT | flow
    }

    /// The first of the two.
    pub fn connection_number(&self) -> u64 {
        self.id >> CONNECTION_SHIFT
    }

    /// A client's flow that bypasses the tunnel. Connections are counted from 1, so the numbers below are free.
    pub fn bypassed(flow: FlowSeen<'_>, now: Instant) -> Self {
        Self {
            id: flow.number,
            protocol: flow.protocol,
            bypassed: true,
            connection: None,
            key_exchange: None,
            client: flow.label.client.map_or_else(|| "unix".to_owned(), |it| it.to_string()),
            destination: flow.label.destination.clone(),
            class: flow.label.class,
            algorithm: None,
            pinned: false,
            managed: false,
            switches: None,
            since_switch_s: None,
            bytes_up: flow.sent_bytes,
            bytes_down: flow.received_bytes,
            age_s: now.saturating_duration_since(flow.opened).as_secs_f64(),
            rtt_ms: None,
            rate_mbps: flow.rate_mbps,
            cwnd_bytes: None,
            path_mtu_bytes: None,
            pacing_mbps: None,
            controller: None,
            loss: None,
            counts: None,
            player: PlayerInfo::of(&flow, now),
            queue: flow.queue.map(|queue| QueueInfo::new(queue, now)),
            state: flow.state,
        }
    }
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
    pub(crate) fn new(metrics: &ControllerMetrics, path: &PathModel) -> Self {
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

/// The state of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowState {
    /// The destination is being connected to.
    #[default]
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

impl FlowState {
    /// The name in answers of the admin listener.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Open => "open",
            Self::ClientEnded => "client_ended",
            Self::DestinationEnded => "destination_ended",
            Self::Closing => "closing",
        }
    }
}
