//! What a process counts, in Prometheus form.
//!
//! What happens per packet or per chunk is counted in [`WorkerCounters`], of which each event loop
//! has its own: an addition there is a load and a store of one's own cache line. What happens per
//! flow or connection is counted in shared atomics. Nothing takes a lock outside of start and
//! scrape, and all labels are enums, so that no peer can make the number of series grow.

mod family;
mod rate_cap;
mod selectors;
mod servers;
mod worker;

use std::sync::Arc;

use millrace_admission::flow_owner::FlowRefusal;
use millrace_config::{Class, DeniedReason};
use millrace_mcc::thread::SharedSelectorCounts;
use millrace_wire::cmcd::IgnoredReason;
use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{Histogram, HistogramOpts, IntCounter, IntGauge, Registry, TextEncoder};

use family::label;
pub use family::{CounterFamily, GaugeFamily, Label};
pub use rate_cap::RateCapResult;
use selectors::Selectors;
pub use servers::ServerMetrics;
use worker::Workers;
pub use worker::{LocalCounter, WorkerCounters};

label! {
    /// Why a flow never carried data, or ended early.
    FlowFailure {
        /// The destination is not allowed.
        Denied = "denied",
        /// The destination answered with a reset.
        Refused = "refused",
        /// No route to the destination.
        Unreachable = "unreachable",
        /// The destination did not answer in time.
        DialTimeout = "dial_timeout",
        /// The destination's name has no address.
        NameNotResolved = "name_not_resolved",
        /// A resource of a proxy was short: room in a queue.
        Overloaded = "overloaded",
        /// The server had as many flows as it may.
        ServerFull = "server_full",
        /// The client had as much as one client may.
        ClientLimit = "client_limit",
        /// This machine has no port, descriptor or memory left to connect with.
        LocalResources = "local_resources",
        /// There is no healthy connection to a server.
        TunnelUnavailable = "tunnel_unavailable",
        /// The connection that carried the flow ended.
        TunnelLost = "tunnel_lost",
        /// The client sent something that its protocol does not allow.
        Protocol = "protocol",
        /// The client took too long to say where it wants to go.
        HandshakeTimeout = "handshake_timeout",
        /// Nothing moved for too long.
        IdleTimeout = "idle_timeout",
        /// The memory cap was reached, and the flow's reader was among the slowest.
        Memory = "memory",
        /// The TCP side was reset.
        TcpReset = "tcp_reset",
        /// The TCP side has disappeared: it acknowledged nothing for too long.
        TcpTimeout = "tcp_timeout",
        /// The tunnel's peer reset the flow.
        PeerReset = "peer_reset",
        /// Anything else; the log says what.
        Internal = "internal",
    }
}

/// How a flow has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowOutcome {
    /// Both peers closed it cleanly.
    Complete,
    /// It carried no data, or ended early.
    Failed(FlowFailure),
}

impl Label for FlowOutcome {
    const ALL: &'static [Self] = &{
        let failures = FlowFailure::ALL;
        let mut all = [Self::Complete; FlowFailure::ALL.len() + 1];
        let mut index = 0;
        while index < failures.len() {
            all[index + 1] = Self::Failed(failures[index]);
            index += 1;
        }
        all
    };

    fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Failed(failure) => failure.as_str(),
        }
    }
}

impl From<FlowFailure> for FlowOutcome {
    fn from(failure: FlowFailure) -> Self {
        Self::Failed(failure)
    }
}

impl FlowFailure {
    /// Whether a proxy refused the flow before it dialled the destination, because of a limit of
    /// its own.
    pub fn is_limit(self) -> bool {
        matches!(
            self,
            Self::Overloaded | Self::LocalResources | Self::ServerFull | Self::ClientLimit
        )
    }
}

label! {
    /// State of a QUIC connection.
    ConnectionState {
        /// The handshake is under way.
        Connecting = "connecting",
        /// Flows can be carried.
        Established = "established",
        /// Being closed, no new flows.
        Draining = "draining",
    }
}

label! {
    /// Why a QUIC handshake failed.
    HandshakeFailure {
        /// The peer sent no certificate.
        NoCertificate = "no_certificate",
        /// The peer's certificate comes from another authority.
        UnknownAuthority = "unknown_authority",
        /// The peer's certificate has expired, or is not valid yet.
        Expired = "expired",
        /// The peer's certificate is for another name or use.
        WrongName = "wrong_name",
        /// The peer is on the deny-list.
        Denied = "denied",
        /// The peer refused our certificate or handshake.
        RefusedByPeer = "refused_by_peer",
        /// The peer was silent.
        Timeout = "timeout",
        /// The limit of connections was reached.
        Overloaded = "overloaded",
        /// Anything else; the log says what.
        Other = "other",
    }
}

label! {
    /// What the token of an earlier connection shows of the client that begins another one.
    KnownClientToken {
        /// The client is known, and has the address that it had.
        SameAddress = "same_address",
        /// The client is known, and has another address.
        OtherAddress = "other_address",
        /// Nothing: the token is expired, or from a server with another private key.
        Invalid = "invalid",
    }
}

label! {
    /// The outcome of a configuration reload.
    ReloadResult {
        /// The new configuration is in force.
        Done = "done",
        /// The new configuration is wrong, and the previous one in force.
        Refused = "refused",
    }
}

label! {
    /// A parser of what peers send.
    Parser {
        /// PROXY protocol, both versions.
        ProxyProtocol = "proxy_protocol",
        /// SOCKS5.
        Socks5 = "socks5",
        /// HTTP/1.1 CONNECT.
        HttpConnect = "http_connect",
        /// HTTP/3 fields.
        Http3 = "http3",
        /// QUIC packets and frames.
        Quic = "quic",
    }
}

label! {
    /// What the class of a client's TCP flow was decided by.
    FlowRecognition {
        /// The first bytes are an RTSP request.
        Rtsp = "rtsp",
        /// RTSP tunnelled in HTTP.
        RtspOverHttp = "rtsp_over_http",
        /// HTTP with a player's report (CMCD).
        HttpCmcd = "http_cmcd",
        /// HTTP, for a manifest, a playlist or a segment.
        HttpMedia = "http_media",
        /// Other HTTP.
        Http = "http",
        /// TLS.
        Tls = "tls",
        /// Another protocol.
        Other = "other",
        /// The first bytes did not come in time, or not before the reply of an explicit proxy.
        Undecided = "undecided",
        /// The configuration: `class_of_ports`, or `recognise_class` is off.
        Configured = "configured",
        /// An RTSP request after the class was decided. Such a flow counts twice.
        LateRtsp = "late_rtsp",
    }
}

label! {
    /// How a path's MTU was found to have fallen.
    PathMtuDecrease {
        /// Larger packets were not acknowledged any more.
        BlackHole = "black_hole",
        /// A router has reported it.
        Icmp = "icmp",
        /// The interface that packets leave by has another one.
        Local = "local",
    }
}

label! {
    /// Why something that was received or accepted was thrown away.
    Drop {
        /// A datagram of no connection that we know, and not the start of one.
        UnknownConnection = "unknown_connection",
        /// A datagram that came to the socket of another worker than that of its connection, which had no room for
        /// it.
        OtherWorkerBusy = "other_worker_busy",
        /// A datagram that is no QUIC packet.
        Malformed = "malformed",
        /// A packet of a QUIC version that is not supported; its sender is told which one is.
        UnsupportedVersion = "unsupported_version",
        /// The limit of connections was reached.
        ConnectionLimit = "connection_limit",
        /// Accepting paused, because the process or the system has no file descriptor left.
        DescriptorLimit = "descriptor_limit",
        /// The limit of flows was reached.
        FlowLimit = "flow_limit",
        /// A flow of a client that has its share, while others need what is free.
        ClientFlowShare = "client_flow_share",
        /// A flow of a viewer address that has its share, while others need what is free.
        ViewerFlowShare = "viewer_flow_share",
        /// A flow of a listener that has its share, while others need what is free.
        ListenerFlowShare = "listener_flow_share",
        /// A UDP flow without a reply that was evicted for a newer one.
        UnansweredUdpFlow = "unanswered_udp_flow",
        /// The memory cap was reached.
        MemoryCap = "memory_cap",
        /// A handshake while all of the places for clients that are not authenticated are taken.
        Handshakes = "handshakes",
        /// A handshake of an address that has its share, while others need what is free.
        HandshakeShare = "handshake_share",
        /// A connection to a PROXY listener from a network that is not trusted.
        UntrustedProxy = "untrusted_proxy",
        /// A client of an explicit proxy with wrong credentials, or without any.
        WrongCredentials = "wrong_credentials",
        /// A handshake of an address that has as many under way as it may.
        PeerHandshakes = "peer_handshakes",
        /// A handshake of an address that begins too many in a short time.
        PeerHandshakeRate = "peer_handshake_rate",
        /// A connection of a peer that has as many as it may.
        PeerConnections = "peer_connections",
        /// A connection of a client that was added to the deny-list.
        DeniedClient = "denied_client",
        /// A flow of a peer that has as many as it may.
        PeerFlows = "peer_flows",
        /// A connection of a peer whose memory is used up.
        PeerMemory = "peer_memory",
        /// A packet with a Retry token that is forged, expired or of another client.
        InvalidToken = "invalid_token",
        /// The socket's send queue was full for too long.
        SendQueue = "send_queue",
        /// A datagram of a UDP flow whose queue was full: the oldest in it.
        DatagramQueue = "datagram_queue",
        /// A datagram of a UDP flow that is larger than a packet, or than a link beyond.
        DatagramTooLarge = "datagram_too_large",
        /// A datagram with an unknown context ID.
        DatagramContext = "datagram_context",
        /// A datagram of a UDP flow that does not exist, or not yet for too long.
        DatagramFlow = "datagram_flow",
        /// A SETUP of RTSP for which no ports were left.
        RtspPorts = "rtsp_ports",
        /// A SETUP of RTSP of a viewer that has its share of ports, while others need what is free.
        RtspPortShare = "rtsp_port_share",
        /// A datagram that the socket of its UDP flow did not take.
        DatagramSocket = "datagram_socket",
    }
}

label! {
    /// What happened to datagrams of UDP flows whose loss is repaired, or that have a deadline.
    DatagramRepair {
        /// Sent again, as it was lost.
        Retransmitted = "retransmitted",
        /// Lost, and not sent again: it would have come after its deadline.
        Unrepaired = "unrepaired",
        /// Dropped because it had waited too long to be sent, or to be sent again.
        Late = "late",
        /// Received twice.
        Duplicate = "duplicate",
        /// Repair datagrams sent, for forward error correction.
        Redundancy = "redundancy",
        /// Lost, and computed from repair datagrams by the receiver.
        Corrected = "corrected",
        /// Received, and held back until an earlier one came or was given up.
        Held = "held",
        /// Missing, and given up by the receiver, so that those behind it go on.
        Skipped = "skipped",
    }
}

impl From<FlowRefusal> for Drop {
    fn from(refusal: FlowRefusal) -> Self {
        match refusal {
            FlowRefusal::Full => Self::FlowLimit,
            FlowRefusal::Client => Self::PeerFlows,
            FlowRefusal::ClientShare => Self::ClientFlowShare,
            FlowRefusal::ViewerShare => Self::ViewerFlowShare,
            FlowRefusal::ListenerShare => Self::ListenerFlowShare,
        }
    }
}

impl Label for Class {
    const ALL: &'static [Self] = &Self::ALL;

    fn as_str(self) -> &'static str {
        self.as_str()
    }
}

impl Label for IgnoredReason {
    const ALL: &'static [Self] = &Self::ALL;

    fn as_str(self) -> &'static str {
        self.as_str()
    }
}

impl Label for DeniedReason {
    const ALL: &'static [Self] = &Self::ALL;

    fn as_str(self) -> &'static str {
        self.as_str()
    }
}

label! {
    /// What became of a request to the enrolment listener of a server.
    EnrolmentResult {
        /// A client has got its first certificate.
        Joined = "joined",
        /// A client has got a new certificate.
        Renewed = "renewed",
        /// The invitation is unknown, used, expired or has another secret.
        InvalidInvitation = "invalid_invitation",
        /// The signing request can't be used.
        InvalidSigningRequest = "invalid_signing_request",
        /// A renewal without a valid certificate of this authority.
        Unauthenticated = "unauthenticated",
        /// The client is on the deny-list.
        ClientDenied = "client_denied",
        /// The server could not issue a certificate; the log says why.
        Unavailable = "unavailable",
        /// The connection failed before an answer: no TLS, no request, or out of time.
        Failed = "failed",
        /// The limit of connections or attempts was reached.
        LimitReached = "limit_reached",
    }
}

label! {
    /// The outcome of an attempt of a program to renew its own certificate.
    RenewalResult {
        /// The certificate is replaced.
        Success = "success",
        /// The attempt failed; the log says why, and it is repeated.
        Failure = "failure",
    }
}

label! {
    /// The outcome of an export of metrics or traces.
    ExportResult {
        /// The collector has taken it.
        Accepted = "accepted",
        /// The collector has refused it, or did not answer in time.
        NotAccepted = "not_accepted",
    }
}

label! {
    /// Why RTSP media over UDP were not carried.
    SetupRefusal {
        /// The player names no ports, or another host than itself.
        Transport = "transport",
        /// No ports are left, or the connection has as many media as it may.
        Ports = "ports",
        /// The tunnel server does not follow RTSP.
        Server = "server",
        /// The origin's answer can't be used.
        Answer = "answer",
    }
}

label! {
    /// What was dropped of the media in an RTSP connection.
    DroppedMedium {
        /// A frame of video.
        Video = "video",
        /// A frame of audio.
        Audio = "audio",
    }
}

/// Bounds of `millrace_rtsp_queue_wait_seconds`: without a queue frames wait for milliseconds, and none waits for more
/// than the time that is configured, 2 s by default.
const QUEUE_WAIT_BOUNDS_S: [f64; 9] = [0.01, 0.03, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0];

/// All that a process counts. Shared by all of its threads.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    workers: Workers,
    selectors: Selectors,
    /// Flows that were accepted, whatever their outcome.
    pub flows_opened: IntCounter,
    /// Flows that have ended.
    pub flows_finished: CounterFamily<FlowOutcome>,
    /// Active flows.
    pub flows_active: IntGauge,
    /// UDP flows without a reply so far.
    pub udp_flows_unanswered: IntGauge,
    /// Flows that bypassed the tunnel.
    pub flows_direct: IntCounter,
    /// A client's TCP flows, by the class that they got.
    pub flows_classified: CounterFamily<Class>,
    /// A client's TCP flows, by what their class was decided by.
    pub flows_recognised: CounterFamily<FlowRecognition>,
    /// Open QUIC connections.
    pub connections: GaugeFamily<ConnectionState>,
    /// QUIC handshakes that failed.
    pub handshake_failures: CounterFamily<HandshakeFailure>,
    /// Destinations denied by the allow-list.
    pub destinations_denied: CounterFamily<DeniedReason>,
    /// Requests for a congestion control that is not selectable.
    pub congestion_control_refused: IntCounter,
    /// Malformed protocol messages rejected.
    pub protocol_errors: CounterFamily<Parser>,
    /// Keys of player reports that were ignored, and whole reports.
    pub cmcd_ignored: CounterFamily<IgnoredReason>,
    /// Requests of players while their rate may be capped.
    pub rate_cap_requests: CounterFamily<RateCapResult>,
    /// Paths whose MTU was found to have fallen.
    pub path_mtu_decreases: CounterFamily<PathMtuDecrease>,
    /// Datagrams of UDP flows that went in capsules: no packet had room for them, or the peer takes none.
    pub datagram_capsules: IntCounter,
    /// Datagrams whose loss was repaired, or not, and late ones.
    pub datagram_repairs: CounterFamily<DatagramRepair>,
    /// RTSP media over UDP that were not carried.
    pub rtsp_setups_refused: CounterFamily<SetupRefusal>,
    /// Frames in RTSP connections that were dropped because they had waited for too long.
    pub rtsp_frames_dropped: CounterFamily<DroppedMedium>,
    /// How long frames in RTSP connections waited for the tunnel at the server.
    pub rtsp_queue_wait: Histogram,
    /// What was thrown away.
    pub drops: CounterFamily<Drop>,
    /// Configuration reloads.
    pub reloads: CounterFamily<ReloadResult>,
    /// Requests to the enrolment listener.
    pub enrolments: CounterFamily<EnrolmentResult>,
    /// Renewals of the own certificate.
    pub renewals: CounterFamily<RenewalResult>,
    /// When the own certificate expires, in seconds since 1970-01-01T00:00:00Z.
    pub certificate_expiry: IntGauge,
    /// Exports over OTLP.
    pub exports: CounterFamily<ExportResult>,
    /// Spans that were not exported.
    pub spans_dropped: IntCounter,
    /// Panics that ended a connection.
    pub panics: IntCounter,
    /// Clients that were asked to prove their address first.
    pub retries_sent: IntCounter,
    /// First packets of clients that have been authenticated before.
    pub known_client_tokens: CounterFamily<KnownClientToken>,
    /// Bytes that connections and flows hold.
    pub memory_used_bytes: IntGauge,
    /// Limit of `memory_used_bytes`.
    pub memory_cap_bytes: IntGauge,
}

impl Metrics {
    /// All counters at 0. `program` is a label of `millrace_build_info`, such as
    /// `millrace-server`.
    ///
    /// # Errors
    /// The registry refuses a metric.
    pub fn new(program: &str, version: &str) -> prometheus::Result<Arc<Self>> {
        let registry = Registry::new();
        let workers = Workers::new()?;
        registry.register(Box::new(workers.clone()))?;
        let selectors = Selectors::new()?;
        registry.register(Box::new(selectors.clone()))?;
        registry.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;
        let build = prometheus::IntGaugeVec::new(
            prometheus::Opts::new("millrace_build_info", "Program and version; always 1"),
            &["program", "version"],
        )?;
        build.with_label_values(&[program, version]).set(1);
        registry.register(Box::new(build))?;
        let counter = |name: &str, help: &str| -> prometheus::Result<IntCounter> {
            let counter = IntCounter::new(name, help)?;
            registry.register(Box::new(counter.clone()))?;
            Ok(counter)
        };
        let gauge = |name: &str, help: &str| -> prometheus::Result<IntGauge> {
            let gauge = IntGauge::new(name, help)?;
            registry.register(Box::new(gauge.clone()))?;
            Ok(gauge)
        };
        let rtsp_queue_wait = Histogram::with_opts(
            HistogramOpts::new(
                "millrace_rtsp_queue_wait_seconds",
                "Time that frames in RTSP connections waited for the tunnel at the server",
            )
            .buckets(QUEUE_WAIT_BOUNDS_S.to_vec()),
        )?;
        registry.register(Box::new(rtsp_queue_wait.clone()))?;
        Ok(Arc::new(Self {
            flows_opened: counter("millrace_flows_opened_total", "Flows accepted")?,
            flows_finished: CounterFamily::register(
                &registry,
                "millrace_flows_finished_total",
                "Flows that have ended: complete, or why they carried no data or ended early",
                "outcome",
            )?,
            flows_active: gauge("millrace_flows_active", "Active flows")?,
            udp_flows_unanswered: gauge(
                "millrace_udp_flows_unanswered",
                "UDP flows without a reply so far; not in millrace_flows_active",
            )?,
            flows_direct: counter("millrace_flows_direct_total", "Flows that bypassed the tunnel")?,
            flows_classified: CounterFamily::register(
                &registry,
                "millrace_flows_classified_total",
                "TCP flows of a client, by the class that they got",
                "class",
            )?,
            flows_recognised: CounterFamily::register(
                &registry,
                "millrace_flows_recognised_total",
                "TCP flows of a client, by the protocol of their first bytes",
                "protocol",
            )?,
            connections: GaugeFamily::register(
                &registry,
                "millrace_connections",
                "Open QUIC connections",
                "state",
            )?,
            handshake_failures: CounterFamily::register(
                &registry,
                "millrace_handshake_failures_total",
                "QUIC handshakes that failed",
                "reason",
            )?,
            destinations_denied: CounterFamily::register(
                &registry,
                "millrace_destinations_denied_total",
                "Destinations denied by the allow-list",
                "reason",
            )?,
            congestion_control_refused: counter(
                "millrace_congestion_control_refused_total",
                "Requests for a congestion control that is not selectable",
            )?,
            protocol_errors: CounterFamily::register(
                &registry,
                "millrace_protocol_errors_total",
                "Malformed protocol messages rejected",
                "parser",
            )?,
            cmcd_ignored: CounterFamily::register(
                &registry,
                "millrace_cmcd_ignored_total",
                "CMCD keys ignored, and whole reports (version, too_long)",
                "reason",
            )?,
            rate_cap_requests: CounterFamily::register(
                &registry,
                "millrace_rate_cap_requests_total",
                "Requests in flows of class dash by whether the rate cap applies to their answers (dash.rate_cap)",
                "result",
            )?,
            path_mtu_decreases: CounterFamily::register(
                &registry,
                "millrace_path_mtu_decreases_total",
                "Path MTU decreases on tunnel connections, by how they were detected",
                "reason",
            )?,
            datagram_capsules: counter(
                "millrace_datagram_capsules_total",
                "UDP datagrams sent in capsules on their stream instead of in QUIC datagrams",
            )?,
            datagram_repairs: CounterFamily::register(
                &registry,
                "millrace_datagram_repairs_total",
                "Datagrams of media and QUIC that were retransmitted, corrected, held, lost, late or duplicates",
                "event",
            )?,
            rtsp_setups_refused: CounterFamily::register(
                &registry,
                "millrace_rtsp_setups_refused_total",
                "RTSP media over UDP that were not carried; the player was answered 461",
                "reason",
            )?,
            rtsp_frames_dropped: CounterFamily::register(
                &registry,
                "millrace_rtsp_frames_dropped_total",
                "Frames in RTSP connections dropped because they had waited for too long",
                "medium",
            )?,
            rtsp_queue_wait,
            drops: CounterFamily::register(
                &registry,
                "millrace_drops_total",
                "Datagrams, connections and flows dropped",
                "reason",
            )?,
            reloads: CounterFamily::register(
                &registry,
                "millrace_reloads_total",
                "Configuration reloads",
                "result",
            )?,
            enrolments: CounterFamily::register(
                &registry,
                "millrace_enrolment_requests_total",
                "Requests to the enrolment listener of a server: joins and renewals, or why they were refused",
                "result",
            )?,
            renewals: CounterFamily::register(
                &registry,
                "millrace_certificate_renewals_total",
                "Attempts of the program to renew its own certificate",
                "result",
            )?,
            certificate_expiry: gauge(
                "millrace_certificate_expiry_timestamp_seconds",
                "When the program's own certificate expires, in seconds since 1970-01-01T00:00:00Z",
            )?,
            exports: CounterFamily::register(
                &registry,
                "millrace_otlp_exports_total",
                "Exports of metrics and traces over OTLP",
                "result",
            )?,
            spans_dropped: counter(
                "millrace_otlp_spans_dropped_total",
                "Spans that were not exported: the queue was full, or the collector did not take them",
            )?,
            panics: counter(
                "millrace_panics_total",
                "Panics that ended one connection; the log has the location",
            )?,
            retries_sent: counter(
                "millrace_retries_sent_total",
                "QUIC Retry packets sent (address validation)",
            )?,
            known_client_tokens: CounterFamily::register(
                &registry,
                "millrace_known_client_tokens_total",
                "First packets of connections with a token of an earlier one (NEW_TOKEN)",
                "result",
            )?,
            memory_used_bytes: gauge(
                "millrace_memory_used_bytes",
                "Memory of connections and flows: buffers, fragments and a fixed cost per connection",
            )?,
            memory_cap_bytes: gauge(
                "millrace_memory_cap_bytes",
                "Limit of millrace_memory_used_bytes",
            )?,
            workers,
            selectors,
            registry,
        }))
    }

    /// New counters for one event loop; they count as long as the process lives.
    pub fn worker(&self) -> Arc<WorkerCounters> {
        self.workers.add()
    }

    /// Flow bytes of all workers, up (from client to destination) and down.
    pub fn flow_bytes(&self) -> (u64, u64) {
        self.workers.flow_bytes()
    }

    /// Counters for the servers with these names. To be called once.
    ///
    /// # Errors
    /// The registry refuses a metric.
    pub fn servers(&self, names: &[String]) -> prometheus::Result<Vec<ServerMetrics>> {
        ServerMetrics::register(&self.registry, names)
    }

    /// Shows what another part of the process counts too.
    ///
    /// # Errors
    /// The registry refuses a metric.
    pub fn register(&self, collector: Box<dyn Collector>) -> prometheus::Result<()> {
        self.registry.register(collector)
    }

    /// All families, as a scrape has them.
    pub fn gather(&self) -> Vec<MetricFamily> {
        self.registry.gather()
    }

    /// Counts what a Selector does too.
    pub fn watch_selector(&self, account: Arc<SharedSelectorCounts>) {
        self.selectors.add(account);
    }

    /// Everything in the text format of Prometheus.
    ///
    /// # Errors
    /// A metric can't be encoded.
    pub fn render(&self) -> prometheus::Result<String> {
        TextEncoder::new().encode_to_string(&self.gather())
    }
}

#[cfg(test)]
mod tests;
