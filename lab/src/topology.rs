//! The path of the demo and of every emulated experiment:
//!
//! ```text
//!  player ──── client edge ════ link ════ server edge ──── origin
//!  198.18.1.2   .1.1   .2.1   (no address)   .2.2   .3.1   198.18.3.2
//! ```
//!
//! The edges route. The namespace `link` holds the two interfaces that the emulator forwards
//! between and nothing else, so that every packet between the edges crosses the emulated link. With TAP
//! devices it is empty: the edges' own interfaces are the emulator's.

use std::net::IpAddr;

use anyhow::Result;

use crate::emulator::{Emulator, FIFO_PRIORITY, FrameIo, LinkPlan, Port};
use crate::netns::Namespace;
use crate::run::Run;
use crate::veth::{self, VethEnd};

/// All that is routed (RFC 2544's test network). There is no default route: a browser's other requests
/// fail at once instead of using the link.
const NETWORK: &str = "198.18.0.0/15";
/// The network of the link itself.
const BETWEEN: &str = "198.18.2.0/24";
/// The player's address.
pub const PLAYER: &str = "198.18.1.2";
/// The player's interface.
pub const PLAYER_DEVICE: &str = "eth0";
/// The client edge towards the player.
pub const CLIENT_EDGE_INSIDE: &str = "198.18.1.1";
/// The client edge towards the link.
pub const CLIENT_EDGE: &str = "198.18.2.1";
/// The server edge towards the link.
pub const SERVER_EDGE: &str = "198.18.2.2";
/// The server edge towards the origin.
pub const SERVER_EDGE_INSIDE: &str = "198.18.3.1";
/// The origin's address.
pub const ORIGIN: &str = "198.18.3.2";

/// All that is routed of IPv6 (RFC 5180's test network).
const NETWORK_6: &str = "2001:2::/48";
const BETWEEN_6: &str = "2001:2:0:2::/64";
const PLAYER_6: &str = "2001:2:0:1::2";
/// As [`CLIENT_EDGE_INSIDE`].
pub const CLIENT_EDGE_INSIDE_6: &str = "2001:2:0:1::1";
const CLIENT_EDGE_6: &str = "2001:2:0:2::1";
const SERVER_EDGE_6: &str = "2001:2:0:2::2";
const SERVER_EDGE_INSIDE_6: &str = "2001:2:0:3::1";
/// As [`ORIGIN`].
pub const ORIGIN_6: &str = "2001:2:0:3::2";

/// A kernel congestion control for the hosts at both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelCc {
    /// CUBIC (RFC 9438).
    Cubic,
    /// BBR, the kernel's version.
    Bbr,
    /// Reno (RFC 5681).
    Reno,
}

impl KernelCc {
    /// The kernel's name for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
            Self::Reno => "reno",
        }
    }
}

/// The namespaces, joined and routed. The link carries nothing until an emulator runs.
#[derive(Debug)]
pub struct Topology {
    /// Where the player runs.
    pub player: Namespace,
    /// Router, or the tunnel's client.
    pub client_edge: Namespace,
    /// The two interfaces that the emulator joins.
    pub link: Namespace,
    /// Router, or the tunnel's server.
    pub server_edge: Namespace,
    /// Where the origin runs.
    pub origin: Namespace,
    frame_io: FrameIo,
}

/// The link's interface towards the client edge.
const LINK_CLIENT: &str = "to-client";
/// The link's interface towards the server edge.
const LINK_SERVER: &str = "to-server";
/// An edge's interface towards the link.
const WAN: &str = "wan";

impl Topology {
    /// Builds it. TCP connections that cross the link use `cc` unless their sockets say otherwise.
    ///
    /// # Errors
    /// When a namespace, an interface or a route can't be made.
    pub fn build(run: &Run, cc: KernelCc) -> Result<Self> {
        Self::with_frame_io(run, cc, FrameIo::best())
    }

    /// Builds it for an emulator with this frame I/O.
    ///
    /// # Errors
    /// As [`Self::build`].
    pub fn with_frame_io(run: &Run, cc: KernelCc, frame_io: FrameIo) -> Result<Self> {
        let topology = Self {
            player: Namespace::create(run, "player")?,
            client_edge: Namespace::create(run, "cedge")?,
            link: Namespace::create(run, "link")?,
            server_edge: Namespace::create(run, "sedge")?,
            origin: Namespace::create(run, "origin")?,
            frame_io,
        };
        topology.join()?;
        topology.route(cc)?;
        topology.tune()?;
        Ok(topology)
    }

    /// Starts the link.
    ///
    /// # Errors
    /// As [`Port::open`], [`veth::receive_apart`] and [`Emulator::start`].
    pub fn start_link(&self, link: impl Into<LinkPlan>) -> Result<Emulator> {
        let plan = link.into();
        if self.frame_io == FrameIo::Packet && plan.is_fast() {
            for namespace in [&self.client_edge, &self.server_edge] {
                let wan = VethEnd { namespace, name: WAN, address: None };
                veth::receive_apart(wan, FIFO_PRIORITY)?;
            }
        }
        let open =
            |namespace: &Namespace, name| namespace.inside(|| Ok(Port::open(name, self.frame_io)?));
        let ports = match self.frame_io {
            FrameIo::Packet => [open(&self.link, LINK_CLIENT)?, open(&self.link, LINK_SERVER)?],
            FrameIo::Tap => [open(&self.client_edge, WAN)?, open(&self.server_edge, WAN)?],
        };
        Emulator::start(ports, plan)
    }

    fn join(&self) -> Result<()> {
        let end = |namespace, name, address| VethEnd { namespace, name, address };
        let (player, origin) = (format!("{PLAYER}/24"), format!("{ORIGIN}/24"));
        let inside = [format!("{CLIENT_EDGE_INSIDE}/24"), format!("{SERVER_EDGE_INSIDE}/24")];
        let outside = [format!("{CLIENT_EDGE}/24"), format!("{SERVER_EDGE}/24")];
        let player = end(&self.player, PLAYER_DEVICE, Some(player.as_str()));
        let client_lan = end(&self.client_edge, "lan", Some(inside[0].as_str()));
        let origin = end(&self.origin, "eth0", Some(origin.as_str()));
        let server_lan = end(&self.server_edge, "lan", Some(inside[1].as_str()));
        let client = end(&self.client_edge, WAN, Some(outside[0].as_str()));
        let server = end(&self.server_edge, WAN, Some(outside[1].as_str()));
        let link_client = end(&self.link, LINK_CLIENT, None);
        let link_server = end(&self.link, LINK_SERVER, None);
        // Not only at the link: a host's 64 KB super-packet, cut up at the edge, reaches the buffer
        // as one burst. CUBIC at 100 Mbit/s, 30 ms and 75 KB then gets half of its rate.
        let mut cables = vec![(player, client_lan), (server_lan, origin)];
        match self.frame_io {
            FrameIo::Packet => cables.extend([(client, link_client), (link_server, server)]),
            FrameIo::Tap => {
                for edge in [client, server] {
                    veth::tap(edge)?;
                    veth::offloads_off(edge)?;
                }
            }
        }
        for (left, right) in cables {
            veth::join(left, right)?;
            veth::offloads_off(left)?;
            veth::offloads_off(right)?;
        }
        for (left, right) in [(player, client_lan), (client, server), (server_lan, origin)] {
            veth::acquaint(left, right)?;
        }
        Ok(())
    }

    fn route(&self, cc: KernelCc) -> Result<()> {
        let cc = cc.name();
        // Per route: a namespace may not change its default, and nginx can't choose per socket.
        self.player.ip(&format!("route add {NETWORK} via {CLIENT_EDGE_INSIDE} congctl {cc}"))?;
        self.origin.ip(&format!("route add {NETWORK} via {SERVER_EDGE_INSIDE} congctl {cc}"))?;
        self.client_edge.ip(&format!("route add {NETWORK} via {SERVER_EDGE} congctl {cc}"))?;
        self.server_edge.ip(&format!("route add {NETWORK} via {CLIENT_EDGE} congctl {cc}"))?;
        for (edge, own) in [(&self.client_edge, CLIENT_EDGE), (&self.server_edge, SERVER_EDGE)] {
            edge.ip(&format!("route replace {BETWEEN} dev wan src {own} congctl {cc}"))?;
            edge.sysctl("net.ipv4.ip_forward", "1")?;
        }
        Ok(())
    }

    /// Adds IPv6 (addresses of RFC 5180's test network) beside IPv4. It sends nothing of its own: no
    /// autoconfiguration, no duplicate detection, static neighbours on every cable. A neighbour solicitation
    /// can stay without an answer while other runs are being set up.
    ///
    /// # Errors
    /// When `ip` fails.
    pub fn add_ipv6(&self, cc: KernelCc) -> Result<()> {
        let cc = cc.name();
        let hosts = [
            (&self.player, PLAYER_DEVICE, PLAYER_6),
            (&self.client_edge, "lan", CLIENT_EDGE_INSIDE_6),
            (&self.client_edge, WAN, CLIENT_EDGE_6),
            (&self.server_edge, WAN, SERVER_EDGE_6),
            (&self.server_edge, "lan", SERVER_EDGE_INSIDE_6),
            (&self.origin, "eth0", ORIGIN_6),
        ];
        for (host, device, address) in hosts {
            host.ip(&format!("-6 addr add {address}/64 dev {device} nodad"))?;
        }
        for edge in [&self.client_edge, &self.server_edge] {
            edge.ip(&format!("-6 route replace {BETWEEN_6} dev wan congctl {cc}"))?;
            edge.sysctl("net.ipv6.conf.all.forwarding", "1")?;
        }
        let route = |host: &Namespace, via: &str| {
            host.ip(&format!("-6 route add {NETWORK_6} via {via} congctl {cc}"))
        };
        route(&self.player, CLIENT_EDGE_INSIDE_6)?;
        route(&self.origin, SERVER_EDGE_INSIDE_6)?;
        route(&self.client_edge, SERVER_EDGE_6)?;
        route(&self.server_edge, CLIENT_EDGE_6)?;
        let [player, client_lan, client, server, server_lan, origin] = hosts
            .map(|(namespace, name, address)| VethEnd { namespace, name, address: Some(address) });
        for (left, right) in [(player, client_lan), (client, server), (server_lan, origin)] {
            veth::acquaint(left, right)?;
        }
        Ok(())
    }

    /// Adds a host at the server edge with one address, where TCP uses the kernel's congestion control `cc`.
    ///
    /// # Errors
    /// When `ip` fails.
    pub fn add_host(&self, run: &Run, name: &str, address: IpAddr, cc: &str) -> Result<Namespace> {
        let (family, length, more, network, via) = match address {
            IpAddr::V4(_) => ("-4", 32, "", NETWORK, SERVER_EDGE_INSIDE),
            IpAddr::V6(_) => ("-6", 128, " nodad", NETWORK_6, SERVER_EDGE_INSIDE_6),
        };
        let host = Namespace::create(run, name)?;
        tune(&host)?;
        let text = address.to_string();
        let own = VethEnd { namespace: &host, name: "eth0", address: None };
        let edge = VethEnd { namespace: &self.server_edge, name, address: None };
        veth::join(own, edge)?;
        for end in [own, edge] {
            veth::offloads_off(end)?;
        }
        host.ip(&format!("addr add {text}/{length} dev eth0{more}"))?;
        host.ip(&format!("{family} route add {via}/{length} dev eth0"))?;
        host.ip(&format!("{family} route add {network} via {via} congctl {cc}"))?;
        self.server_edge.ip(&format!("{family} route add {text}/{length} dev {name}"))?;
        veth::acquaint(
            VethEnd { address: Some(&text), ..own },
            VethEnd { address: Some(via), ..edge },
        )?;
        Ok(host)
    }

    /// Connections that the origin accepts at `source`, an address of its own, use the kernel's
    /// congestion control `cc`: a web server can't choose it for its sockets. `table` is the number of a
    /// routing table of its own.
    ///
    /// # Errors
    /// When `ip` fails.
    pub fn route_from(&self, source: IpAddr, table: u32, cc: &str) -> Result<()> {
        let (family, network, via) = match source {
            IpAddr::V4(_) => ("-4", NETWORK, SERVER_EDGE_INSIDE),
            IpAddr::V6(_) => ("-6", NETWORK_6, SERVER_EDGE_INSIDE_6),
        };
        self.origin.ip(&format!("{family} rule add from {source} lookup {table}"))?;
        self.origin
            .ip(&format!("{family} route add {network} via {via} table {table} congctl {cc}"))?;
        Ok(())
    }

    fn tune(&self) -> Result<()> {
        for host in [&self.player, &self.client_edge, &self.server_edge, &self.origin] {
            tune(host)?;
        }
        Ok(())
    }
}

/// Neither end may limit the rate, from the start on: a receive buffer that grows with what is read lags
/// behind a slow start over 800 ms, and BBR then takes the receive window for the path's rate. No connection
/// may profit from the previous one.
fn tune(host: &Namespace) -> Result<()> {
    host.sysctl("net.ipv4.tcp_wmem", "4096 8388608 33554432")?;
    host.sysctl("net.ipv4.tcp_rmem", "4096 16777216 33554432")?;
    host.sysctl("net.ipv4.tcp_no_metrics_save", "1")
}
