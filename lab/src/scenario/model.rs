//! The contents of a scenario.

use std::collections::BTreeMap;

use millrace_config::Class;
use serde::Serialize;
use serde_json::{Map, Value};

use super::link::Link;
use super::programs::{ExternalProgram, PeerPrograms};
use super::variant::AlgorithmVariant;

/// Values of the swept keys, in the order of the file.
pub type At = Map<String, Value>;

/// What a file is about.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScenarioHead {
    /// Its name, which is that of its directory in the results.
    pub name: String,
    /// One line.
    pub title: String,
    /// Which figure or table of which paper.
    pub figure: Option<String>,
    /// What else a reader should know: what the paper leaves open and what was chosen.
    pub about: Option<String>,
    /// What can run it.
    #[serde(skip)]
    pub drivers: Vec<Driver>,
    /// How often each cell is run.
    pub repeat: u64,
    /// Seed of the first repeat; each further one has the next.
    pub seed: u64,
    /// Which repeats keep their series.
    pub series: Series,
    /// The instants of a player's session whose frame is drawn; empty for the defaults.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pictures_s: Vec<f64>,
    /// Which settings the algorithms have instead of the file's.
    pub variant: AlgorithmVariant,
}

/// What runs a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Driver {
    /// The simulator, in virtual time
    Simulator,
    /// Real packets over the emulated link
    Emulator,
}

impl Driver {
    /// Its name in files, in results and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Simulator => "simulator",
            Self::Emulator => "emulator",
        }
    }
}

/// Which repeats keep their series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Series {
    /// The first of each cell.
    First,
    /// All.
    All,
    /// None.
    None,
}

/// What one run is made of, with every default filled in.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Scenario {
    /// How long it lasts.
    pub duration_s: f64,
    /// How much of that, from the start, the figures exclude.
    pub warmup_s: f64,
    /// Version of the Internet Protocol.
    pub ip: Ip,
    /// The bottleneck.
    pub link: Link,
    /// What only the simulator knows.
    pub sim: Sim,
    /// How some figures are computed.
    pub measure: Measure,
    /// Third-party programs, by name.
    #[serde(rename = "peer")]
    pub peers: BTreeMap<String, PeerPrograms>,
    /// Congestion controllers that are programs of their own, by name.
    #[serde(rename = "external", skip_serializing_if = "BTreeMap::is_empty")]
    pub externals: BTreeMap<String, ExternalProgram>,
    /// What differs between repeats.
    pub spread: RepeatSpread,
    /// The senders; each entry stands for `count` flows.
    #[serde(rename = "flow")]
    pub groups: Vec<FlowGroup>,
}

/// What only the simulator knows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sim {
    /// A receiver acknowledges after so many packets.
    pub ack_every: u64,
    /// Or after so much time.
    pub ack_delay_ms: f64,
    /// Acknowledgements come back together at multiples of this.
    pub ack_aggregation_ms: f64,
    /// Window before the first acknowledgement.
    pub initial_window_packets: u64,
    /// Size of a full packet of the network layer.
    pub packet_bytes: u64,
}

/// How far repeats differ from what the scenario says.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RepeatSpread {
    /// The round trip is longer or shorter by up to this share, the same in the whole run.
    pub rtt: f64,
    /// Each flow starts later by up to this, and by at most a hundredth of the run.
    pub start_s: f64,
}

/// When flows count as converged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Convergence {
    /// Not asked.
    None,
    /// Each flow for itself: it stays near its fair share (Vivace, Section 5.2.1).
    Share,
    /// All together: Jain's index stays high (Iris, Section VI-B5).
    Jain,
}

/// How some figures are computed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measure {
    /// When flows count as converged.
    pub convergence: Convergence,
    /// How far from its fair share a converged flow may be.
    pub share_tolerance: f64,
    /// How high Jain's index must be.
    pub jain_above: f64,
    /// For how long either must last.
    pub hold_s: f64,
    /// How far a flow may be from the link's new rate once it has followed.
    pub follow_tolerance: f64,
    /// Time after a change of shares that does not count.
    pub settle_s: f64,
    /// Length of the epochs whose rates and round trips are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch_s: Option<f64>,
}

/// A live encoder.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Encoder {
    /// Frames in a second.
    pub frames_per_s: f64,
    /// Share of the controller's rate that it takes.
    pub rate_share: f64,
    /// Least rate, in UDP payload.
    pub min_mbps: f64,
    /// Highest rate.
    pub max_mbps: f64,
    /// Frames from one key frame to the next.
    pub key_frame_every: u64,
    /// Size of a key frame, as a multiple of the others'.
    pub key_frame_ratio: f64,
}

/// What a flow has to send.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "app", rename_all = "snake_case")]
pub enum App {
    /// More than it can.
    Bulk,
    /// A video's segments, the next one when it is due and the last one is there.
    OnOff {
        /// Size of a segment.
        segment_bytes: u64,
        /// Time from one segment to the next.
        every_s: f64,
    },
    /// Frames of a live encoder that follows the rate of the congestion controller: simulator only.
    Encoder(Encoder),
    /// A DASH player: in the emulator a real one in a browser, in the simulator a virtual one.
    Dash {
        /// How it chooses the next segment's rung.
        abr: Abr,
        /// How much it strives to have in its buffer.
        buffer_s: f64,
        /// Whether it fetches again what it has buffered when it goes to a higher rung.
        fast_switch: bool,
        /// Whether the server edge caps the flow's rate at what the player can use: simulator only.
        rate_cap: bool,
    },
    /// A real RTSP player: emulator only.
    Rtsp {
        /// The stream: its mean rate, one of [`STREAM_MBPS`].
        media_mbps: u64,
        /// How much media the player holds before it begins, and after each stall.
        client_buffer_s: f64,
        /// What carries RTP.
        transport: StreamTransport,
    },
}

/// What carries a stream's RTP between the origin and its player.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamTransport {
    /// The RTSP connection (RFC 2326, Section 10.12).
    Tcp,
    /// UDP; through the tunnel as datagrams.
    Udp,
}

/// The streams that there are (Vivace, Figure 12(a)); `player/src/media/streams.ts` makes them.
pub const STREAM_MBPS: [u64; 4] = [15, 30, 50, 95];

/// How a DASH player chooses the next segment's rung: a name that its page takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Abr {
    /// By the throughput of the last segments alone, as the Iris paper's player.
    Throughput,
    /// BOLA (Spiteri, Urgaonkar, Sitaraman, 2016), by the buffer.
    Bola,
    /// dash.js's mix of the two.
    Dynamic,
    /// Learn2Adapt-LowLatency.
    L2a,
    /// Low-on-Latency-plus.
    Lolp,
}

impl Abr {
    /// Its name, for the page.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Bola => "bola",
            Self::Dynamic => "dynamic",
            Self::L2a => "l2a",
            Self::Lolp => "lolp",
        }
    }
}

/// Which way a flow takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Via {
    /// Through the pair of proxies.
    Proxy,
    /// The kernel's TCP from end to end.
    Direct,
    /// Through a third-party pair of programs.
    Peer,
    /// In the simulator, controlled by a program of its own.
    External,
}

/// Version of the Internet Protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Ip {
    /// IPv4.
    #[serde(rename = "4")]
    V4,
    /// IPv6.
    #[serde(rename = "6")]
    V6,
}

/// The tunnel connections of a group's flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupConnections {
    /// One for each flow.
    PerFlow,
    /// One for all of them.
    Shared,
}

/// Saved parameters of a path (RFC 9959).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SavedParameters {
    /// Bytes that the path carried in a round trip.
    pub window_bytes: u64,
    /// Its round trip.
    pub rtt_ms: f64,
}

/// Flows with the same settings.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FlowGroup {
    /// Algorithm: a name of `cc/`, `kernel:` and one of the kernel's, or `peer:` or `external:` and its name.
    pub cc: String,
    /// Its parameters.
    pub parameters: Map<String, Value>,
    /// Its name in plots and claims.
    pub label: String,
    /// What it has to send.
    #[serde(flatten)]
    pub app: App,
    /// What MCC takes them for, where that is not what `app` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// How many there are.
    pub count: u64,
    /// When the first begins.
    pub start_s: f64,
    /// How much later each further one begins.
    pub start_every_s: f64,
    /// When they end.
    pub stop_s: f64,
    /// What their path has that those of others do not.
    #[serde(flatten)]
    pub path: GroupPath,
    /// Which way they take.
    pub via: Via,
    /// Whether they share a tunnel connection.
    pub connections: GroupConnections,
    /// Whether their data go from the client to the server.
    pub upwards: bool,
    /// What is asked of the algorithm while it runs.
    pub change: Vec<FlowChange>,
    /// By how much each flow of this run begins later than the scenario says; empty for no delay.
    #[serde(skip)]
    pub late_s: Vec<f64>,
}

/// The path of a group's flows beside the link.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GroupPath {
    /// Further propagation of these flows alone.
    pub extra_rtt_ms: f64,
    /// What an earlier connection saved of it, with which they begin: simulator only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saved: Option<SavedParameters>,
}

/// What is asked of an algorithm while it runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FlowChange {
    /// When.
    pub at_s: f64,
    /// The algorithm that replaces the current one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cc: Option<String>,
    /// Its parameters.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub parameters: Map<String, Value>,
    /// Which share of the link it is to strive for.
    pub share: Option<f64>,
    /// Above which rate it is to yield.
    pub yield_above_mbps: Option<f64>,
}

impl FlowGroup {
    /// What MCC takes them for, and how much a queue counts in their utility.
    #[must_use]
    pub fn class(&self) -> Class {
        self.class.unwrap_or(match self.app {
            App::Dash { .. } | App::OnOff { .. } => Class::Dash,
            App::Rtsp { .. } | App::Encoder(_) => Class::Rtsp,
            App::Bulk => Class::Bulk,
        })
    }

    /// Whether a player in a browser receives it.
    #[must_use]
    pub fn is_dash(&self) -> bool {
        matches!(self.app, App::Dash { .. })
    }

    /// The rate of the stream that it plays, if it does.
    #[must_use]
    pub fn stream_mbps(&self) -> Option<u64> {
        match self.app {
            App::Rtsp { media_mbps, .. } => Some(media_mbps),
            _ => None,
        }
    }

    /// Whether a real player receives it.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        matches!(self.app, App::Dash { .. } | App::Rtsp { .. })
    }

    /// The name of the kernel's algorithm; `None` for any other.
    #[must_use]
    pub fn kernel_cc(&self) -> Option<&str> {
        self.cc.strip_prefix("kernel:")
    }

    /// The name of the peer; `None` without a peer.
    #[must_use]
    pub fn peer(&self) -> Option<&str> {
        self.cc.strip_prefix("peer:")
    }

    /// The name of the external controller; `None` without one.
    #[must_use]
    pub fn external(&self) -> Option<&str> {
        self.cc.strip_prefix("external:")
    }

    /// When the flow of this number in the group begins.
    #[must_use]
    pub fn start_of_s(&self, number: u64) -> f64 {
        let late_s = usize::try_from(number).ok().and_then(|number| self.late_s.get(number));
        self.scheduled_start_of_s(number) + late_s.copied().unwrap_or_default()
    }

    /// When the scenario says that it begins.
    #[must_use]
    pub fn scheduled_start_of_s(&self, number: u64) -> f64 {
        self.start_s + number as f64 * self.start_every_s
    }
}
