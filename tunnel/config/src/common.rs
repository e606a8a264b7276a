//! Sections that both programs have.

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::{Deserialize, Deserializer};
use serde::{Deserialize as DeriveDeserialize, Serialize};

use crate::value::{Int, from_string};
use crate::{ConfigError, Source, WebOrigin};

/// What a flow carries; it decides which connection and which rules a flow gets.
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
    /// Whether each worker, and its Selector, is bound to a processor of its own: caches stay warm, but
    /// what else runs there has to be waited for. Default false.
    pub pin: bool,
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
    /// The number of event loops to start: as set, else one per core that we may use.
    pub fn worker_count(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        self.workers.map_or_else(cores, NonZeroUsize::get)
    }
}

#[derive(Default, DeriveDeserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawRuntime {
    workers: Int<0, 0, 256>,
    pin: bool,
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
            pin: self.pin,
            drain_timeout: self.drain_timeout_s.seconds(),
            user: self.user,
            group: self.group,
        })
    }
}

/// Most entries of `admin.allow_origins`: each request is compared with all of them.
const MAX_ORIGINS: usize = 64;

/// `[admin]`: where `/metrics`, `/flows` and `/healthz` are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// The address to bind; `None`, written `"none"`, serves nothing. It is loopback unless
    /// `allow_remote` is set, because it has no authentication and shows who watches what.
    pub address: Option<SocketAddr>,
    /// Where `/qlog` may write traces; `None`, without the key, allows none. It must exist.
    pub qlog_dir: Option<PathBuf>,
    /// Largest trace, 1 MB to 10 GB; default 64 MB (MB is 10^6 bytes).
    pub qlog_max_bytes: u64,
    /// Web pages that may read `/flows`, by their origin; none by default, at most 64.
    pub allow_origins: Vec<WebOrigin>,
}

#[derive(Default, DeriveDeserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawAdmin {
    address: Option<AdminAddress>,
    allow_remote: bool,
    qlog_dir: Option<PathBuf>,
    qlog_max_mb: Int<64, 1, 10_000>,
    allow_origins: Vec<WebOrigin>,
}

#[derive(Clone, Copy)]
struct AdminAddress(Option<SocketAddr>);

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
        if self.allow_origins.len() > MAX_ORIGINS {
            let problem = format!("at most {MAX_ORIGINS} origins");
            return Err(source.error("admin.allow_origins", problem));
        }
        let address = self.address.map_or(Some(default), |AdminAddress(address)| address);
        match address {
            Some(remote) if !remote.ip().to_canonical().is_loopback() && !self.allow_remote => {
                let problem = format!(
                    "{remote} is not a loopback address; use 127.0.0.1 or [::1], or set \
                     admin.allow_remote = true if others on the network may see all flows"
                );
                Err(source.error("admin.address", problem))
            }
            address => Ok(Admin {
                address,
                qlog_dir: self.qlog_dir.as_ref().map(|dir| source.resolve(dir)),
                qlog_max_bytes: self.qlog_max_mb.get::<u64>() * 1_000_000,
                allow_origins: self.allow_origins,
            }),
        }
    }
}

/// `[log]`: what is written to standard error.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveDeserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// The least important level that is written; default `info`.
    pub level: LogLevel,
    /// How a line looks; default `text`.
    pub format: LogFormat,
}

/// Importance of a log line.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, DeriveDeserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}
