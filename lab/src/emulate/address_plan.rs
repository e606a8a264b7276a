//! The addresses of the flows, by which the link tells them apart.
//!
//! A flow has a host of its own at the server's side: for the kernel's TCP an address of the origin,
//! for the tunnel one of the server edge. Flows that share a tunnel connection share its address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::Result;

use crate::rtsp::live555;
use crate::scenario::{App, FlowGroup, GroupConnections, Ip, Scenario, Via};
use crate::topology::{
    CLIENT_EDGE_INSIDE, CLIENT_EDGE_INSIDE_6, KernelCc, ORIGIN, ORIGIN_6, Topology,
};

/// Flows of one run: each has sockets, threads and perhaps a process of its own.
pub const MAX_FLOWS: u64 = 250;

/// Port of the lab's own origins.
pub const ORIGIN_PORT: u16 = 5001;
/// Port of the tunnel servers.
const TUNNEL_PORT: u16 = 4433;
/// The client edge's first listener.
const FIRST_ENTRY_PORT: u16 = 20_000;
/// The first player's port for RTP over UDP; RTCP has the next.
const FIRST_MEDIA_PORT: u16 = 21_000;

/// Networks of the flows' hosts at the origin and at the server edge, and how long their prefixes are.
const HOSTS: [(Ipv4Addr, u8); 2] =
    [(Ipv4Addr::new(198, 19, 0, 0), 17), (Ipv4Addr::new(198, 19, 128, 0), 17)];
const HOSTS_6: [(Ipv6Addr, u8); 2] = [
    (Ipv6Addr::new(0x2001, 2, 0, 4, 0, 0, 0, 0), 64),
    (Ipv6Addr::new(0x2001, 2, 0, 5, 0, 0, 0, 0), 64),
];

/// At the origin, at the server edge: indices of [`HOSTS`].
const AT_ORIGIN: usize = 0;
const AT_EDGE: usize = 1;

/// The flow's host of this number. An IPv6 address ends in the IPv4 address that it would have.
fn host(ip: Ip, side: usize, number: u8) -> IpAddr {
    let four = HOSTS[side].0.to_bits() | u32::from(number);
    match ip {
        Ip::V4 => Ipv4Addr::from_bits(four).into(),
        Ip::V6 => Ipv6Addr::from_bits(HOSTS_6[side].0.to_bits() | u128::from(four)).into(),
    }
}

/// The network of the flows' hosts at the origin.
pub fn origin_network(ip: Ip) -> String {
    match ip {
        Ip::V4 => format!("{}/{}", HOSTS[AT_ORIGIN].0, HOSTS[AT_ORIGIN].1),
        Ip::V6 => format!("{}/{}", HOSTS_6[AT_ORIGIN].0, HOSTS_6[AT_ORIGIN].1),
    }
}

/// The addresses of one flow.
#[derive(Debug, Clone)]
pub struct FlowAddresses {
    /// Number of its `[[flow]]`.
    pub group: usize,
    /// Index of its connection across the link, in [`AddressPlan::connections`].
    pub connection: usize,
    /// The address that the player connects to.
    pub entry: SocketAddr,
    /// Its origin.
    pub origin: SocketAddr,
    /// Whether the origin is in a namespace of its own.
    pub has_own_host: bool,
    /// The player's port for RTP over UDP, an even one (RFC 3550, Section 11).
    pub media_port: u16,
    /// When it starts.
    pub start_s: f64,
}

/// A connection across the link, with an address of its own: a tunnel, or the kernel's TCP.
#[derive(Debug, Clone)]
pub struct LinkConnection {
    /// Number of its `[[flow]]`.
    pub group: usize,
    /// Its address at the server's side.
    pub host: IpAddr,
    /// The address of the tunnel's server, ours or a peer's; `None` for the kernel's TCP.
    pub tunnel: Option<SocketAddr>,
    /// The flows in it.
    pub flows: Vec<usize>,
}

/// The addresses of all flows.
#[derive(Debug, Clone)]
pub struct AddressPlan {
    /// Version of the Internet Protocol.
    pub ip: Ip,
    /// In the order of the scenario.
    pub flows: Vec<FlowAddresses>,
    /// The connections across the link.
    pub connections: Vec<LinkConnection>,
}

impl AddressPlan {
    /// The plan of a scenario with at most [`MAX_FLOWS`] flows.
    pub fn of(scenario: &Scenario) -> Self {
        let mut plan = Self { ip: scenario.ip, flows: Vec::new(), connections: Vec::new() };
        for (index, group) in scenario.groups.iter().enumerate() {
            for number in 0..group.count {
                plan.add(index, group, number);
            }
        }
        plan
    }

    fn add(&mut self, index: usize, group: &FlowGroup, member: u64) {
        // At most MAX_FLOWS, so that every number fits one byte.
        let flow = self.flows.len();
        let number = (flow + 1) as u8;
        let has_own_host = matches!(group.app, App::Rtsp { .. });
        let port = if has_own_host { live555::PORT } else { ORIGIN_PORT };
        let origin = SocketAddr::new(host(self.ip, AT_ORIGIN, number), port);
        let is_tunnelled = group.via != Via::Direct;
        let shares = group.via == Via::Proxy && group.connections == GroupConnections::Shared;
        let joins = shares && member > 0;
        if !joins {
            let edge = host(self.ip, AT_EDGE, number);
            self.connections.push(LinkConnection {
                group: index,
                host: if is_tunnelled { edge } else { origin.ip() },
                tunnel: is_tunnelled.then(|| SocketAddr::new(edge, TUNNEL_PORT)),
                flows: Vec::new(),
            });
        }
        let connection = self.connections.len() - 1;
        self.connections[connection].flows.push(flow);
        let inside = match self.ip {
            Ip::V4 => CLIENT_EDGE_INSIDE,
            Ip::V6 => CLIENT_EDGE_INSIDE_6,
        };
        let inside = inside.parse().expect("an address of ours");
        let entry = match is_tunnelled {
            true => SocketAddr::new(inside, FIRST_ENTRY_PORT + flow as u16),
            false => origin,
        };
        let start_s = group.start_of_s(member);
        let media_port = FIRST_MEDIA_PORT + 2 * flow as u16;
        self.flows.push(FlowAddresses {
            group: index,
            connection,
            entry,
            origin,
            has_own_host,
            media_port,
            start_s,
        });
    }

    /// The last four bytes of a connection's address at the server's side, for either version of IP.
    pub fn host_id(connection: &LinkConnection) -> u32 {
        match connection.host {
            IpAddr::V4(host) => host.to_bits(),
            IpAddr::V6(host) => host.to_bits() as u32,
        }
    }

    /// Sets the hosts' addresses and routes, except for origins in namespaces of their own.
    ///
    /// # Errors
    /// When `ip` fails.
    pub fn configure(&self, topology: &Topology) -> Result<()> {
        let gateway = match self.ip {
            Ip::V4 => ORIGIN,
            Ip::V6 => {
                topology.add_ipv6(KernelCc::Cubic)?;
                ORIGIN_6
            }
        };
        topology.server_edge.ip(&format!("route add {} via {gateway}", origin_network(self.ip)))?;
        let together = self.flows.iter().filter(|flow| !flow.has_own_host);
        let origins = together.map(|flow| (&topology.origin, "eth0", flow.origin.ip()));
        let edges = self
            .connections
            .iter()
            .filter_map(|connection| Some((&topology.server_edge, "wan", connection.tunnel?.ip())));
        for (namespace, device, address) in origins.chain(edges) {
            let (length, more) = if address.is_ipv4() { (32, "") } else { (128, " nodad") };
            namespace.ip(&format!("addr add {address}/{length} dev {device}{more}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::scenario::ScenarioFile;

    fn plan(flows: &str) -> AddressPlan {
        let text = format!(
            "name = \"a\"\ntitle = \"A\"\nduration_s = 1\n\
             link = {{ rate_mbps = 1, rtt_ms = 1, buffer_bytes = 1500 }}\n{flows}"
        );
        let file = ScenarioFile::parse(&text, Path::new("a.toml")).unwrap();
        AddressPlan::of(&file.cells[0].scenario)
    }

    #[test]
    fn each_flow_has_a_host_of_its_own() {
        let all = plan(
            "[[flow]]\ncc = \"cubic\"\ncount = 2\n[[flow]]\ncc = \"kernel:bbr\"\nstart_s = 0.5",
        );
        let hosts: Vec<String> = all.connections.iter().map(|c| c.host.to_string()).collect();
        assert_eq!(hosts, ["198.19.128.1", "198.19.128.2", "198.19.0.3"]);
        assert_eq!(all.flows[2].entry, all.flows[2].origin, "direct");
        assert_eq!(all.flows[1].entry.to_string(), "198.18.1.1:20001");
        assert_eq!((all.flows[2].group, all.flows[2].start_s), (1, 0.5));
    }

    #[test]
    fn an_ipv6_host_ends_as_its_ipv4_counterpart() {
        let all = plan("ip = 6\n[[flow]]\ncc = \"cubic\"\n[[flow]]\ncc = \"kernel:bbr\"");
        assert_eq!(all.connections[0].tunnel.unwrap().to_string(), "[2001:2:0:5::c613:8001]:4433");
        assert_eq!(
            AddressPlan::host_id(&all.connections[0]),
            u32::from(Ipv4Addr::new(198, 19, 128, 1))
        );
        assert_eq!(
            AddressPlan::host_id(&all.connections[1]),
            u32::from(Ipv4Addr::new(198, 19, 0, 2))
        );
        assert_eq!(all.flows[0].entry.to_string(), "[2001:2:0:1::1]:20000");
    }

    #[test]
    fn flows_that_share_a_connection_have_one_address() {
        let all = plan(
            "[[flow]]\ncc = \"cubic\"\ncount = 3\nconnections = \"shared\"\n[[flow]]\ncc = \"bbr\"",
        );
        assert_eq!(all.connections.len(), 2);
        assert_eq!(all.connections[0].flows, [0, 1, 2]);
        let connections: Vec<usize> = all.flows.iter().map(|flow| flow.connection).collect();
        assert_eq!(connections, [0, 0, 0, 1]);
        assert_eq!(all.connections[1].host.to_string(), "198.19.128.4");
    }
}
