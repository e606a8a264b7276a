//! The programs on either side of the link:
//!
//! ```text
//!  viewers ──── millrace-client ════ link ════ millrace-server ──── origin
//! ```
//!
//! in network namespaces of its own. Viewers have addresses of their own, ten flows each.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context, Result};
use millrace_e2e::certificates::{Certificates, SERVER_NAME};
use millrace_e2e::listeners;
use millrace_e2e::origin::{Blackhole, Origin, listen};
use millrace_e2e::program::Program;
use millrace_e2e::{proxy, tcp};
use millrace_lab::emulator::{Emulator, LinkConfig, PipeConfig};
use millrace_lab::netns::Namespace;
use millrace_lab::run::Run;
use millrace_lab::topology::{CLIENT_EDGE_INSIDE, KernelCc, ORIGIN, SERVER_EDGE, Topology};
use serde::Deserialize;
use socket2::{Domain, SockRef, Socket, Type};

use crate::cell::Cell;
use crate::flows;

const ADMIN_PORT: u16 = 9464;
const TUNNEL_PORT: u16 = 4433;
const ORIGIN_PORT: u16 = 9000;
/// A listener there never answers.
const BLACK_HOLE_PORT: u16 = 9001;
/// Of the client: through the tunnel, and bypassing it.
const TUNNEL_LISTENER: u16 = 3128;
const BYPASS_LISTENER: u16 = 3129;
/// Receive buffers of all viewers together, or of the origin; the kernel doubles them. With the kernel's own
/// 6 MB each it would take minutes to fill those of the flows that stand still.
const RECEIVE_BUFFERS_BYTES: usize = 32 << 20;
/// The least and the most that one of them has. The active flow's link is short beyond the tunnel.
const RECEIVE_BUFFER_BYTES: std::ops::RangeInclusive<usize> = 32 << 10..=256 << 10;
/// Flows of one viewer's address: 1,000 flows come from 100.
const FLOWS_PER_VIEWER: usize = 10;
/// The first viewer's address; the others follow it.
const FIRST_VIEWER: Ipv4Addr = Ipv4Addr::new(198, 18, 1, 100);
const VIEWERS: u8 = 100;

/// Which of the client's listeners a flow comes in by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    Tunnel,
    Bypass,
}

/// Fields are dropped in this order: programs, then the link, then the namespaces.
pub struct Site {
    client: Program,
    server: Program,
    bypass_client: Program,
    _origin: Origin,
    _black_hole: Blackhole,
    _link: Emulator,
    topology: Topology,
    received: Arc<AtomicU64>,
    stopped: Arc<AtomicBool>,
    receive_buffer_bytes: usize,
    _run: Run,
}

impl Site {
    /// Everything up, the tunnel too.
    pub fn start(cell: &Cell) -> Result<Self> {
        let run = Run::start()?;
        let topology = Topology::build(&run, KernelCc::Cubic)?;
        for host in
            [&topology.player, &topology.client_edge, &topology.server_edge, &topology.origin]
        {
            buffers_as_by_default(host)?;
        }
        for viewer in 0..VIEWERS {
            let address = viewer_address(usize::from(viewer));
            topology.player.ip(&format!("address add {address}/24 dev eth0"))?;
        }
        let (rate_bps, rtt_ns) = (cell.rate_mbps * 1_000_000, cell.rtt_ms * 1_000_000);
        // A BDP, and 50 ms of the rate where the path is shorter.
        let buffer = PipeConfig::bdp_bytes(rate_bps, rtt_ns.max(50_000_000));
        let link = topology.start_link(LinkConfig::new(rate_bps, rtt_ns, buffer, 0.0, 0.0, 1))?;
        Certificates::make(run.scratch());
        let write = |name: &str, text: String| std::fs::write(run.scratch().join(name), text);
        write("server.toml", server_toml(cell))?;
        write("client.toml", client_toml(cell, true))?;
        write("bypass.toml", client_toml(cell, false))?;
        let (received, stopped) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, stop) = (received.clone(), stopped.clone());
        let address = at(ORIGIN, ORIGIN_PORT);
        let listener = topology.origin.inside(|| Ok(listen(address, 4096)))?;
        // Accepted sockets inherit it.
        let receive_buffer_bytes = receive_buffer_bytes(cell.flows);
        SockRef::from(&listener).set_recv_buffer_size(receive_buffer_bytes)?;
        let origin = Origin::serve(listener, move |flow| flows::serve(flow, &count, &stop));
        let black_hole =
            topology.origin.inside(|| Ok(Blackhole::open_at(at(ORIGIN, BLACK_HOLE_PORT))))?;
        let scratch = run.scratch();
        let start = |edge, program, config: &str, admin_port| {
            proxy::start(edge, program, &scratch.join(config), admin_port)
        };
        let Topology { client_edge, server_edge, .. } = &topology;
        let server = start(server_edge, "millrace-server", "server.toml", ADMIN_PORT);
        let client = start(client_edge, "millrace-client", "client.toml", ADMIN_PORT);
        let bypass_client = start(client_edge, "millrace-client", "bypass.toml", ADMIN_PORT + 1);
        proxy::wait_for_servers(client_edge, ADMIN_PORT, cell.workers);
        Ok(Self {
            client,
            server,
            bypass_client,
            _origin: origin,
            _black_hole: black_hole,
            _link: link,
            topology,
            received,
            stopped,
            receive_buffer_bytes,
            _run: run,
        })
    }

    /// Where the origin listens.
    pub fn origin(&self) -> SocketAddr {
        at(ORIGIN, ORIGIN_PORT)
    }

    /// An address at which connection attempts get no answer.
    pub fn black_hole(&self) -> SocketAddr {
        at(ORIGIN, BLACK_HOLE_PORT)
    }

    /// Bytes that the origin has received from uploads that it reads.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Bytes that have crossed the link, of flows in the tunnel and of those that bypass it.
    pub fn link_bytes(&self) -> Result<u64> {
        let text = self.topology.client_edge.ip("-json -stats link show dev wan")?;
        let interfaces: Vec<Interface> = serde_json::from_str(&text)
            .with_context(|| format!("the counters of the link can't be read: {text}"))?;
        Ok(interfaces.iter().map(|it| it.stats64.rx.bytes + it.stats64.tx.bytes).sum())
    }

    /// Resident memory of the client and the server, in bytes.
    pub fn rss_bytes(&self) -> [u64; 2] {
        [self.client.rss_bytes(), self.server.rss_bytes()]
    }

    /// Connects to a listener from the address of the viewer that has flow `number`, and asks for
    /// `destination`.
    pub fn ask(&self, entry: Entry, destination: SocketAddr, number: usize) -> Result<Socket> {
        let port = match entry {
            Entry::Tunnel => TUNNEL_LISTENER,
            Entry::Bypass => BYPASS_LISTENER,
        };
        let from = SocketAddr::from((viewer_address(number / FLOWS_PER_VIEWER), 0));
        self.topology.player.inside(|| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            socket.set_recv_buffer_size(self.receive_buffer_bytes)?;
            socket.bind(&from.into())?;
            socket.connect_timeout(&at(CLIENT_EDGE_INSIDE, port).into(), tcp::IO_TIMEOUT)?;
            socket.set_read_timeout(Some(tcp::IO_TIMEOUT))?;
            listeners::begin_connect(&socket, &destination.to_string())?;
            Ok(socket)
        })
    }

    /// Reads the answer to [`Self::ask`], where there will be one.
    pub fn answered(&self, socket: &Socket, destination: SocketAddr) -> Result<()> {
        if destination == self.black_hole() {
            return Ok(());
        }
        listeners::end_connect(socket).map_err(|error| anyhow::anyhow!("{error:?}"))
    }

    /// What the programs have logged, for a cell that failed.
    pub fn logs(&self) -> String {
        let log = |program: &Program| {
            let text = program.log_text();
            let lines: Vec<_> = text.lines().rev().take(10).collect();
            lines.into_iter().rev().map(|line| format!("    {line}\n")).collect::<String>()
        };
        [&self.client, &self.server, &self.bypass_client].map(log).concat()
    }
}

/// What `ip` tells of an interface.
#[derive(Deserialize)]
struct Interface {
    stats64: Counters,
}

#[derive(Deserialize)]
struct Counters {
    rx: Direction,
    tx: Direction,
}

#[derive(Deserialize)]
struct Direction {
    bytes: u64,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

/// As Linux has them: the larger ones of a measured link hide what flows that stand still take.
fn buffers_as_by_default(host: &Namespace) -> Result<()> {
    host.sysctl("net.ipv4.tcp_wmem", "4096 16384 4194304")?;
    host.sysctl("net.ipv4.tcp_rmem", "4096 131072 6291456")
}

fn receive_buffer_bytes(flows: usize) -> usize {
    let (least, most) = (*RECEIVE_BUFFER_BYTES.start(), *RECEIVE_BUFFER_BYTES.end());
    (RECEIVE_BUFFERS_BYTES / flows).clamp(least, most)
}

fn viewer_address(number: usize) -> Ipv4Addr {
    let number = u8::try_from(number % usize::from(VIEWERS)).expect("below the number of viewers");
    let [a, b, c, d] = FIRST_VIEWER.octets();
    Ipv4Addr::new(a, b, c, d + number)
}

fn at(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse::<IpAddr>().expect("an address"), port)
}

fn server_toml(cell: &Cell) -> String {
    format!(
        "[tunnel]\nlisten = [\"{SERVER_EDGE}:{TUNNEL_PORT}\"]\nclient_ca = \"ca.pem\"\n\
         certificate = \"server.pem\"\nprivate_key = \"server.key\"\n\
         congestion_control = \"bbr\"\n\
         [runtime]\nworkers = {workers}\n[dial]\ntimeout_s = 120\nper_address_timeout_s = 120\n\
         [admin]\naddress = \"127.0.0.1:{ADMIN_PORT}\"\n[log]\nlevel = \"warn\"\n\
         [[destinations.allow]]\nnetwork = \"{ORIGIN}\"\n\
         ports = [{ORIGIN_PORT}, {BLACK_HOLE_PORT}]\n",
        workers = cell.workers
    )
}

/// The client of the tunnel, or one whose only server is not there, so that its flows bypass it.
fn client_toml(cell: &Cell, tunnel: bool) -> String {
    let (server, listener, admin) = match tunnel {
        true => (TUNNEL_PORT, TUNNEL_LISTENER, ADMIN_PORT),
        false => (TUNNEL_PORT + 1, BYPASS_LISTENER, ADMIN_PORT + 1),
    };
    format!(
        "[tunnel]\nservers = [\"{SERVER_EDGE}:{server}\"]\nserver_name = \"{SERVER_NAME}\"\n\
         ca = \"ca.pem\"\ncertificate = \"client.pem\"\nprivate_key = \"client.key\"\n\
         congestion_control = \"bbr\"\nconnections = \"{connections}\"\nconnect_timeout_s = 120\n\
         [[listen]]\nmode = \"http_connect\"\naddress = \"{CLIENT_EDGE_INSIDE}:{listener}\"\n\
         fail_mode = \"{fail_mode}\"\n{direct}\
         [runtime]\nworkers = {workers}\n\
         [admin]\naddress = \"127.0.0.1:{admin}\"\n[log]\nlevel = \"warn\"\n",
        connections = cell.connections.key(),
        fail_mode = if tunnel { "closed" } else { "open" },
        direct = match tunnel {
            true => String::new(),
            false => format!("[[direct.allow]]\nnetwork = \"{ORIGIN}\"\nports = [{ORIGIN_PORT}]\n"),
        },
        workers = cell.workers
    )
}
