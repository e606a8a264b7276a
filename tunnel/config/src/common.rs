//! Sections that both programs have.

use std::fmt;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::{Deserialize, Deserializer};
use serde::{Deserialize as DeriveDeserialize, Serialize};

use crate::secret_file;
use crate::value::{Int, from_string};
use crate::{ConfigError, Source, WebOrigin};

/// What a flow carries; it decides which connection and which rules a flow gets.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, DeriveDeserialize, Serialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// A live RTSP stream: steady rate, latency matters.
    Rtsp,
    /// DASH segments: bursts, throughput and stalls matter.
    Dash,
    /// Anything else.
    #[default]
    Bulk,
}

impl Class {
    /// All of them, the usual one first.
    pub const ALL: [Self; 3] = [Self::Bulk, Self::Dash, Self::Rtsp];

    /// The name in configurations, metrics and headers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rtsp => "rtsp",
            Self::Dash => "dash",
            Self::Bulk => "bulk",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Paths of one end's TLS credentials, PEM files all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Certificates of the authorities that the peer's certificate must come from.
    pub ca: PathBuf,
    /// This end's certificate, followed by intermediate ones if there are any.
    pub certificate: PathBuf,
    /// The key of `certificate`.
    pub private_key: PathBuf,
}

/// The three paths as they are in the file, and the name of the authorities' key.
pub(crate) struct RawCredentials<'a> {
    pub(crate) ca_key: &'static str,
    pub(crate) ca: &'a Path,
    pub(crate) certificate: &'a Path,
    pub(crate) private_key: &'a Path,
}

impl RawCredentials<'_> {
    pub(crate) fn resolve(&self, source: &Source) -> Result<Credentials, ConfigError> {
        let path = |name: &str, path: &Path| {
            let text = path.to_string_lossy();
            // The text itself is not shown: it may be a private key.
            if text.is_empty() || text.contains('\n') || text.contains("-----BEGIN") {
                let problem = "must be the path of a PEM file, not its content";
                return Err(source.error(&format!("tunnel.{name}"), problem));
            }
            Ok(source.resolve(path))
        };
        Ok(Credentials {
            ca: path(self.ca_key, self.ca)?,
            certificate: path("certificate", self.certificate)?,
            private_key: path("private_key", self.private_key)?,
        })
    }
}

impl Credentials {
    /// Checks that all three files can be read and hold PEM of the right kind.
    pub(crate) fn check_files(&self, source: &Source, ca_key: &str) -> Result<(), ConfigError> {
        let files = [
            (ca_key, &self.ca, "CERTIFICATE-----"),
            ("certificate", &self.certificate, "CERTIFICATE-----"),
            ("private_key", &self.private_key, "PRIVATE KEY-----"),
        ];
        for (name, path, label) in files {
            let key = format!("tunnel.{name}");
            let pem = fs::read(path).map_err(|error| {
                source.error(&key, format!("can't read {}: {error}", path.display()))
            })?;
            let has_label = String::from_utf8_lossy(&pem)
                .lines()
                .any(|line| line.starts_with("-----BEGIN ") && line.trim_end().ends_with(label));
            if !has_label {
                let problem = format!("{} has no PEM section {label}", path.display());
                return Err(source.error(&key, problem.replace("-----", "")));
            }
        }
        Ok(())
    }
}

/// `[runtime]`: threads, and the end of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runtime {
    /// Event loops; `None`, written 0, is one per core. More than cores only adds switching;
    /// fewer leaves cores idle.
    pub workers: Option<NonZeroUsize>,
    /// Whether each worker, and its Selector, is bound to a processor of its own: caches stay warm, but the worker
    /// waits for whatever else runs on that processor. Default false.
    pub pin_workers: bool,
    /// How long running flows may go on after SIGTERM, 0 to 1 h; default 30 s. Too small cuts
    /// off transfers; too large delays restarts.
    pub drain_timeout: Duration,
    /// The account that a process which was started as root becomes, once it has bound its
    /// addresses; `None`, without the key, changes nothing.
    pub user: Option<String>,
    /// Its group; without the key that of the user.
    pub group: Option<String>,
}

impl Runtime {
    /// The number of event loops to start: as set, or one per core that the process may use.
    pub fn worker_count(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        self.workers.map_or_else(cores, NonZeroUsize::get)
    }
}

#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Default, DeriveDeserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawRuntime {
    workers: Int<0, 0, 256>,
    pin_workers: bool,
    drain_timeout_s: Int<30, 0, 3600>,
    user: Option<String>,
    group: Option<String>,
}

impl RawRuntime {
    pub(crate) fn check(self, source: &Source) -> Result<Runtime, ConfigError> {
        for (key, name) in [("user", &self.user), ("group", &self.group)] {
            if name.as_ref().is_some_and(String::is_empty) {
                let problem = "must be a name; leave the key out to change nothing";
                return Err(source.error(&format!("runtime.{key}"), problem));
            }
        }
        if self.user.is_none() && self.group.is_some() {
            return Err(source.error("runtime.group", "only goes with runtime.user"));
        }
        Ok(Runtime {
            workers: NonZeroUsize::new(self.workers.get()),
            pin_workers: self.pin_workers,
            drain_timeout: self.drain_timeout_s.seconds(),
            user: self.user,
            group: self.group,
        })
    }
}

/// Most entries of `admin.allowed_hosts`: as for `admin.cors_allow_origins`.
const MAX_HOSTS: usize = 64;
/// Most entries of `admin.cors_allow_origins`: each request is compared with all of them.
const MAX_ORIGINS: usize = 64;

/// `[admin]`: where `/metrics`, `/flows` and `/healthz` are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// The address to bind; `None`, written `"none"`, serves nothing. It is loopback unless
    /// `allow_remote` is set, because it shows which viewers watch what.
    pub address: Option<SocketAddr>,
    /// Where `/qlog` may write traces; `None`, without the key, allows none. It must exist.
    pub qlog_dir: Option<PathBuf>,
    /// Largest trace, 1 MB to 10 GB; default 64 MB (MB is 10^6 bytes).
    pub qlog_max_bytes: u64,
    /// Web pages that may read `/flows`, by their origin; none by default, at most 64.
    pub cors_allow_origins: Vec<WebOrigin>,
    /// Names that requests may call this machine by, beside its addresses; at most 64. Off loopback there
    /// must be one.
    pub allowed_hosts: Vec<String>,
    /// A file with the token that requests have to show, health checks aside. Off loopback it is needed.
    pub token_file: Option<PathBuf>,
}

/// What requests to the admin listener show. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct AdminToken {
    text: String,
    owner: u32,
    group: Option<u32>,
}

impl AdminToken {
    /// Reads the token from a file that not every user of this host can read.
    ///
    /// # Errors
    /// What is wrong with the file, and what would be right.
    pub fn read(path: &Path) -> io::Result<Self> {
        let file = secret_file::read(path, MAX_TOKEN_FILE_BYTES)?;
        let token = file.text.trim_end_matches(['\r', '\n']);
        let length = MIN_TOKEN_CHARS..=MAX_TOKEN_CHARS;
        // RFC 6750, Section 2.1.
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        if !length.contains(&token.len()) || !token.bytes().all(is_plain) {
            let problem = format!(
                "must hold one line of {MIN_TOKEN_CHARS} to {MAX_TOKEN_CHARS} letters, digits and \
                 -._~+/=, as openssl rand -hex 32 prints it"
            );
            return Err(secret_file::wrong(path, problem));
        }
        Ok(Self { text: token.to_owned(), owner: file.owner, group: file.group })
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.text.as_bytes()
    }

    /// The ID of the user that owns the file.
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// The ID of the group whose members can read the file, if they can.
    pub fn group(&self) -> Option<u32> {
        self.group
    }
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminToken")
    }
}

/// Fewest characters of a token: 128 bits in hexadecimal digits.
const MIN_TOKEN_CHARS: usize = 32;
/// Most of them: what a header field of HTTP/1.1 takes everywhere.
const MAX_TOKEN_CHARS: usize = 4096;
/// A larger file holds no token: with room for the end of its line.
const MAX_TOKEN_FILE_BYTES: u64 = 2 * MAX_TOKEN_CHARS as u64;

impl Admin {
    /// The token, if there is to be one.
    ///
    /// # Errors
    /// What is wrong with its file, and what would be right.
    pub fn token(&self) -> io::Result<Option<AdminToken>> {
        self.token_file.as_deref().map(AdminToken::read).transpose()
    }

    /// Checks the file with the token.
    pub(crate) fn check_files(&self, source: &Source) -> Result<(), ConfigError> {
        let checked = self.token().map(drop);
        checked.map_err(|error| source.error("admin.token_file", error.to_string()))
    }
}

#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Default, DeriveDeserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawAdmin {
    address: Option<AdminAddress>,
    allow_remote: bool,
    qlog_dir: Option<PathBuf>,
    qlog_max_mb: Int<64, 1, 10_000>,
    cors_allow_origins: Vec<WebOrigin>,
    allowed_hosts: Vec<String>,
    token_file: Option<PathBuf>,
}

#[derive(Clone, Copy)]
pub(crate) struct AdminAddress(Option<SocketAddr>);

impl std::str::FromStr for AdminAddress {
    type Err = std::net::AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "none" {
            Ok(Self(None))
        } else {
            text.parse().map(|address| Self(Some(address)))
        }
    }
}

impl<'de> Deserialize<'de> for AdminAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_string(deserializer, "an IP address and port, as \"127.0.0.1:9464\", or \"none\"")
    }
}

impl RawAdmin {
    pub(crate) fn check(self, source: &Source, default: SocketAddr) -> Result<Admin, ConfigError> {
        if self.cors_allow_origins.len() > MAX_ORIGINS {
            let problem = format!("at most {MAX_ORIGINS} origins");
            return Err(source.error("admin.cors_allow_origins", problem));
        }
        check_hosts(&self.allowed_hosts, source)?;
        let address = self.address.map_or(Some(default), |AdminAddress(address)| address);
        match address {
            Some(remote) if !remote.ip().to_canonical().is_loopback() && !self.allow_remote => {
                let problem = format!(
                    "{remote} is not a loopback address; use 127.0.0.1 or [::1], or set \
                     admin.allow_remote = true if others on the network may see all flows"
                );
                Err(source.error("admin.address", problem))
            }
            Some(remote)
                if !remote.ip().to_canonical().is_loopback()
                    && (self.allowed_hosts.is_empty() || self.token_file.is_none()) =>
            {
                let problem = format!(
                    "{remote} is not a loopback address: admin.allowed_hosts must list the names that \
                     this machine is called by, and admin.token_file must name a file with a token, as \
                     openssl rand -hex 32 makes one"
                );
                Err(source.error("admin.allow_remote", problem))
            }
            address => Ok(Admin {
                address,
                qlog_dir: self.qlog_dir.as_ref().map(|dir| source.resolve(dir)),
                qlog_max_bytes: self.qlog_max_mb.get::<u64>() * 1_000_000,
                cors_allow_origins: self.cors_allow_origins,
                allowed_hosts: self.allowed_hosts,
                token_file: self.token_file.as_ref().map(|file| source.resolve(file)),
            }),
        }
    }
}

/// Names alone: a port or a scheme would never match.
fn check_hosts(hosts: &[String], source: &Source) -> Result<(), ConfigError> {
    let is_name = |host: &&String| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        (1..=253).contains(&host.len()) && host.bytes().all(is_allowed)
    };
    if hosts.len() > MAX_HOSTS {
        let problem = format!("at most {MAX_HOSTS} names");
        return Err(source.error("admin.allowed_hosts", problem));
    }
    match hosts.iter().find(|host| !is_name(host)) {
        None => Ok(()),
        Some(host) => {
            let problem =
                format!("{host:?} must be a name or an IPv4 address, without scheme and port");
            Err(source.error("admin.allowed_hosts", problem))
        }
    }
}

/// `[log]`: what is written to standard error.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveDeserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// The least important level that is written; default `info`.
    pub level: LogLevel,
    /// How a line looks; default `text`.
    pub format: LogFormat,
}

/// Importance of a log line.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, DeriveDeserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    /// Something failed that needs an operator.
    Error,
    /// Something is wrong or was refused; service goes on.
    Warn,
    /// Start, stop, connections, reloads.
    #[default]
    Info,
    /// Every flow.
    Debug,
    /// Every event; costs throughput.
    Trace,
}

/// Shape of a log line.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, DeriveDeserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
    /// Lines for the systemd journal, with their priority and without time.
    Journald,
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn token_of(text: &str, mode: u32) -> io::Result<Option<AdminToken>> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
        let admin = Admin {
            address: None,
            qlog_dir: None,
            qlog_max_bytes: 0,
            cors_allow_origins: Vec::new(),
            allowed_hosts: Vec::new(),
            token_file: Some(file.path().to_owned()),
        };
        admin.token()
    }

    #[test]
    fn a_token_is_long_plain_and_not_for_everybody() {
        let long = "0123456789abcdef".repeat(2);
        for mode in [0o600, 0o400, 0o440] {
            let token = token_of(&format!("{long}\n"), mode).unwrap().unwrap();
            assert_eq!(token.as_bytes(), long.as_bytes());
            assert!(!format!("{token:?}").contains("0123"));
            assert_eq!(token.group().is_some(), mode == 0o440);
        }
        let problem = |text: &str, mode| token_of(text, mode).unwrap_err().to_string();
        assert!(problem(&long, 0o644).contains("chmod 600"));
        for wrong in ["", "short", &format!("{long} {long}"), &format!("{long}\n{long}")] {
            assert!(problem(wrong, 0o600).contains("openssl rand"), "{wrong:?}");
        }
    }
}
