//! `server.toml`.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use crate::allow::{RawAllow, check_allow};
use crate::common::{RawAdmin, RawCredentials, RawRuntime};
use crate::congestion_control::RawCongestionControl;
use crate::enrolment::RawServerEnrolment;
use crate::mcc::RawTelemetry;
use crate::otlp::RawOtlp;
use crate::resolver::RawResolver;
use crate::server_limits::RawServerLimits;
use crate::transport::tunnel_section;
use crate::value::{BindAddress, Int};
use crate::{
    Admin, Allow, CheckAlgorithm, ConfigError, CongestionControl, Credentials, DeniedClients, Log,
    Mcc, Otlp, ResolverSettings, Runtime, ServerEnrolment, ServerLimits, Source, Telemetry,
    TransportConfig,
};

/// A whole server configuration, checked.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// `[tunnel]`
    pub tunnel: ServerTunnel,
    /// `[enrolment]`; without `listen` clients get no certificates from this server.
    pub enrolment: Option<ServerEnrolment>,
    /// `[[destinations.allow]]`; empty refuses every destination. See [`crate::Acl`].
    pub allow: Vec<Allow>,
    /// `[dial]`
    pub dial: Dial,
    /// `[resolver]`
    pub resolver: ResolverSettings,
    /// `[rtsp]`
    pub rtsp: RtspSettings,
    /// `[dash]`
    pub dash: DashSettings,
    /// `[mcc]`; without the table, its defaults if an algorithm is `"mcc"`, otherwise `None`.
    pub mcc: Option<Mcc>,
    /// `[telemetry]`; without `dir` nothing is written.
    pub telemetry: Option<Telemetry>,
    /// `[otlp]`; without `endpoint` nothing is exported.
    pub otlp: Option<Otlp>,
    /// `[limits]`
    pub limits: ServerLimits,
    /// `[runtime]`
    pub runtime: Runtime,
    /// `[admin]`, by default 127.0.0.1:9465.
    pub admin: Admin,
    /// `[log]`
    pub log: Log,
    /// The text this came from, for errors that show up later.
    pub source: Source,
}

/// `[tunnel]` of a server.
#[derive(Clone, Debug)]
pub struct ServerTunnel {
    /// UDP addresses to listen on, at least one; port 0 lets the system choose.
    pub listen: Vec<SocketAddr>,
    /// Keys `client_ca`, `certificate` and `private_key`.
    pub credentials: Credentials,
    /// A file with clients that are refused although their certificate is valid, see [`DeniedClients`]; `None`,
    /// without the key, denies none.
    pub denied_clients: Option<PathBuf>,
    /// Keys `session_ticket_lifetime_s` and `session_ticket_rotation_s`.
    pub session_tickets: SessionTickets,
    /// Directory for what one instance of the server keeps over its restarts: the secret of its stateless
    /// resets. `None`, without the key, keeps nothing.
    pub state_dir: Option<PathBuf>,
    /// What a flow may ask for by its name, with the parameters given here; `None`, without the
    /// key, is every algorithm that needs no parameter.
    pub selectable_congestion_control: Option<Vec<CongestionControl>>,
    /// The keys that the client has too.
    pub transport: TransportConfig,
}

/// How long clients can resume a session (RFC 8446, Section 2.2) without a full handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionTickets {
    /// Age up to which a ticket is accepted, 1 s to 7 days (RFC 8446, Section 4.6.1); default 1 day. Too small
    /// costs reconnecting clients a round trip; too large lets a stolen key of a ticket be of use for longer.
    pub lifetime: Duration,
    /// Age at which the key that tickets are sealed with is replaced, 1 s to 7 days; default 12 h. The key before
    /// opens tickets for one more `lifetime`.
    pub rotation: Duration,
}

/// Keys that can be in use at a time, at most: `lifetime / rotation` and two more.
const MAX_LIFETIME_ROTATIONS: u32 = 100;

/// `[dial]`: how destinations are connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dial {
    /// Time for all addresses of a destination, after the resolution of its name, 1 s to 2 min;
    /// default 5 s. Too small fails far origins; too large keeps clients of dead ones waiting.
    pub timeout: Duration,
    /// Time for one address, 1 s to 2 min and at most `timeout`; default 4 s, or `timeout` if that is
    /// less.
    pub per_address_timeout: Duration,
    /// Start of the next address's attempt after the one before (RFC 8305 §5), 10 ms to 2 s;
    /// default 250 ms. Too small opens connections that are not used; too large waits for broken
    /// paths.
    pub attempt_delay: Duration,
    /// Source addresses, at most one of each family; without one the system chooses.
    pub bind_source: Vec<IpAddr>,
}

/// `[rtsp]`: what is done with media of RTSP sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtspSettings {
    /// How long RTP in an RTSP connection may wait for the tunnel before whole frames are dropped, up to 1 min; default
    /// 2 s, which is what GStreamer's `rtspsrc` waits for packets, and a group of pictures of most cameras. `None`, with 0,
    /// keeps back-pressure. Too small drops frames in short dips of the path; too large keeps live pictures that much
    /// behind after a dip.
    pub interleaved_queue: Option<Duration>,
}

/// `[dash]`: what is done for players of DASH and HLS.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DashSettings {
    /// Whether a player with 10 s or more in its buffer gets its video no faster than it can use, by what it says of
    /// itself (CMCD); default false.
    pub rate_cap: bool,
}

#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawServerConfig {
    tunnel: RawServerTunnel,
    #[serde(default)]
    enrolment: RawServerEnrolment,
    #[serde(default)]
    destinations: RawDestinations,
    #[serde(default)]
    dial: RawDial,
    #[serde(default)]
    resolver: RawResolver,
    #[serde(default)]
    rtsp: RawRtsp,
    #[serde(default)]
    dash: DashSettings,
    mcc: Option<Mcc>,
    #[serde(default)]
    telemetry: RawTelemetry,
    #[serde(default)]
    otlp: RawOtlp,
    #[serde(default)]
    limits: RawServerLimits,
    #[serde(default)]
    runtime: RawRuntime,
    #[serde(default)]
    admin: RawAdmin,
    #[serde(default)]
    log: Log,
}

tunnel_section! {
    struct RawServerTunnel {
        listen: Vec<BindAddress>,
        client_ca: PathBuf,
        certificate: PathBuf,
        private_key: PathBuf,
        denied_clients: Option<PathBuf>,
        #[serde(default)]
        session_ticket_lifetime_s: Int<86_400, 1, 604_800>,
        #[serde(default)]
        session_ticket_rotation_s: Int<43_200, 1, 604_800>,
        state_dir: Option<PathBuf>,
        selectable_congestion_control: Option<Vec<RawCongestionControl>>,
    }
}

#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawDestinations {
    allow: Vec<RawAllow>,
}

#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawDial {
    timeout_s: Int<5, 1, 120>,
    per_address_timeout_s: Option<Int<4, 1, 120>>,
    attempt_delay_ms: Int<250, 10, 2000>,
    bind_source: Vec<IpAddr>,
}

#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawRtsp {
    interleaved_queue_ms: Int<2000, 0, 60_000>,
}

impl RawRtsp {
    fn check(&self) -> RtspSettings {
        let queue = self.interleaved_queue_ms.milliseconds();
        RtspSettings { interleaved_queue: (!queue.is_zero()).then_some(queue) }
    }
}

impl ServerConfig {
    /// Where the admin listener is by default; not the client's, so that both fit on one host.
    pub const ADMIN_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9465);

    pub(crate) fn from_source(
        source: Source,
        known: CheckAlgorithm<'_>,
    ) -> Result<Self, ConfigError> {
        let raw: RawServerConfig = source.deserialize()?;
        let tunnel = raw.tunnel.check(&source, known)?;
        let selectable = tunnel.selectable_congestion_control.iter().flatten();
        let asks = tunnel.transport.asks_for_mcc()
            || selectable.into_iter().any(CongestionControl::managed);
        let telemetry = raw.telemetry.resolve(&source);
        Ok(Self {
            // Telemetry records what the Selector receives.
            mcc: Mcc::of_file(raw.mcc, asks || telemetry.is_some(), &source),
            telemetry,
            otlp: raw.otlp.check(&source)?,
            allow: check_allow(raw.destinations.allow, "destinations.allow", &source)?,
            dial: raw.dial.check(&source)?,
            resolver: raw.resolver.check(&source)?,
            rtsp: raw.rtsp.check(),
            dash: raw.dash,
            limits: raw.limits.check(&source, &tunnel.transport)?,
            tunnel,
            enrolment: raw.enrolment.check(&source)?,
            runtime: raw.runtime.check(&source)?,
            admin: raw.admin.check(&source, Self::ADMIN_ADDRESS)?,
            log: raw.log,
            source,
        })
    }

    /// Checks that the certificate files can be read and hold PEM of the right kind.
    ///
    /// # Errors
    /// The first file for which that is not so, with the line that names it.
    pub fn check_files(&self) -> Result<(), ConfigError> {
        self.tunnel.credentials.check_files(&self.source, "client_ca")?;
        self.otlp.as_ref().map_or(Ok(()), |otlp| otlp.check_files(&self.source))?;
        self.admin.check_files(&self.source)
    }

    /// Reads the deny-list; without one no client is denied.
    ///
    /// # Errors
    /// The file can't be read, is too long, or has an invalid line.
    pub fn denied_clients(&self) -> Result<DeniedClients, ConfigError> {
        self.tunnel
            .denied_clients
            .as_deref()
            .map_or_else(|| Ok(DeniedClients::default()), DeniedClients::read)
    }
}

impl RawServerTunnel {
    fn check(
        mut self,
        source: &Source,
        known: CheckAlgorithm<'_>,
    ) -> Result<ServerTunnel, ConfigError> {
        if self.listen.is_empty() {
            let problem = "needs at least one address, as \"0.0.0.0:4433\"";
            return Err(source.error("tunnel.listen", problem));
        }
        let listen: Vec<_> = self.listen.iter().map(|address| address.0).collect();
        let mut seen = HashSet::new();
        for (index, address) in listen.iter().enumerate() {
            if address.port() != 0 && !seen.insert(address) {
                let key = format!("tunnel.listen[{index}]");
                return Err(source.error(&key, format!("{address} is listed twice")));
            }
        }
        let transport = self.transport(source, known)?;
        let credentials = RawCredentials {
            ca_key: "client_ca",
            ca: &self.client_ca,
            certificate: &self.certificate,
            private_key: &self.private_key,
        }
        .resolve(source)?;
        let session_tickets = SessionTickets {
            lifetime: self.session_ticket_lifetime_s.seconds(),
            rotation: self.session_ticket_rotation_s.seconds(),
        };
        session_tickets.check(source)?;
        let selectable_congestion_control =
            check_selectable(self.selectable_congestion_control, source, known)?;
        let resolve = |path: Option<PathBuf>| path.map(|path| source.resolve(&path));
        Ok(ServerTunnel {
            listen,
            credentials,
            denied_clients: resolve(self.denied_clients),
            session_tickets,
            state_dir: resolve(self.state_dir),
            selectable_congestion_control,
            transport,
        })
    }
}

impl SessionTickets {
    fn check(self, source: &Source) -> Result<(), ConfigError> {
        if self.lifetime > self.rotation * MAX_LIFETIME_ROTATIONS {
            let problem = format!(
                "{:?} is less than a hundredth of session_ticket_lifetime_s, {:?}: too many keys would be in use; \
                 raise this or lower that",
                self.rotation, self.lifetime
            );
            return Err(source.error("tunnel.session_ticket_rotation_s", problem));
        }
        Ok(())
    }
}

impl RawDial {
    fn check(self, source: &Source) -> Result<Dial, ConfigError> {
        let timeout = self.timeout_s.seconds();
        let per_address_timeout = match self.per_address_timeout_s {
            Some(set) => set.seconds(),
            None => Int::<4, 1, 120>::default().seconds().min(timeout),
        };
        let dial = Dial {
            timeout,
            per_address_timeout,
            attempt_delay: self.attempt_delay_ms.milliseconds(),
            bind_source: self.bind_source,
        };
        if dial.per_address_timeout > dial.timeout {
            let problem = format!(
                "{:?} must not be more than dial.timeout_s, {:?}",
                dial.per_address_timeout, dial.timeout
            );
            return Err(source.error("dial.per_address_timeout_s", problem));
        }
        let mut families = HashSet::new();
        for (index, address) in dial.bind_source.iter().enumerate() {
            if !families.insert(address.is_ipv4()) {
                let key = format!("dial.bind_source[{index}]");
                let problem = "at most one IPv4 and one IPv6 address are allowed";
                return Err(source.error(&key, problem));
            }
        }
        Ok(dial)
    }
}

fn check_selectable(
    raw: Option<Vec<RawCongestionControl>>,
    source: &Source,
    known: CheckAlgorithm<'_>,
) -> Result<Option<Vec<CongestionControl>>, ConfigError> {
    let Some(raw) = raw else { return Ok(None) };
    let mut names = HashSet::new();
    let mut selectable = Vec::with_capacity(raw.len());
    for (index, raw) in raw.into_iter().enumerate() {
        let key = format!("tunnel.selectable_congestion_control[{index}]");
        let choice = raw.check(source, &key, known)?;
        if !names.insert(choice.name.clone()) {
            return Err(source.error(&key, format!("{:?} is listed twice", choice.name)));
        }
        selectable.push(choice);
    }
    Ok(Some(selectable))
}
