//! Whether a server may connect to the origins that its allow-list names one by one, and reaches them.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use millrace_config::{Acl, Allow, AllowedHost, Dial, Protocol};
use millrace_tunnel::dial::interleave;
use millrace_tunnel::own_addresses::interface_addresses;
use millrace_tunnel::resolve::Resolver;
use socket2::{Domain, Socket, Type};

use super::report::Report;

/// Ports of one entry that are tried: enough for HTTP, HTTPS and RTSP.
const MAX_PORTS: usize = 4;
/// Entries that are tried: each can take some time-outs.
const MAX_ENTRIES: usize = 16;

/// Checks the entries with a name, a single address or an upstream proxy.
pub fn origins(report: &mut Report, allow: &[Allow], dial: &Dial, resolver: &Resolver) {
    let own = interface_addresses().unwrap_or_default();
    let acl = |protocol| Acl::of(protocol, allow, own.iter().copied().collect());
    let check = OriginCheck { tcp: acl(Protocol::Tcp), udp: acl(Protocol::Udp), dial, resolver };
    let entries =
        allow.iter().enumerate().map(|(index, it)| (format!("destinations.allow[{index}]"), it));
    let single: Vec<_> = entries.filter(|(_, it)| is_single(it)).collect();
    for (key, entry) in single.iter().take(MAX_ENTRIES) {
        check.entry(report, key, entry);
    }
    if let Some((key, _)) = single.get(MAX_ENTRIES) {
        let remedy = "check the others with a configuration that has them alone";
        report.skip(key, format!("only {MAX_ENTRIES} origins are tried"), remedy);
    }
}

/// Whether an entry is for one host.
fn is_single(entry: &Allow) -> bool {
    let is_one = match &entry.host {
        AllowedHost::Name(_) => true,
        AllowedHost::Network(network) => network.prefix_len() == network.max_prefix_len(),
    };
    entry.forward_to.is_some() || is_one && ports_of(entry).next().is_some()
}

/// The ports that are listed one by one.
fn ports_of(entry: &Allow) -> impl Iterator<Item = u16> {
    let single = entry.ports.iter().filter(|ports| ports.start() == ports.end());
    single.map(|ports| *ports.start()).take(MAX_PORTS)
}

struct OriginCheck<'a> {
    tcp: Acl,
    udp: Acl,
    dial: &'a Dial,
    resolver: &'a Resolver,
}

impl OriginCheck<'_> {
    fn entry(&self, report: &mut Report, key: &str, entry: &Allow) {
        if let Some(proxy) = entry.forward_to {
            let remedy = "start the proxy there, or correct forward_to";
            return match self.connect(proxy) {
                Ok(()) => report.ok(key, format!("forward_to {proxy}: connected")),
                Err(error) => report.fail(key, format!("forward_to {proxy}: {error}"), remedy),
            };
        }
        let host = match &entry.host {
            AllowedHost::Name(name) => name.clone(),
            AllowedHost::Network(network) => network.addr().to_string(),
        };
        let (mut reached, mut problems) = (Vec::new(), Vec::new());
        for port in ports_of(entry) {
            match self.reach(entry, port) {
                Ok(()) => reached.push(port.to_string()),
                Err(problem) => problems.push(format!("port {port}: {problem}")),
            }
        }
        let verb = match entry.protocol {
            Protocol::Tcp => "connected",
            Protocol::Udp => "allowed, whether it answers can't be seen",
        };
        let reached = format!("{host}: {verb}, port {}", reached.join(", "));
        match (problems.is_empty(), reached.ends_with("port ")) {
            (true, _) => report.ok(key, reached),
            (false, false) => report.ok(key, format!("{reached}; {}", problems.join("; "))),
            (false, true) => report.fail(
                key,
                format!("{host}: {}", problems.join("; ")),
                "start the origin, correct the entry, or let the server reach it; special addresses, such as \
                 127.0.0.0/8, and those of the server itself need an entry with network",
            ),
        }
    }

    /// Whether a flow to the entry's host gets through.
    fn reach(&self, entry: &Allow, port: u16) -> Result<(), String> {
        let acl = match entry.protocol {
            Protocol::Tcp => &self.tcp,
            Protocol::Udp => &self.udp,
        };
        let (addresses, name) = match &entry.host {
            AllowedHost::Network(network) => (vec![SocketAddr::new(network.addr(), port)], None),
            AllowedHost::Name(name) => {
                let resolved = self.resolver.resolve_blocking(name, port);
                let resolved = resolved.map_err(|error| format!("no address: {error}"))?;
                (interleave(&resolved.addresses).into(), Some(name))
            }
        };
        let mut problem = "its name has no address".to_owned();
        for address in addresses {
            let permitted = match name {
                Some(name) => acl.permits_named(name, address.ip(), port),
                None => acl.permits(address.ip(), port),
            };
            if let Err(denied) = permitted {
                problem = denied.to_string();
                continue;
            }
            match entry.protocol {
                Protocol::Udp => return Ok(()),
                Protocol::Tcp => match self.connect(address) {
                    Ok(()) => return Ok(()),
                    Err(error) => problem = format!("{address}: {error}"),
                },
            }
        }
        Err(problem)
    }

    /// Connects as the server would, and closes the connection.
    fn connect(&self, address: SocketAddr) -> io::Result<()> {
        let timeout: Duration = self.dial.per_address_timeout;
        let is_family = |source: &&IpAddr| source.is_ipv4() == address.is_ipv4();
        let Some(source) = self.dial.bind_source.iter().find(is_family) else {
            return TcpStream::connect_timeout(&address, timeout).map(drop);
        };
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.bind(&SocketAddr::new(*source, 0).into())?;
        socket.connect_timeout(&address.into(), timeout)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use millrace_config::ServerConfig;

    use super::*;
    use crate::doctor::{CheckVerdict, Finding};

    fn findings(entries: &str) -> Vec<Finding> {
        let text = format!(
            "[tunnel]\nlisten = [\"127.0.0.1:1\"]\nclient_ca = \"ca.pem\"\ncertificate = \"a.pem\"\n\
             private_key = \"a.key\"\n{entries}"
        );
        let known = &millrace_tunnel::algorithms::check;
        let path = std::path::Path::new("server.toml");
        let config: ServerConfig = millrace_config::parse_server(&text, path, known).unwrap();
        let resolver = Resolver::start(&config.resolver).unwrap();
        let mut report = Report::default();
        origins(&mut report, &config.allow, &config.dial, &resolver);
        report.findings
    }

    fn entry(host: &str, ports: &str) -> String {
        format!("[[destinations.allow]]\n{host}\nports = [{ports}]\n")
    }

    /// A port on which nothing listens, as its listener is gone.
    fn closed_port() -> u16 {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
    }

    #[test]
    fn an_origin_that_can_be_connected_to_is_ok() {
        let origin = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, closed) = (origin.local_addr().unwrap().port(), closed_port());
        let ports = format!("{port}, {closed}");
        let found = findings(&entry("network = \"127.0.0.1\"", &ports));
        assert_eq!((found.len(), found[0].verdict), (1, CheckVerdict::Ok), "{found:?}");
        assert_eq!(found[0].check, "destinations.allow[0]");
        assert!(
            found[0]
                .found
                .starts_with(&format!("127.0.0.1: connected, port {port}; port {closed}: "))
        );
    }

    #[test]
    fn an_unreachable_origin_fails() {
        let closed = closed_port();
        let found = findings(&entry("network = \"127.0.0.1\"", &closed.to_string()));
        assert_eq!(found[0].verdict, CheckVerdict::Failed, "{found:?}");
        assert!(found[0].found.contains("refused"), "{found:?}");
        let forwarded = format!("forward_to = \"127.0.0.1:{closed}\"\n");
        let whole = format!("{forwarded}network = \"198.18.0.0/24\"");
        let found = findings(&entry(&whole, "80"));
        assert_eq!(found[0].verdict, CheckVerdict::Failed, "{found:?}");
        assert!(found[0].found.starts_with("forward_to 127.0.0.1:"), "{found:?}");
    }

    #[test]
    fn a_forbidden_origin_fails() {
        let found = findings(&entry("name = \"localhost\"", "80"));
        assert_eq!(found[0].verdict, CheckVerdict::Failed, "{found:?}");
        assert!(found[0].remedy.as_ref().unwrap().contains("need an entry with network"));
    }

    #[test]
    fn networks_and_ranges_of_ports_are_not_tried() {
        assert!(findings(&entry("network = \"198.18.0.0/24\"", "80")).is_empty());
        assert!(findings(&entry("network = \"127.0.0.1\"", "\"1-65535\"")).is_empty());
    }
}
