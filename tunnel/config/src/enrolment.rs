//! `[enrolment]`: how clients get and renew certificates.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use crate::servers::TunnelServer;
use crate::value::{BindAddress, Host, HostPort, Int};
use crate::{ConfigError, Source};

/// Most addresses of `enrolment.listen`: each has a thread.
const MAX_ENROLMENT_LISTENERS: usize = 16;

/// `[enrolment]` of a server: the listener from which clients get certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerEnrolment {
    /// TCP addresses, at least one.
    pub listen: Vec<SocketAddr>,
    /// Where clients reach this server, as invitations say it: the tunnel on UDP, this listener on TCP.
    pub public_address: HostPort,
    /// Directory with the authority that signs, `ca.pem` and `ca.key`, and with the open invitations.
    pub authority_dir: PathBuf,
    /// How long certificates are valid, 5 s to 10 years; default 90 days. They are renewed when a third of it is left.
    /// Too small issues many and leaves little time to repair what keeps a client from renewing; too large lets a
    /// stolen key be of use for longer.
    pub certificate_lifetime: Duration,
}

/// `[enrolment]` of a client: where it renews its certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientEnrolment {
    /// The server's `enrolment.public_address`.
    pub server: HostPort,
    /// The name that this server's certificate must be for.
    pub server_name: Host,
}

#[derive(Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawServerEnrolment {
    listen: Vec<BindAddress>,
    public_address: Option<HostPort>,
    authority_dir: Option<PathBuf>,
    certificate_lifetime_s: Int<7_776_000, 5, 315_360_000>,
}

#[derive(Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawClientEnrolment {
    server: Option<HostPort>,
}

impl RawServerEnrolment {
    /// `None` without `listen`.
    pub(crate) fn check(self, source: &Source) -> Result<Option<ServerEnrolment>, ConfigError> {
        let listen: Vec<_> = self.listen.iter().map(|address| address.0).collect();
        if listen.is_empty() {
            let set = [
                ("public_address", self.public_address.is_some()),
                ("authority_dir", self.authority_dir.is_some()),
            ];
            return match set.into_iter().find(|(_, is_set)| *is_set) {
                None => Ok(None),
                Some((key, _)) => {
                    Err(source
                        .error(&format!("enrolment.{key}"), "only goes with enrolment.listen"))
                }
            };
        }
        if listen.len() > MAX_ENROLMENT_LISTENERS {
            let problem = format!("at most {MAX_ENROLMENT_LISTENERS} addresses");
            return Err(source.error("enrolment.listen", problem));
        }
        let missing = |key: &str| {
            let problem = "is missing: invitations say where clients reach this server, and the authority signs";
            source.error(&format!("enrolment.{key}"), problem)
        };
        let authority_dir = self.authority_dir.ok_or_else(|| missing("authority_dir"))?;
        Ok(Some(ServerEnrolment {
            listen,
            public_address: self.public_address.ok_or_else(|| missing("public_address"))?,
            authority_dir: source.resolve(&authority_dir),
            certificate_lifetime: self.certificate_lifetime_s.seconds(),
        }))
    }
}

impl RawClientEnrolment {
    /// `None` without `server`. The server's name is that of the tunnel's server with the same address, otherwise that
    /// of the first one.
    pub(crate) fn check(self, servers: &[TunnelServer]) -> Option<ClientEnrolment> {
        let server = self.server?;
        let same = servers.iter().find(|it| it.address == server).or(servers.first());
        let server_name = same.map_or_else(|| server.host.clone(), |it| it.name.clone());
        Some(ClientEnrolment { server, server_name })
    }
}
