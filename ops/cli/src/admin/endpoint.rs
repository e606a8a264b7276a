//! Where an admin listener is, and its token.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use millrace_config::{Admin, AdminToken, Host, HostPort};

use super::token_users::TokenUsers;

/// An admin listener.
#[derive(Clone, Debug)]
pub(crate) struct AdminEndpoint {
    pub(crate) address: HostPort,
    pub(crate) token: Option<AdminToken>,
    /// The users of this host that may be shown the token.
    pub(super) token_users: TokenUsers,
    /// The configuration that names it; `None` for an option.
    named_in: Option<PathBuf>,
}

impl AdminEndpoint {
    /// As options give it.
    pub(crate) fn given(address: HostPort, token: Option<AdminToken>) -> Self {
        Self::new(address, token, None)
    }

    fn new(address: HostPort, token: Option<AdminToken>, named_in: Option<PathBuf>) -> Self {
        let token_users = token.as_ref().map(TokenUsers::of).unwrap_or_default();
        Self { address, token, token_users, named_in }
    }

    /// As the configuration `file` gives it.
    pub(crate) fn configured(admin: &Admin, file: &Path) -> anyhow::Result<Self> {
        let shown = file.display();
        let Some(address) = admin.address else {
            bail!("{shown}: admin.address is \"none\", so the program has no admin listener");
        };
        if address.port() == 0 {
            bail!(
                "{shown}: admin.address has port 0, and only the log of the program says which port it \
                 got; give it with --admin HOST:PORT"
            );
        }
        let ip = match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        let token = admin.token().with_context(|| format!("{shown}: admin.token_file"))?;
        let address = HostPort { host: Host::Ip(ip), port: address.port() };
        Ok(Self::new(address, token, Some(file.to_owned())))
    }
}

impl fmt::Display for AdminEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.named_in {
            None => self.address.fmt(f),
            Some(file) => write!(f, "{} (admin.address of {})", self.address, file.display()),
        }
    }
}
