//! Where it happens:
//!
//! ```text
//!  200 clients ──── millrace-client ════ link ════ 2 × millrace-server ──── origin
//!                   TPROXY, REDIRECT,    20 ms,
//!                   native listeners     0.1 % loss
//! ```
//!
//! in network namespaces of its own, with the shipped nftables rules at the client edge.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::Context;
use millrace_e2e::admin::Metrics;
use millrace_e2e::certificates::{Certificates, SERVER_NAME};
use millrace_e2e::listeners::TestListener;
use millrace_e2e::origin::{Origin, listen};
use millrace_e2e::program::Program;
use millrace_e2e::proxy;
use millrace_e2e::relay::{Relay, RelayOptions};
use millrace_lab::emulator::{Emulator, LinkConfig};
use millrace_lab::netns::Namespace;
use millrace_lab::process::output_of;
use millrace_lab::run::Run;
use millrace_lab::topology::{
    CLIENT_EDGE, CLIENT_EDGE_INSIDE, KernelCc, ORIGIN, SERVER_EDGE, Topology,
};
use millrace_lab::veth::{self, VethEnd};

use crate::Arguments;
use crate::clients::{EndFaults, Entry, serve};
use crate::tally::Tally;
use crate::vanish;

/// The second server lives for the whole soak, so that a slow leak can be seen.
pub const SERVERS: [&str; 2] = ["first-server", "second-server"];
/// And the client's name.
pub const CLIENT: &str = "client";
const PROGRAMS: [&str; 3] = [CLIENT, SERVERS[0], SERVERS[1]];
const CLIENT_ADMIN: u16 = 9464;
const SERVER_ADMIN: [u16; 2] = [9465, 9466];
const TUNNEL_PORT: [u16; 2] = [4433, 4434];
/// From a server's port to its relay's.
const TO_RELAY: u16 = 1000;
/// Intercepted by TPROXY, by REDIRECT, and reached by a `static` listener.
const ORIGIN_PORTS: [u16; 3] = [80, 554, 9000];
const NATIVE_PORTS: [u16; 3] = [8080, 3128, 1080];

/// Ends that disappear are given up, and a path MTU that rises is found, while the soak still runs.
const SHARED: &str = "\n[limits]\nhalf_close_timeout_s = 60\ntcp_user_timeout_s = 10\n\
                      tcp_probe_timeout_s = 10\n\n[runtime]\ndrain_timeout_s = 4\n";
const TUNNEL: &str = "path_mtu_probe_interval_s = 3\nidle_timeout_s = 10\n";

/// Fields are dropped in this order: programs, then the link, then the namespaces.
pub struct Site {
    pub client: Option<Program>,
    pub servers: [Option<Program>; 2],
    origins: Vec<Origin>,
    link: Option<Emulator>,
    /// By which the paths to both servers have faults, until they are taken.
    pub relays: Vec<Relay>,
    pub topology: Topology,
    run: Run,
    logs: PathBuf,
}

/// Which side of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    Client,
    Server,
}

impl Site {
    /// Everything up, the tunnel too.
    pub fn start(arguments: &Arguments, tally: &Arc<Tally>) -> anyhow::Result<Self> {
        let Arguments { seed, wrong_bytes, faults, .. } = *arguments;
        let log = arguments.log.as_str();
        let run = Run::start()?;
        let topology = Topology::build(&run, KernelCc::Cubic)?;
        let config = LinkConfig::new(200_000_000, 20_000_000, 500_000, 0.001, 0.001, seed);
        let link = topology.start_link(config)?;
        intercept(&topology.client_edge)?;
        Certificates::make(run.scratch());
        for number in 0..2 {
            let text = server_toml(number, log);
            std::fs::write(run.scratch().join(format!("server-{number}.toml")), text)?;
        }
        std::fs::write(run.scratch().join("client.toml"), client_toml(log, faults))?;
        if faults {
            vanish::prepare(&topology.player)?;
            vanish::prepare(&topology.origin)?;
        }
        let origin_faults = end_faults(&topology.origin, faults);
        let mut origins = Vec::new();
        for port in ORIGIN_PORTS {
            let address: SocketAddr = format!("{ORIGIN}:{port}").parse()?;
            let listener = topology.origin.inside(|| Ok(listen(address, 1024)))?;
            let (tally, faults) = (tally.clone(), origin_faults.clone());
            origins.push(Origin::serve(listener, move |flow| {
                tally.at_origin.fetch_add(1, Ordering::Relaxed);
                serve(flow, &tally, &faults, wrong_bytes);
                tally.at_origin.fetch_sub(1, Ordering::Relaxed);
            }));
        }
        let mut site = Self {
            client: None,
            servers: [None, None],
            origins,
            link: Some(link),
            relays: if faults { Self::start_relays(&topology)? } else { Vec::new() },
            topology,
            run,
            logs: arguments.out.clone(),
        };
        site.start_server(0);
        site.start_server(1);
        site.start_client();
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        proxy::wait_for_servers(&site.topology.client_edge, CLIENT_ADMIN, 2 * workers);
        Ok(site)
    }

    /// How clients get in: four in ten by TPROXY, three by REDIRECT, one each by `static`, CONNECT
    /// and SOCKS5.
    pub fn entry(number: usize) -> Entry {
        let to = |port| SocketAddr::new(ORIGIN.parse().expect("an address"), port);
        let listener = |n: usize| {
            SocketAddr::new(CLIENT_EDGE_INSIDE.parse().expect("an address"), NATIVE_PORTS[n])
        };
        let named = to(ORIGIN_PORTS[2]).to_string();
        match number % 10 {
            0..=3 => Entry::Intercepted(to(ORIGIN_PORTS[0])),
            4..=6 => Entry::Intercepted(to(ORIGIN_PORTS[1])),
            7 => Entry::Native(TestListener::Static(listener(0)), named),
            8 => Entry::Native(TestListener::Http(listener(1)), named),
            _ => Entry::Native(TestListener::Socks(listener(2)), named),
        }
    }

    /// The run's name, which leftovers carry.
    pub fn run_id(&self) -> String {
        self.run.id().to_owned()
    }

    pub fn start_server(&mut self, number: usize) {
        let config = self.run.scratch().join(format!("server-{number}.toml"));
        let admin = SERVER_ADMIN[number];
        let started = proxy::start(&self.topology.server_edge, "millrace-server", &config, admin);
        self.servers[number] = Some(started);
    }

    pub fn start_client(&mut self) {
        let config = self.run.scratch().join("client.toml");
        let edge = &self.topology.client_edge;
        self.client = Some(proxy::start(edge, "millrace-client", &config, CLIENT_ADMIN));
    }

    /// Relays at the server edge, by which the path to each server can have faults.
    pub fn start_relays(topology: &Topology) -> anyhow::Result<Vec<Relay>> {
        let start = |port: u16| {
            let at = |port| SocketAddr::new(SERVER_EDGE.parse().expect("an address"), port);
            topology.server_edge.inside(|| {
                Ok(Relay::start_on(at(port + TO_RELAY), at(port), RelayOptions::default()))
            })
        };
        TUNNEL_PORT.into_iter().map(start).collect()
    }

    /// What goes wrong at the viewers' ends.
    pub fn viewer_faults(&self, faults: bool) -> EndFaults {
        end_faults(&self.topology.player, faults)
    }

    /// `None` while it does not answer.
    pub fn client_metrics(&self) -> Option<Metrics> {
        proxy::metrics(&self.topology.client_edge, CLIENT_ADMIN)
    }

    /// `None` while it does not answer.
    pub fn server_metrics(&self, number: usize) -> Option<Metrics> {
        proxy::metrics(&self.topology.server_edge, SERVER_ADMIN[number])
    }

    /// Takes an edge's link away.
    pub fn link_down(&self, edge: Edge) -> anyhow::Result<()> {
        self.edge(edge).ip("link set wan down")?;
        Ok(())
    }

    /// Gives it back, with what the kernel has forgotten meanwhile.
    pub fn link_up(&self, edge: Edge) -> anyhow::Result<()> {
        let peer = match edge {
            Edge::Client => SERVER_EDGE,
            Edge::Server => CLIENT_EDGE,
        };
        self.edge(edge).ip("link set wan up")?;
        let (client, server) = (format!("{CLIENT_EDGE}/24"), format!("{SERVER_EDGE}/24"));
        let end = |namespace, address| VethEnd { namespace, name: "wan", address: Some(address) };
        veth::acquaint(
            end(&self.topology.client_edge, client.as_str()),
            end(&self.topology.server_edge, server.as_str()),
        )?;
        self.edge(edge).ip(&format!("route replace 198.18.0.0/15 via {peer}"))?;
        Ok(())
    }

    fn edge(&self, edge: Edge) -> &Namespace {
        match edge {
            Edge::Client => &self.topology.client_edge,
            Edge::Server => &self.topology.server_edge,
        }
    }

    /// Keeps the log of a program that has ended or is about to. No injected fault causes a panic.
    pub fn keep_log(&self, program: &Program, name: &str, tally: &Tally) {
        let log = program.log_text();
        if let Some(line) = log.lines().find(|line| line.contains("panicked at")) {
            tally.wrong(format!("{name}: {line}"));
        }
        let path = self.logs.join(format!("{name}.log"));
        let file = std::fs::OpenOptions::new().append(true).create(true).open(&path);
        if let Err(error) = file.and_then(|mut file| writeln!(file, "{log}")) {
            tally.wrong(format!("{}: {error}", path.display()));
        }
    }

    /// Ends the origin and the link; the namespaces stay.
    pub fn stop_origins(&mut self) {
        self.origins.clear();
        self.link = None;
    }
}

/// The logs of an earlier run go.
pub fn clear_logs(dir: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    for entry in std::fs::read_dir(dir)?.flatten() {
        if PROGRAMS.iter().any(|name| entry.file_name() == format!("{name}.log").as_str()) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// TPROXY and REDIRECT side by side, each for ports of its own.
fn intercept(edge: &Namespace) -> anyhow::Result<()> {
    edge.ip("rule add fwmark 0x4d54 lookup 4454")?;
    edge.ip("route add local default dev lo table 4454")?;
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/nftables");
    for (table, file, others) in [
        ("millrace_tproxy", "tproxy.nft", "554, 8554"),
        ("millrace_redirect", "redirect.nft", "80, 443"),
    ] {
        output_of(edge.command("nft").arg("-f").arg(shipped.join(file)))?;
        let interfaces = format!("add element inet {table} client_interfaces {{ \"lan\" }}");
        let ports = format!("delete element inet {table} ports {{ {others} }}");
        for change in [interfaces, ports] {
            output_of(edge.command("nft").arg(change))?;
        }
    }
    Ok(())
}

fn server_toml(number: usize, log: &str) -> String {
    let (port, admin) = (TUNNEL_PORT[number], SERVER_ADMIN[number]);
    format!(
        "[tunnel]\nlisten = [\"{SERVER_EDGE}:{port}\"]\nclient_ca = \"ca.pem\"\n\
         certificate = \"server.pem\"\nprivate_key = \"server.key\"\n{TUNNEL}\
         [tunnel.class.dash]\ncongestion_control = \"bbr\"\n\
         [tunnel.class.rtsp]\ncongestion_control = \"vivace-latency\"\n\
         [admin]\naddress = \"127.0.0.1:{admin}\"\n[log]\nlevel = \"{log}\"\n\
         [[destinations.allow]]\nnetwork = \"{ORIGIN}\"\nports = [80, 554, 9000]\n{SHARED}"
    )
}

fn end_faults(namespace: &Namespace, faults: bool) -> EndFaults {
    EndFaults { vanish_from: faults.then(|| namespace.name().to_owned()) }
}

fn client_toml(log: &str, faults: bool) -> String {
    let to_relay = if faults { TO_RELAY } else { 0 };
    let [fixed, http, socks] = NATIVE_PORTS;
    let [first, second] = TUNNEL_PORT;
    let listen = |mode: &str, address: String, more: &str| {
        format!(
            "[[listen]]\nmode = \"{mode}\"\naddress = \"{address}\"\nfail_mode = \"open\"\n{more}\n"
        )
    };
    let inside = |port: u16| format!("{CLIENT_EDGE_INSIDE}:{port}");
    let server = |port: u16| format!("{{ address = \"{SERVER_EDGE}:{port}\", priority = 0 }}");
    [
        format!(
            "[tunnel]\nservers = [{}, {}]\nserver_name = \"{SERVER_NAME}\"\nca = \"ca.pem\"\n\
             certificate = \"client.pem\"\nprivate_key = \"client.key\"\n{TUNNEL}\
             keepalive_s = 3\n\n",
            server(first + to_relay),
            server(second + to_relay)
        ),
        listen("tproxy", "127.0.0.1:15001".to_owned(), "class = \"dash\""),
        listen("redirect", "0.0.0.0:15002".to_owned(), ""),
        listen(
            "static",
            inside(fixed),
            &format!("class = \"rtsp\"\ndestination = \"{ORIGIN}:9000\""),
        ),
        listen("http_connect", inside(http), ""),
        listen("socks5", inside(socks), ""),
        format!("[[direct.allow]]\nnetwork = \"{ORIGIN}\"\nports = [9000]\n"),
        format!("[admin]\naddress = \"127.0.0.1:{CLIENT_ADMIN}\"\n[log]\nlevel = \"{log}\"\n"),
        SHARED.to_owned(),
    ]
    .concat()
}
