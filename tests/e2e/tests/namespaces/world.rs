//! Player, client edge, link, server edge and origin, with both programs at the edges.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use millrace_e2e::certificates::{Certificates, SERVER_NAME};
use millrace_e2e::origin::{Origin, listen};
use millrace_e2e::program::Program;
use millrace_e2e::test_lock::Kind;
use millrace_e2e::wait::DEFAULT_TIMEOUT;
use millrace_e2e::{binaries, priority, test_lock};
use millrace_lab::emulator::{Emulator, LinkConfig};
use millrace_lab::netns::Namespace;
use millrace_lab::run::Run;
use millrace_lab::topology::{CLIENT_EDGE, KernelCc, ORIGIN, SERVER_EDGE, Topology};
use socket2::Socket;

/// What differs between tests. Keys of `[tunnel]` may go ahead of the sections.
pub struct Options<'a> {
    /// The `[[listen]]` sections of the client.
    pub listen: &'a str,
    /// The `[[destinations.allow]]` networks of the server, with all ports.
    pub allow: &'a [&'a str],
    /// More of the server's configuration.
    pub server: &'a str,
}

/// Fields are dropped in this order: programs, then the link, then the namespaces.
pub struct World {
    pub server: Program,
    pub client: Program,
    measured: bool,
    _link: Emulator,
    pub topology: Topology,
    run: Run,
    _lock: Option<test_lock::TestLock>,
}

impl World {
    /// Joins everything by a link of 1 Gbit/s and 10 ms and starts both programs. `prepare` is for
    /// rules and routes.
    pub fn start(options: &Options<'_>, prepare: impl FnOnce(&Topology)) -> Self {
        let lock = test_lock::wait(Kind::Few);
        let link = LinkConfig::new(1_000_000_000, 10_000_000, 2_000_000, 0.0, 0.0, 1);
        Self { _lock: Some(lock), ..Self::build(link, options, false, prepare) }
    }

    /// The same over another link, with the programs before all others: their rates count. The
    /// caller holds a [`test_lock::TestLock`] itself.
    pub fn measured(link: LinkConfig, options: &Options<'_>) -> Self {
        Self::build(link, options, true, |_| {})
    }

    fn build(
        link: LinkConfig,
        options: &Options<'_>,
        measured: bool,
        prepare: impl FnOnce(&Topology),
    ) -> Self {
        let run = Run::start().unwrap();
        let topology = Topology::build(&run, KernelCc::Cubic).unwrap();
        let link = topology.start_link(link).unwrap();
        prepare(&topology);
        Certificates::make(run.scratch());
        let (server, client) = start_both(&topology, run.scratch(), options, measured);
        Self { server, client, measured, _link: link, topology, run, _lock: None }
    }

    /// Ends both programs and starts them with another configuration.
    pub fn restart(&mut self, options: &Options<'_>) {
        for program in [&mut self.client, &mut self.server] {
            program.kill();
        }
        let dir = self.run.scratch();
        (self.server, self.client) = start_both(&self.topology, dir, options, self.measured);
    }

    /// Starts the server again, which has ended.
    pub fn start_server(&mut self, options: &Options<'_>) {
        let (edge, dir) = (&self.topology.server_edge, self.run.scratch());
        self.server = start(edge, dir, "server", &server_toml(options), self.measured);
    }

    /// The directory of its configurations and certificates.
    pub fn scratch(&self) -> &Path {
        self.run.scratch()
    }

    /// What the client's doctor finds at the client edge.
    pub fn doctor(&self) -> (Option<i32>, serde_json::Value) {
        let program = binaries::path("millrace-client");
        let mut command = self.topology.client_edge.command(program.to_str().unwrap());
        command.args(["doctor", "--json", "--config"]).arg(self.run.scratch().join("client.toml"));
        let ended = Program::run("doctor", command, DEFAULT_TIMEOUT);
        let found = serde_json::from_str(&ended.output);
        (ended.code, found.unwrap_or_else(|error| panic!("{error}: {}", ended.output)))
    }

    /// `/flows` of the server.
    pub fn server_flows(&self) -> serde_json::Value {
        let admin = SocketAddr::from(([127, 0, 0, 1], 9465));
        self.topology.server_edge.inside(|| Ok(millrace_e2e::admin::flows(admin))).unwrap()
    }

    /// An origin behind the server edge, on a port.
    pub fn origin(&self, port: u16, serve: impl Fn(Socket) + Send + Sync + 'static) -> Origin {
        let address: SocketAddr = format!("{ORIGIN}:{port}").parse().unwrap();
        let listener = self.topology.origin.inside(|| Ok(listen(address, 128))).unwrap();
        Origin::serve(listener, serve)
    }

    /// Connects from a namespace.
    pub fn connect(from: &Namespace, to: &str) -> std::io::Result<Socket> {
        let to: SocketAddr = to.parse().unwrap();
        from.inside(|| Ok(millrace_e2e::tcp::connect(to))).unwrap()
    }

    /// Flows that a program has carried, by its metrics, read from inside its namespace.
    pub fn flows_opened(from: &Namespace, admin: &str) -> f64 {
        let admin: SocketAddr = admin.parse().unwrap();
        let metrics = from.inside(|| Ok(millrace_e2e::admin::Metrics::fetch(admin))).unwrap();
        metrics.sum("millrace_flows_opened_total", &[])
    }
}

/// Loads one of the shipped nftables files, and adds what it says to add.
pub fn load_rules(namespace: &Namespace, file: &str, additions: &[&str]) {
    let path = shipped(file);
    millrace_lab::process::output_of(namespace.command("nft").arg("-f").arg(&path)).unwrap();
    for addition in additions {
        let mut command = namespace.command("nft");
        millrace_lab::process::output_of(command.arg(format!("add element inet {addition}")))
            .unwrap();
    }
}

fn shipped(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/nftables").join(file)
}

fn server_toml(options: &Options<'_>) -> String {
    let mut text = format!(
        "[tunnel]\nlisten = [\"{SERVER_EDGE}:4433\"]\nclient_ca = \"ca.pem\"\n\
         certificate = \"server.pem\"\nprivate_key = \"server.key\"\n{}\n",
        options.server
    );
    for network in options.allow {
        let ports = "ports = [\"1-65535\"]";
        text.push_str(&format!("[[destinations.allow]]\nnetwork = \"{network}\"\n{ports}\n"));
    }
    text
}

fn client_toml(options: &Options<'_>) -> String {
    format!(
        "[tunnel]\nservers = [\"{SERVER_EDGE}:4433\"]\nserver_name = \"{SERVER_NAME}\"\n\
         ca = \"ca.pem\"\ncertificate = \"client.pem\"\nprivate_key = \"client.key\"\n{}\n",
        options.listen
    )
}

/// Both programs, with the tunnel up.
fn start_both(
    topology: &Topology,
    dir: &Path,
    options: &Options<'_>,
    measured: bool,
) -> (Program, Program) {
    let start = |namespace, side, config: &str| start(namespace, dir, side, config, measured);
    let server = start(&topology.server_edge, "server", &server_toml(options));
    let client = start(&topology.client_edge, "client", &client_toml(options));
    client.expect_log("a connection", DEFAULT_TIMEOUT, |line| {
        line.contains("connection established").then_some(())
    });
    (server, client)
}

fn start(namespace: &Namespace, dir: &Path, side: &str, config: &str, measured: bool) -> Program {
    let path = dir.join(format!("{side}.toml"));
    start_with(namespace, &path, side, config, measured)
}

/// Starts one program, with its configuration at `path`.
pub fn start_with(
    namespace: &Namespace,
    path: &Path,
    side: &str,
    config: &str,
    measured: bool,
) -> Program {
    std::fs::write(path, config).unwrap();
    let mut command =
        namespace.command(binaries::path(&format!("millrace-{side}")).to_str().unwrap());
    command.args(["run", "--config"]).arg(path);
    if measured {
        priority::raise(&mut command);
    }
    let program = Program::start(side, command);
    program.expect_log("its admin listener", DEFAULT_TIMEOUT, |line| {
        (line.contains("listening") && line.contains("admin")).then_some(())
    });
    program
}

/// Section of a listener at the client edge's own address, which is not transparent.
pub fn listen_section(mode: &str, port: u16) -> String {
    format!("[[listen]]\nmode = \"{mode}\"\naddress = \"{CLIENT_EDGE}:{port}\"\n")
}
