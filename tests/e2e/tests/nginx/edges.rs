//! Player, client edge, link, server edge and origin, with both programs at the edges and nginx in
//! front of the client.

use std::net::SocketAddr;
use std::path::Path;

use millrace_e2e::certificates::{Certificates, SERVER_NAME};
use millrace_e2e::origin::{Origin, listen};
use millrace_e2e::program::Program;
use millrace_e2e::wait::DEFAULT_TIMEOUT;
use millrace_e2e::{admin, binaries, tcp, test_lock, wait};
use millrace_lab::emulator::{Emulator, LinkConfig};
use millrace_lab::netns::Namespace;
use millrace_lab::process::output_of;
use millrace_lab::run::Run;
use millrace_lab::topology::{KernelCc, SERVER_EDGE, Topology};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use socket2::{Domain, Socket, Type};

use crate::site::{Site, WORKERS};

/// The sockets that the launcher is to hand to the client edge's nginx.
const LISTEN: [&str; 5] = [
    "0.0.0.0:15001",
    "[::]:15001",
    "0.0.0.0:15002",
    "[::]:15002",
    "unix:/run/millrace-nginx/direct.sock",
];

/// A network that no list names, behind the server edge like the origin's.
pub const UNLISTED: &str = "198.18.4.2";
/// A second address of the player.
pub const OTHER_VIEWER: &str = "198.18.1.66";

/// Fields are dropped in this order: programs, then the link, then the namespaces.
pub struct Edges {
    pub nginx: Vec<Program>,
    pub client: Program,
    pub server: Program,
    _link: Emulator,
    pub topology: Topology,
    pub site: Site,
    _run: Run,
    _lock: test_lock::TestLock,
}

impl Edges {
    /// A gateway that intercepts, with the client edge as it is shipped but for what `configure`
    /// changes. `allow` are the server's `[[destinations.allow]]` sections.
    pub fn start(allow: &str, configure: impl FnOnce(&Site)) -> Self {
        Self::start_with(allow, &LISTEN, configure)
    }

    /// The same with given sockets for the launcher; without any, nginx starts without the launcher.
    pub fn start_with(allow: &str, listen: &[&str], configure: impl FnOnce(&Site)) -> Self {
        let lock = test_lock::exclusive();
        let run = Run::start().unwrap();
        let site = Site::new();
        configure(&site);
        let topology = Topology::build(&run, KernelCc::Cubic).unwrap();
        let link = LinkConfig::new(1_000_000_000, 10_000_000, 2_000_000, 0.0, 0.0, 1);
        let link = topology.start_link(link).unwrap();
        more_addresses(&topology);
        intercept(&topology.client_edge);
        Certificates::make(run.scratch());
        let server = start_server(&topology.server_edge, run.scratch(), allow);
        let client = start_client(&topology.client_edge, run.scratch(), &site, "");
        let nginx = vec![site.start(&topology.client_edge, "client-edge", listen)];
        Self { nginx, client, server, _link: link, topology, site, _run: run, _lock: lock }
    }

    /// Starts another client, after the one before was killed, and waits for its tunnel.
    pub fn restart_client(&mut self) {
        self.restart_client_with("");
    }

    /// The same with more keys for its listener, and more sections.
    pub fn restart_client_with(&mut self, keys: &str) {
        let (edge, dir) = (&self.topology.client_edge, self._run.scratch());
        self.client = start_client(edge, dir, &self.site, keys);
    }

    /// Lets the gateway translate the addresses of what it forwards to the origins.
    pub fn masquerade(&self) {
        for rule in [
            "add table ip nat",
            "add chain ip nat out { type nat hook postrouting priority srcnat; }",
            "add rule ip nat out oifname wan masquerade",
        ] {
            output_of(self.topology.client_edge.command("nft").arg(rule)).unwrap();
        }
    }

    /// `doctor` of millrace-client.
    pub fn doctor(&self) -> Value {
        let program = binaries::path("millrace-client");
        let mut command = self.topology.client_edge.command(program.to_str().unwrap());
        command.args(["doctor", "--json", "--config"]).arg(self._run.scratch().join("client.toml"));
        serde_json::from_str(&Program::run("doctor", command, DEFAULT_TIMEOUT).output).unwrap()
    }

    /// Starts another server, after the one before was killed.
    pub fn restart_server(&mut self, allow: &str) {
        self.server = start_server(&self.topology.server_edge, self._run.scratch(), allow);
    }

    /// Kills nginx at the client edge, master and workers: a master that dies leaves its workers.
    pub fn kill_nginx(&mut self) {
        let children = format!("/proc/{0}/task/{0}/children", self.nginx[0].pid());
        let workers = std::fs::read_to_string(children).unwrap();
        self.nginx[0].kill();
        for worker in workers.split_ascii_whitespace() {
            kill(Pid::from_raw(worker.parse().unwrap()), Signal::SIGKILL).ok();
        }
        let inside = |pid: &str| std::path::Path::new("/proc").join(pid).exists();
        wait::for_true("the workers' end", DEFAULT_TIMEOUT, || {
            !workers.split_ascii_whitespace().any(inside)
        });
    }

    /// Starts nginx at the client edge again, after the one before was killed.
    pub fn restart_nginx(&mut self) {
        self.nginx[0] = self.site.start(&self.topology.client_edge, "client-edge", &LISTEN);
    }

    /// Changes a file of `nginx-conf/` that the client edge's nginx has read, and has it read again.
    pub fn edit_and_reload(&self, file: &str, from: &str, to: &str) {
        self.site.edit(file, from, to);
        self.nginx[0].signal(Signal::SIGHUP);
    }

    /// A flow of the player's to `to`.
    pub fn connect(&self, to: &str) -> std::io::Result<Socket> {
        let to: SocketAddr = to.parse().unwrap();
        self.topology.player.inside(|| Ok(tcp::connect(to))).unwrap()
    }

    /// A flow from one of the player's addresses.
    pub fn connect_from(&self, from: &str, to: &str) -> std::io::Result<Socket> {
        let (from, to) =
            (format!("{from}:0").parse::<SocketAddr>().unwrap(), to.parse::<SocketAddr>().unwrap());
        let connect = || -> std::io::Result<Socket> {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            socket.bind(&from.into())?;
            socket.connect_timeout(&to.into(), tcp::IO_TIMEOUT)?;
            tcp::prepare(&socket)?;
            Ok(socket)
        };
        self.topology.player.inside(|| Ok(connect())).unwrap()
    }

    /// Something at `address` in the origin's namespace.
    pub fn origin(&self, address: &str, serve: impl Fn(Socket) + Send + Sync + 'static) -> Origin {
        let address: SocketAddr = address.parse().unwrap();
        let listener = self.topology.origin.inside(|| Ok(listen(address, 128))).unwrap();
        Origin::serve(listener, serve)
    }

    /// Flows that millrace-client has carried.
    pub fn tunnelled(&self) -> f64 {
        let edge = &self.topology.client_edge;
        let metrics = edge.inside(|| Ok(admin::Metrics::fetch("127.0.0.1:9464".parse()?))).unwrap();
        metrics.sum("millrace_flows_opened_total", &[])
    }

    /// `/flows` of millrace-client.
    pub fn client_flows(&self) -> Value {
        let edge = &self.topology.client_edge;
        edge.inside(|| Ok(admin::flows("127.0.0.1:9464".parse()?))).unwrap()
    }

    /// Ends a flow and answers what the client edge logged about it.
    #[track_caller]
    pub fn logged(&self, flow: Socket) -> Value {
        let viewer = own(&flow);
        drop(flow);
        self.site.flow("client-edge", viewer)
    }
}

/// A socket's own address.
pub fn own(flow: &Socket) -> SocketAddr {
    flow.local_addr().unwrap().as_socket().unwrap()
}

/// The allow-list that most tests need: all that the server edge can reach, so that it is nginx that
/// refuses.
pub fn everything() -> String {
    allow("198.18.0.0/15", "") + &allow("2001:2::/48", "")
}

/// One `[[destinations.allow]]` with all ports and more keys.
pub fn allow(network: &str, keys: &str) -> String {
    format!("[[destinations.allow]]\nnetwork = \"{network}\"\nports = [\"1-65535\"]\n{keys}\n")
}

/// The client edge's lists with the IPv6 networks of the player and of the origin.
pub fn list_ipv6(site: &Site) {
    let (listed, with_ipv6) = ("198.18.3.0/24 ", "2001:2:0:3::/64 tunnel; 198.18.3.0/24 ");
    site.edit("client-edge/destinations.conf", listed, with_ipv6);
    site.edit("client-edge/viewers.conf", "deny all;", "allow 2001:2:0:1::/64; deny all;");
}

/// IPv6 beside IPv4, from RFC 5180's test network.
fn ipv6(topology: &Topology) {
    let Topology { player, client_edge, server_edge, origin, .. } = topology;
    for (namespace, interface, address, link_local) in [
        (player, "eth0", "2001:2:0:1::2", "fe80::12"),
        (client_edge, "lan", "2001:2:0:1::1", "fe80::11"),
        (client_edge, "wan", "2001:2:0:2::1", "fe80::21"),
        (server_edge, "wan", "2001:2:0:2::2", "fe80::22"),
        (server_edge, "lan", "2001:2:0:3::1", "fe80::31"),
        (origin, "eth0", "2001:2:0:3::2", "fe80::32"),
    ] {
        // Neighbor solicitations for packets of other hosts come from the link-local address.
        for address in [address, link_local] {
            namespace.ip(&format!("addr add {address}/64 dev {interface} nodad")).unwrap();
        }
    }
    for (namespace, gateway) in [
        (player, "2001:2:0:1::1"),
        (client_edge, "2001:2:0:2::2"),
        (server_edge, "2001:2:0:2::1"),
        (origin, "2001:2:0:3::1"),
    ] {
        namespace.ip(&format!("-6 route add 2001:2::/48 via {gateway}")).unwrap();
    }
    for edge in [client_edge, server_edge] {
        edge.sysctl("net.ipv6.conf.all.forwarding", "1").unwrap();
    }
}

fn more_addresses(topology: &Topology) {
    ipv6(topology);
    topology.player.ip(&format!("addr add {OTHER_VIEWER}/24 dev eth0")).unwrap();
    topology.origin.ip(&format!("addr add {UNLISTED}/32 dev lo")).unwrap();
    topology.origin.ip("addr add 198.18.3.3/24 dev eth0").unwrap();
    topology.server_edge.ip(&format!("route add {UNLISTED}/32 via 198.18.3.2")).unwrap();
}

fn intercept(edge: &Namespace) {
    for family in ["-4", "-6"] {
        edge.ip(&format!("{family} rule add fwmark 0x4d54 lookup 4454")).unwrap();
        edge.ip(&format!("{family} route add local default dev lo table 4454")).unwrap();
    }
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/nftables/tproxy.nft");
    output_of(edge.command("nft").arg("-f").arg(rules)).unwrap();
    for elements in ["client_interfaces { \"lan\" }", "ports { 9999 }", "tls_ports { 443 }"] {
        let element = format!("add element inet millrace_tproxy {elements}");
        output_of(edge.command("nft").arg(element)).unwrap();
    }
}

fn start_server(edge: &Namespace, dir: &Path, allow: &str) -> Program {
    let config = format!(
        "[tunnel]\nlisten = [\"{SERVER_EDGE}:4433\"]\nclient_ca = \"ca.pem\"\n\
         certificate = \"server.pem\"\nprivate_key = \"server.key\"\n{allow}"
    );
    let path = dir.join("server.toml");
    std::fs::write(&path, config).unwrap();
    let mut command = edge.command(binaries::path("millrace-server").to_str().unwrap());
    command.args(["run", "--config"]).arg(path);
    let server = Program::start("server", command);
    server.expect_log("its admin listener", DEFAULT_TIMEOUT, |line| {
        line.contains("admin").then_some(())
    });
    server
}

/// With the group of nginx's workers, which must reach its socket. `keys` follow those of its listener.
fn start_client(edge: &Namespace, dir: &Path, site: &Site, keys: &str) -> Program {
    let config = format!(
        "[tunnel]\nservers = [\"{SERVER_EDGE}:4433\"]\nserver_name = \"{SERVER_NAME}\"\n\
         ca = \"ca.pem\"\ncertificate = \"client.pem\"\nprivate_key = \"client.key\"\n\
         [[listen]]\nmode = \"proxy_protocol\"\nunix = {:?}\n{keys}",
        site.path("run/client.sock")
    );
    let path = dir.join("client.toml");
    std::fs::write(&path, config).unwrap();
    let mut command = edge.command("sh");
    command.args(["-c", "umask 0007; exec setpriv --regid \"$0\" --clear-groups \"$@\"", WORKERS]);
    command.arg(binaries::path("millrace-client")).args(["run", "--config"]).arg(path);
    let client = Program::start("client", command);
    client.expect_log("a connection", DEFAULT_TIMEOUT, |line| {
        line.contains("connection established").then_some(())
    });
    client
}
