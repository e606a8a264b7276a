//! quiche, BoringSSL and HTTP/3 set up as both ends need them.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use boring::error::ErrorStack;
use boring::ssl::{SslContextBuilder, SslFiletype, SslMethod, SslVerifyMode};
use boring::x509::X509;
use millrace_cc::quiche_adapter;
use millrace_cc::registry::{self, Algorithm};
use millrace_config::{
    ConfigError, Credentials, DeniedClients, INITIAL_CONGESTION_WINDOW_PACKETS, Source,
    TransportConfig,
};
use millrace_wire::h3_connect::MAX_FIELD_SECTION_BYTES;

use crate::address_validation::AddressValidation;
use crate::agent::Agent;
use crate::algorithms::CcPolicy;
use crate::credentials::{CertificateOwner, Contents, Problem};
use crate::datagrams;
use crate::memory::MIN_STREAM_WINDOW_BYTES;
use crate::peer_verification::{PeerVerifier, Purpose, refuse_denied};
use crate::session_tickets;
use crate::session_tickets::TicketKeys;
use crate::stateless_reset::StatelessReset;

/// Unidirectional streams that a peer may open: control and both QPACK ones
/// (RFC 9114, Section 6.2), with room for the reserved types of Section 6.2.3.
const MAX_UNI_STREAMS: u64 = 8;
/// Window of a unidirectional stream: settings and GOAWAY are all that comes.
const UNI_WINDOW_BYTES: u64 = 64 << 10;
/// Connection IDs kept in reserve, so that a path change finds one (RFC 9000, Section 5.1.1).
const ACTIVE_CONNECTION_IDS: u64 = 4;
/// How much larger a connection's first window is than a stream's. It only bounds what is on its
/// way.
const INITIAL_CONNECTION_WINDOWS: u64 = 16;

/// What is different at the two ends.
#[derive(Clone, Copy)]
pub enum TransportSide<'a> {
    /// Dials, and opens streams.
    Client,
    /// Accepts.
    Server(ServerSide<'a>),
}

/// What only a server has; the same for all its workers.
#[derive(Clone, Copy)]
pub struct ServerSide<'a> {
    /// Streams that one connection may have at a time.
    pub max_streams: u64,
    /// Shared, so that each worker resumes the others' sessions.
    pub ticket_keys: &'a Arc<TicketKeys>,
    /// Clients that are refused although their certificate is valid.
    pub denied_clients: &'a Arc<DeniedClients>,
    /// Tokens of connection IDs.
    pub reset: &'a StatelessReset,
}

/// Why a transport can't be set up.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// A PEM file that can't be read or is not what it should be.
    #[error("{what} {path}: {problem}")]
    Credentials {
        /// The key of the configuration.
        what: &'static str,
        /// The file.
        path: String,
        /// Why it is of no use.
        problem: String,
    },
    /// A certificate or key that TLS can't be set up with.
    #[error("{0}")]
    Unusable(Problem),
    /// No such algorithm, or not with these parameters.
    #[error(transparent)]
    CongestionControl(#[from] registry::AlgorithmError),
    /// quiche refused a setting.
    #[error("QUIC transport: {0}")]
    Quic(#[from] quiche::Error),
    /// quiche refused an HTTP/3 setting.
    #[error("HTTP/3: {0}")]
    Http3(#[from] quiche::h3::Error),
    /// BoringSSL failed.
    #[error("TLS: {0}")]
    Tls(#[from] ErrorStack),
}

impl TransportError {
    /// Converts it to an error of the configuration that named the credentials; `ca_key` is the key
    /// of their authority.
    pub fn in_config(&self, source: &Source, ca_key: &str) -> ConfigError {
        let key = match self {
            Self::Unusable(problem) => return source.error(problem.key, problem.to_string()),
            Self::Credentials { what: "ca", .. } => ca_key,
            Self::Credentials { what, .. } => what,
            Self::CongestionControl(_) => "congestion_control",
            Self::Quic(_) | Self::Http3(_) | Self::Tls(_) => "certificate",
        };
        source.error(&format!("tunnel.{key}"), self.to_string())
    }
}

/// What new connections of a worker are made with.
pub struct TunnelConfig {
    /// Transport parameters and TLS.
    pub quic: quiche::Config,
    /// HTTP/3 settings.
    pub http3: quiche::h3::Config,
    pub(crate) algorithm: Algorithm,
    /// Where rules select algorithms; of a worker's first configuration only.
    pub agent: Option<Agent>,
    pub(crate) reset: Option<StatelessReset>,
    pub(crate) address_validation: Option<AddressValidation>,
    /// For sessions that are about to be resumed.
    pub(crate) verifier: PeerVerifier,
    /// Largest packet, as UDP payload.
    pub max_udp_payload_bytes: u16,
    /// By how much media over UDP may be late; `None` for any.
    pub media_deadline: Option<Duration>,
    /// Whether media have forward error correction where the round trip is too long to send again.
    pub media_fec: bool,
    /// Whether lost packets of QUIC in UDP flows are sent again.
    pub quic_repair: bool,
}

impl TunnelConfig {
    /// Reads the credentials and sets everything up. What is selected begins with `initial`.
    ///
    /// # Errors
    /// A credential can't be used, an algorithm is unknown, or QUIC or TLS refuses a setting.
    pub fn new(
        side: TransportSide<'_>,
        transport: &TransportConfig,
        credentials: &Credentials,
        initial: Option<&Algorithm>,
    ) -> Result<Self, TransportError> {
        let end = match side {
            TransportSide::Client => CertificateOwner::Client,
            TransportSide::Server(_) => CertificateOwner::Server,
        };
        if let Some(problem) = Contents::read(end, credentials)?.unusable() {
            return Err(TransportError::Unusable(problem.clone()));
        }
        let algorithm = CcPolicy::new(&transport.congestion_control, initial)?.algorithm;
        let (reset, address_validation) = match side {
            TransportSide::Client => (None, None),
            TransportSide::Server(server) => {
                let path = &credentials.private_key;
                let key = fs::read(path).map_err(|error| TransportError::Credentials {
                    what: "private_key",
                    path: path.display().to_string(),
                    problem: error.to_string(),
                })?;
                let validation = AddressValidation::new(&key, server.ticket_keys.clone())?;
                (Some(server.reset.clone()), Some(validation))
            }
        };
        let verifier = verifier(side, credentials)?;
        Ok(Self {
            reset,
            address_validation,
            quic: quic_config(side, transport, credentials, &algorithm, &verifier)?,
            verifier,
            max_udp_payload_bytes: transport.max_udp_payload_bytes,
            media_deadline: transport.media_deadline,
            media_fec: transport.media_fec,
            quic_repair: transport.quic_repair,
            http3: h3_config()?,
            algorithm,
            agent: None,
        })
    }
}

fn quic_config(
    side: TransportSide<'_>,
    transport: &TransportConfig,
    credentials: &Credentials,
    algorithm: &Algorithm,
    verifier: &PeerVerifier,
) -> Result<quiche::Config, TransportError> {
    let tls = tls_context(side, credentials, verifier)?;
    let mut config = quiche::Config::with_boring_ssl_ctx_builder(quiche::PROTOCOL_VERSION, tls)?;
    config.set_application_protos(quiche::h3::APPLICATION_PROTOCOL)?;
    config.grease(false);
    config.enable_early_data();

    let idle_ms = u64::try_from(transport.idle_timeout.as_millis()).unwrap_or(u64::MAX);
    config.set_max_idle_timeout(idle_ms);
    config.set_max_recv_udp_payload_size(usize::from(u16::MAX));
    config.set_max_send_udp_payload_size(usize::from(transport.max_udp_payload_bytes));
    config.discover_pmtu(true);
    config.set_pmtud_search_interval(transport.path_mtu_probe_interval);
    config.set_initial_congestion_window_packets(INITIAL_CONGESTION_WINDOW_PACKETS);
    config.set_active_connection_id_limit(ACTIVE_CONNECTION_IDS);

    let window = transport.initial_window_bytes;
    let connection = transport.max_connection_window_bytes;
    config.set_initial_max_data(connection.min(window * INITIAL_CONNECTION_WINDOWS));
    config.set_initial_max_stream_data_bidi_local(window);
    config.set_initial_max_stream_data_bidi_remote(window);
    config.set_initial_max_stream_data_uni(UNI_WINDOW_BYTES);
    config.set_max_stream_window(transport.max_stream_window_bytes);
    config.set_min_stream_window(MIN_STREAM_WINDOW_BYTES);
    config.set_max_connection_window(connection);
    config.set_initial_max_streams_uni(MAX_UNI_STREAMS);
    config.enable_dgram(true, datagrams::RECEIVE_QUEUE_FRAMES, datagrams::SEND_QUEUE_FRAMES);
    if let TransportSide::Server(server) = side {
        config.set_initial_max_streams_bidi(server.max_streams);
    }
    quiche_adapter::apply(&mut config, algorithm)?;
    Ok(config)
}

/// HTTP/3 settings without a dynamic QPACK table, whose state a peer could make grow.
fn h3_config() -> Result<quiche::h3::Config, TransportError> {
    let mut config = quiche::h3::Config::new()?;
    config.set_max_field_section_size(MAX_FIELD_SECTION_BYTES as u64);
    config.set_qpack_max_table_capacity(0);
    config.set_qpack_blocked_streams(0);
    // RFC 9220; of a client it says nothing. HTTP datagrams are announced where QUIC has them.
    config.enable_extended_connect(true);
    Ok(config)
}

/// Accepts what a full handshake would accept.
fn verifier(
    side: TransportSide<'_>,
    credentials: &Credentials,
) -> Result<PeerVerifier, TransportError> {
    let authorities = read_certificates("ca", &credentials.ca)?;
    let (purpose, denied) = match side {
        TransportSide::Client => (Purpose::Server, Arc::default()),
        TransportSide::Server(server) => (Purpose::Client, server.denied_clients.clone()),
    };
    Ok(PeerVerifier::new(&authorities, purpose, denied)?)
}

fn tls_context(
    side: TransportSide<'_>,
    credentials: &Credentials,
    verifier: &PeerVerifier,
) -> Result<SslContextBuilder, TransportError> {
    let mut tls = SslContextBuilder::new(SslMethod::tls())?;
    let authorities = read_certificates("ca", &credentials.ca)?;
    let store = tls.cert_store_mut();
    for authority in &authorities {
        store.add_cert(authority)?;
    }
    // What is wrong with these files has been said in words before.
    let unusable = |what, path: &Path, _: ErrorStack| TransportError::Credentials {
        what,
        path: path.display().to_string(),
        problem: "TLS refuses it; make it again".to_owned(),
    };
    tls.set_certificate_chain_file(&credentials.certificate)
        .map_err(|error| unusable("certificate", &credentials.certificate, error))?;
    tls.set_private_key_file(&credentials.private_key, SslFiletype::PEM)
        .map_err(|error| unusable("private_key", &credentials.private_key, error))?;
    match side {
        TransportSide::Client => tls.set_verify(SslVerifyMode::PEER),
        TransportSide::Server(server) => {
            let denied = server.denied_clients.clone();
            let mode = SslVerifyMode::PEER | SslVerifyMode::FAIL_IF_NO_PEER_CERT;
            tls.set_verify_callback(mode, move |is_valid, context| {
                is_valid && refuse_denied(&denied, context)
            });
            session_tickets::install(&mut tls, server.ticket_keys.clone(), verifier.clone());
            // Without it BoringSSL resumes no session that had a client certificate.
            tls.set_session_id_context(b"millrace")?;
        }
    }
    Ok(tls)
}

fn read_certificates(what: &'static str, path: &Path) -> Result<Vec<X509>, TransportError> {
    let error = |problem: String| TransportError::Credentials {
        what,
        path: path.display().to_string(),
        problem,
    };
    let pem = fs::read(path).map_err(|e| error(e.to_string()))?;
    let damaged = |_| error("a PEM certificate in it is damaged".to_owned());
    let certificates = X509::stack_from_pem(&pem).map_err(damaged)?;
    if certificates.is_empty() {
        return Err(error("no PEM certificate in it".to_owned()));
    }
    Ok(certificates)
}
