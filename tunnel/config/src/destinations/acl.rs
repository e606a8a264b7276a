//! An allow-list of destinations: a server's, and a client's for flows that bypass the tunnel.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;

use super::denied_reason::DeniedReason;
use super::embedded::{self, Embedded};
use super::own::OwnAddresses;
use super::special;
use crate::{Allow, AllowedHost, Protocol};

/// An allow-list, with the ranges that need to be named explicitly.
#[derive(Clone, Debug)]
pub struct Acl {
    allow: Vec<Allow>,
    special: Vec<(IpNet, DeniedReason)>,
    own: OwnAddresses,
}

impl Acl {
    /// The part of a configuration's allow-list that is for `protocol`; see [`Acl::new`].
    pub fn of(protocol: Protocol, allow: &[Allow], own: OwnAddresses) -> Self {
        let allow = allow.iter().filter(|entry| entry.protocol == protocol);
        Self::new(allow.cloned().collect(), own)
    }

    /// An allow-list from entries of one protocol.
    ///
    /// `own` are all addresses at which this host can be reached. What they are is looked up for
    /// each flow, so that the caller can keep them up to date.
    pub fn new(allow: Vec<Allow>, own: OwnAddresses) -> Self {
        Self { allow, special: special::ranges().collect(), own }
    }

    /// Every port of every address, except that special ranges need an entry of `allow`: for flows
    /// with a destination that the kernel or the operator chose.
    pub fn everywhere(allow: Vec<Allow>, own: OwnAddresses) -> Self {
        let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        let whole = any.map(|ip| Allow {
            host: AllowedHost::Network(IpNet::new_assert(ip, 0)),
            protocol: Protocol::Tcp,
            ports: vec![1..=u16::MAX],
            forward_to: None,
        });
        Self::new(allow.into_iter().chain(whole).collect(), own)
    }

    /// Whether a flow may go to port `port` of `ip`.
    ///
    /// # Errors
    /// Why it may not.
    pub fn permits(&self, ip: IpAddr, port: u16) -> Result<(), Denied> {
        // The kernel sends an IPv4-mapped address as IPv4: it is that address, not another form.
        let outer = ip.to_canonical();
        let denied = |form, reason| Denied { ip, form, port, reason };
        self.permits_form(outer, port).map_err(|reason| denied(outer, reason))?;
        for form in embedded::forms(outer) {
            match form {
                Embedded::Certain(inner) => self.permits_form(inner.into(), port),
                Embedded::Possible(inner) => self.permits_possible_form(inner.into(), port),
            }
            .map_err(|reason| denied(form.address().into(), reason))?;
        }
        Ok(())
    }

    /// Whether some address that `name` may resolve to could be permitted on `port`: an entry has
    /// that name, or any network with that port. Otherwise the name need not be resolved.
    ///
    /// # Errors
    /// Why no address of it can be permitted.
    pub fn may_permit_name(&self, name: &str, port: u16) -> Result<(), DeniedReason> {
        let is_candidate =
            |entry: &&Allow| entry.has_name(name) || matches!(entry.host, AllowedHost::Network(_));
        let mut candidates = self.allow.iter().filter(is_candidate).peekable();
        if candidates.peek().is_none() {
            return Err(DeniedReason::NotListed);
        }
        if candidates.any(|entry| entry.has_port(port)) {
            Ok(())
        } else {
            Err(DeniedReason::PortNotListed)
        }
    }

    /// The upstream proxy for a permitted flow to port `port` of `ip`: that of the first entry that
    /// has the address or the `name` that the flow asked for.
    pub fn forward_to(&self, name: Option<&str>, ip: IpAddr, port: u16) -> Option<SocketAddr> {
        let ip = ip.to_canonical();
        let is_host =
            |entry: &Allow| entry.has_address(ip) || name.is_some_and(|name| entry.has_name(name));
        let has = |entry: &&Allow| is_host(entry) && entry.has_port(port);
        self.allow.iter().find(has)?.forward_to
    }

    /// Whether a flow that asked for `name` may go to port `port` of `ip`, one of its addresses.
    ///
    /// # Errors
    /// Why it may not.
    pub fn permits_named(&self, name: &str, ip: IpAddr, port: u16) -> Result<(), Denied> {
        if !self.allow.iter().any(|entry| entry.has_name(name) && entry.has_port(port)) {
            return self.permits(ip, port);
        }
        let outer = ip.to_canonical();
        let embedded = embedded::forms(outer).into_iter().map(|form| form.address().into());
        for form in std::iter::once(outer).chain(embedded) {
            self.permits_possible_form(form, port).map_err(|reason| Denied {
                ip,
                form,
                port,
                reason,
            })?;
        }
        Ok(())
    }

    fn permits_form(&self, ip: IpAddr, port: u16) -> Result<(), DeniedReason> {
        self.permits_possible_form(ip, port)?;
        let mut entries = self.allow.iter().filter(|entry| entry.has_address(ip)).peekable();
        if entries.peek().is_none() {
            return Err(DeniedReason::NotListed);
        }
        if entries.any(|entry| entry.has_port(port)) {
            Ok(())
        } else {
            Err(DeniedReason::PortNotListed)
        }
    }

    /// The special ranges only. Of several readings of one address just one is in use, so that no
    /// entry can be asked for each.
    fn permits_possible_form(&self, ip: IpAddr, port: u16) -> Result<(), DeniedReason> {
        for (range, reason) in self.special.iter().filter(|(range, _)| range.contains(&ip)) {
            if !self.lists_within(range, ip, port) {
                return Err(*reason);
            }
        }
        if self.own.contains(ip) && !self.lists_within(&IpNet::from(ip), ip, port) {
            return Err(DeniedReason::OwnAddress);
        }
        Ok(())
    }

    /// Whether an entry for a network inside `range` has the address and the port.
    fn lists_within(&self, range: &IpNet, ip: IpAddr, port: u16) -> bool {
        self.allow.iter().any(|entry| {
            let AllowedHost::Network(network) = &entry.host else { return false };
            range.contains(network) && network.contains(&ip) && entry.has_port(port)
        })
    }
}

impl Allow {
    fn has_address(&self, ip: IpAddr) -> bool {
        matches!(&self.host, AllowedHost::Network(network) if network.contains(&ip))
    }

    fn has_name(&self, name: &str) -> bool {
        let name = name.strip_suffix('.').unwrap_or(name);
        matches!(&self.host, AllowedHost::Name(listed) if listed.eq_ignore_ascii_case(name))
    }

    fn has_port(&self, port: u16) -> bool {
        self.ports.iter().any(|ports| ports.contains(&port))
    }
}

/// A destination that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Denied {
    /// The address that was asked for.
    pub ip: IpAddr,
    /// The form of it that is not allowed; often the same.
    pub form: IpAddr,
    /// The port that was asked for.
    pub port: u16,
    /// Why.
    pub reason: DeniedReason,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "destination {} port {} is denied: ", self.ip, self.port)?;
        if self.form != self.ip {
            write!(f, "it leads to {}, which ", self.form)?;
        } else {
            f.write_str("it ")?;
        }
        f.write_str(match self.reason {
            DeniedReason::NotListed => "is in no [[destinations.allow]]",
            DeniedReason::PortNotListed => "is allowed on other ports only",
            DeniedReason::Unspecified => "is an address of no host",
            DeniedReason::Loopback => "is a loopback address",
            DeniedReason::LinkLocal => "is a link-local address",
            DeniedReason::Metadata => "is a cloud metadata service",
            DeniedReason::Multicast => "is a multicast address",
            DeniedReason::Broadcast => "is the broadcast address",
            DeniedReason::Reserved => "is a reserved address",
            DeniedReason::LocalTranslation => "is behind a local NAT64 prefix",
            DeniedReason::OwnAddress => "is this server's own address",
        })
    }
}
