//! Configuration of `millrace-client` and `millrace-server`.
//!
//! A file is TOML. [`parse_client`] and [`parse_server`] either return a configuration that is
//! valid as a whole, or one [`ConfigError`] with file, line, column, key and the values allowed
//! there. Unknown keys are errors. Nothing is opened or bound here, except the file itself by
//! [`load_client`] and [`load_server`], and the files with certificates and secrets by their `check_files`.
//!
//! Relative paths in a file start at the directory of that file. The documented examples are
//! `proxy-client/client.example.toml` and `proxy-server/server.example.toml`.

mod allow;
mod class_of_ports;
mod client;
mod common;
mod congestion_control;
mod denied_clients;
pub mod destinations;
mod enrolment;
mod error;
mod interception;
mod listen;
mod mcc;
mod network;
mod networks;
mod origin;
mod otlp;
mod proxy_users;
mod resolver;
#[cfg(feature = "schema")]
mod schema;
mod secret_file;
mod server;
mod server_limits;
mod servers;
mod source;
mod tcp_timeouts;
mod transport;
mod trusted_proxies;
mod value;

use std::path::Path;

pub use allow::{Allow, AllowedHost, Protocol};
pub use class_of_ports::ClassOfPorts;
pub use client::{ClientConfig, ClientLimits, ClientTunnel, Connections};
pub use common::{Admin, AdminToken, Class, Credentials, Log, LogFormat, LogLevel, Runtime};
pub use congestion_control::{AlgorithmProblem, CheckAlgorithm, CongestionControl};
pub use denied_clients::{DeniedClients, DeniedEntry};
pub use destinations::{Acl, Denied, DeniedReason, OwnAddresses};
pub use enrolment::{ClientEnrolment, ServerEnrolment};
pub use error::ConfigError;
pub use interception::{Interception, ListenAddress};
pub use listen::{FailMode, ImmutableListen, Listen};
pub use mcc::{Mcc, Telemetry};
pub use networks::Networks;
pub use origin::WebOrigin;
pub use otlp::{CollectorUrl, HeaderFields, InvalidCollectorUrl, Otlp};
pub use proxy_users::ProxyUsers;
pub use resolver::ResolverSettings;
#[cfg(feature = "schema")]
pub use schema::{client_schema, server_schema};
pub use server::{DashSettings, Dial, RtspSettings, ServerConfig, ServerTunnel, SessionTickets};
pub use server_limits::ServerLimits;
pub use servers::TunnelServer;
pub use source::Source;
pub use tcp_timeouts::TcpTimeouts;
pub use transport::{INITIAL_CONGESTION_WINDOW_PACKETS, TransportConfig};
pub use trusted_proxies::TrustedProxies;
pub use value::{Host, HostPort};

/// Parses and checks a client configuration.
///
/// `file_name` is used in errors, and its directory is where relative paths start. `known`
/// says which algorithms `congestion_control` may name.
///
/// # Errors
/// The first thing found wrong.
pub fn parse_client(
    text: &str,
    file_name: &Path,
    known: CheckAlgorithm<'_>,
) -> Result<ClientConfig, ConfigError> {
    ClientConfig::from_source(Source::new(text, file_name), known)
}

/// Reads, parses and checks a client configuration; see [`parse_client`].
///
/// # Errors
/// The file can't be read, or the first thing found wrong in it.
pub fn load_client(path: &Path, known: CheckAlgorithm<'_>) -> Result<ClientConfig, ConfigError> {
    ClientConfig::from_source(Source::read(path)?, known)
}

/// Parses and checks a server configuration; parameters as for [`parse_client`].
///
/// # Errors
/// The first thing found wrong.
pub fn parse_server(
    text: &str,
    file_name: &Path,
    known: CheckAlgorithm<'_>,
) -> Result<ServerConfig, ConfigError> {
    ServerConfig::from_source(Source::new(text, file_name), known)
}

/// Reads, parses and checks a server configuration; see [`parse_server`].
///
/// # Errors
/// The file can't be read, or the first thing found wrong in it.
pub fn load_server(path: &Path, known: CheckAlgorithm<'_>) -> Result<ServerConfig, ConfigError> {
    ServerConfig::from_source(Source::read(path)?, known)
}
