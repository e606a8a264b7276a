//! A server and a client on loopback, with certificates and a directory of their own.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::certificates::{Certificates, Identity, SERVER_NAME};
use crate::listeners::TestListener;
use crate::program::Program;
use crate::relay::{Relay, RelayOptions};
use crate::settings::Settings;
use crate::test_lock::{self, Kind, TestLock};
use crate::{admin, binaries, priority, tcp, wait};

/// Workers of both programs where a test does not set them: as on a machine with so many cores.
const WORKERS_VARIABLE: &str = "E2E_WORKERS";

/// How long a program gets to start and the tunnel to come up.
const START: Duration = Duration::from_secs(15);

/// Differences from the default: a listener of each kind, destinations on 127.0.0.1 and ::1 allowed,
/// logs as JSON.
#[derive(Debug)]
pub struct PairBuilder {
    server: Settings,
    client: Settings,
    allow: Vec<(String, String)>,
    static_destination: SocketAddr,
    listeners: [String; 5],
    relay: Option<RelayOptions>,
    tunnel_port: Option<u16>,
    server_identity: Option<(PathBuf, Identity)>,
    client_identity: Option<Identity>,
    wait_healthy: bool,
    beside: Kind,
    lock: Option<TestLock>,
    measured: bool,
    server_environment: Vec<(String, String)>,
    client_environment: Vec<(String, String)>,
}

/// The addresses of both programs.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// The server's tunnel listener.
    pub tunnel: SocketAddr,
    /// The server's admin listener.
    pub server_admin: SocketAddr,
    /// The client's admin listener.
    pub client_admin: SocketAddr,
}

/// A running pair. Dropping it ends both programs.
#[derive(Debug)]
pub struct Pair {
    /// millrace-server
    pub server: Program,
    /// millrace-client
    pub client: Program,
    /// The path between them, if one was asked for.
    pub relay: Option<Relay>,
    /// Where they listen.
    pub addresses: Addresses,
    /// One of each kind: `static`, `http_connect`, `socks5`, `proxy_protocol` on TCP and on a Unix
    /// socket.
    pub listeners: [TestListener; 5],
    /// Their certificates.
    pub certificates: Certificates,
    dir: TempDir,
    _lock: TestLock,
}

impl Default for PairBuilder {
    fn default() -> Self {
        Self {
            server: Settings::default(),
            client: Settings::default(),
            allow: vec![
                ("127.0.0.0/8".into(), "\"1-65535\"".into()),
                ("::1".into(), "\"1-65535\"".into()),
            ],
            static_destination: (Ipv4Addr::LOCALHOST, 9).into(),
            listeners: std::array::from_fn(|_| String::new()),
            relay: None,
            tunnel_port: None,
            server_identity: None,
            client_identity: None,
            wait_healthy: true,
            beside: Kind::Many,
            lock: None,
            measured: false,
            server_environment: Vec::new(),
            client_environment: Vec::new(),
        }
    }
}

impl PairBuilder {
    /// Sets a key of the server's configuration, `("tunnel.idle_timeout_s", 2)`.
    #[must_use]
    pub fn server(mut self, key: &str, value: impl std::fmt::Display) -> Self {
        self.server.set(key, value);
        self
    }

    /// Sets a key of the client's configuration.
    #[must_use]
    pub fn client(mut self, key: &str, value: impl std::fmt::Display) -> Self {
        self.client.set(key, value);
        self
    }

    /// Sets a key of both configurations.
    #[must_use]
    pub fn both(self, key: &str, value: impl std::fmt::Display) -> Self {
        self.server(key, &value).client(key, &value)
    }

    /// Replaces the allow-list by networks, each with all ports.
    #[must_use]
    pub fn allow_only(mut self, networks: &[&str]) -> Self {
        let entry = |network: &&str| ((*network).to_owned(), "\"1-65535\"".to_owned());
        self.allow = networks.iter().map(entry).collect();
        self
    }

    /// Adds ports of a network to the allow-list.
    #[must_use]
    pub fn allow(mut self, network: &str, ports: &str) -> Self {
        self.allow.push((network.to_owned(), ports.to_owned()));
        self
    }

    /// Adds ports of a name to the allow-list.
    #[must_use]
    pub fn allow_name(mut self, name: &str, ports: &str) -> Self {
        let body = format!("name = \"{name}\"\nports = [{ports}]");
        self.server.push("destinations.allow", &body);
        self
    }

    /// Lets UDP flows go to all ports of a network.
    #[must_use]
    pub fn allow_udp(mut self, network: &str) -> Self {
        let ports = "protocol = \"udp\"\nports = [\"1-65535\"]";
        self.server.push("destinations.allow", &format!("network = \"{network}\"\n{ports}"));
        self
    }

    /// Sets the destination of the `static` listener.
    #[must_use]
    pub fn static_destination(mut self, to: SocketAddr) -> Self {
        self.static_destination = to;
        self
    }

    /// Adds keys to a listener's section, by its index in [`Pair::listeners`].
    #[must_use]
    pub fn listener(mut self, listener: usize, keys: &str) -> Self {
        self.listeners[listener].push_str(&format!("\n{keys}"));
        self
    }

    /// Lets flows to all ports of a network bypass the tunnel, where a listener has
    /// `fail_mode = "open"`.
    #[must_use]
    pub fn direct(mut self, network: &str) -> Self {
        let body = format!("network = \"{network}\"\nports = [\"1-65535\"]");
        self.client.push("direct.allow", &body);
        self
    }

    /// The same for one port.
    #[must_use]
    pub fn direct_port(mut self, network: &str, port: u16) -> Self {
        let body = format!("network = \"{network}\"\nports = [{port}]");
        self.client.push("direct.allow", &body);
        self
    }

    /// Adds a listener beside [`Pair::listeners`].
    #[must_use]
    pub fn listen(mut self, body: &str) -> Self {
        self.client.push("listen", body);
        self
    }

    /// Puts a relay between client and server.
    #[must_use]
    pub fn relay(mut self, options: RelayOptions) -> Self {
        self.relay = Some(options);
        self
    }

    /// The server's port of its tunnel, for a `tunnel.listen` that the test sets itself.
    #[must_use]
    pub fn tunnel_port(mut self, port: u16) -> Self {
        self.tunnel_port = Some(port);
        self
    }

    /// Gives the server another authority for clients, and another certificate.
    #[must_use]
    pub fn server_identity(mut self, client_ca: &Path, identity: Identity) -> Self {
        self.server_identity = Some((client_ca.to_owned(), identity));
        self
    }

    /// Gives the client another certificate.
    #[must_use]
    pub fn client_identity(mut self, identity: Identity) -> Self {
        self.client_identity = Some(identity);
        self
    }

    /// Sets an environment variable of the server.
    #[must_use]
    pub fn server_environment(mut self, name: &str, value: &str) -> Self {
        self.server_environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets an environment variable of the client.
    #[must_use]
    pub fn client_environment(mut self, name: &str, value: &str) -> Self {
        self.client_environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Does not wait for the tunnel to come up.
    #[must_use]
    pub fn unhealthy(mut self) -> Self {
        self.wait_healthy = false;
        self
    }

    /// Runs while no other test of this process does.
    #[must_use]
    pub fn alone(mut self) -> Self {
        self.beside = Kind::Exclusive;
        self
    }

    /// Waits now until a test of this kind may run, and not at the start: what the test prepares until then may have a time
    /// limit of its own.
    #[must_use]
    pub fn in_turn_of(mut self, kind: Kind) -> Self {
        self.lock = Some(test_lock::wait(kind));
        self
    }

    /// Runs alone, and the programs before all others where that is permitted: their rates and
    /// times are what the test is about.
    #[must_use]
    pub fn measured(mut self) -> Self {
        self.measured = true;
        self.alone()
    }

    /// Starts both.
    ///
    /// # Panics
    /// When one does not start.
    #[must_use]
    pub fn start(mut self) -> Pair {
        let lock = self.lock.take().unwrap_or_else(|| test_lock::wait(self.beside));
        raise_descriptor_limit();
        if let Ok(workers) = std::env::var(WORKERS_VARIABLE) {
            self.server.set_default("runtime.workers", &workers);
            self.client.set_default("runtime.workers", &workers);
        }
        let dir = tempfile::Builder::new().prefix("millrace-e2e-").tempdir().expect("a directory");
        let certificates = Certificates::make(dir.path());
        let tunnel_port = self.tunnel_port.unwrap_or_else(tcp::unused_port);
        let addresses = Addresses {
            tunnel: (Ipv4Addr::LOCALHOST, tunnel_port).into(),
            server_admin: tcp::unused(Ipv4Addr::LOCALHOST),
            client_admin: tcp::unused(Ipv4Addr::LOCALHOST),
        };
        self.write_server(dir.path(), &addresses, &certificates);
        let mut command = run_with(binaries::server(), &dir.path().join("server.toml"));
        command.envs(self.server_environment.drain(..));
        let server = start_server_by(command, &addresses, self.measured);
        let relay = self.relay.take().map(|options| Relay::start(addresses.tunnel, options));
        let towards = relay.as_ref().map_or(addresses.tunnel, Relay::address);
        let listeners = self.write_client(dir.path(), towards, &addresses, &certificates);
        let mut command = run_with(binaries::client(), &dir.path().join("client.toml"));
        command.envs(self.client_environment.drain(..));
        let client = start_client_by(command, self.measured);
        let pair =
            Pair { server, client, relay, addresses, listeners, certificates, dir, _lock: lock };
        if self.wait_healthy {
            pair.wait_healthy(START);
        } else {
            let address = pair.addresses.client_admin;
            wait::for_true("the client's admin listener", START, || {
                admin::get(address, "/healthz").is_ok()
            });
        }
        pair
    }

    fn write_server(&mut self, dir: &Path, addresses: &Addresses, made: &Certificates) {
        let (ca, identity) =
            self.server_identity.clone().unwrap_or((made.ca.clone(), made.server.clone()));
        let server = &mut self.server;
        server.set_default("tunnel.listen", format!("[\"{}\"]", addresses.tunnel));
        server.set_default_text("tunnel.client_ca", ca.display());
        server.set_default_text("tunnel.certificate", identity.certificate.display());
        server.set_default_text("tunnel.private_key", identity.private_key.display());
        server.set_default_text("tunnel.state_dir", dir.join("state").display());
        server.set_default_text("admin.address", addresses.server_admin);
        server.set_default_text("log.format", "json");
        for (network, ports) in &self.allow {
            let body = format!("network = \"{network}\"\nports = [{ports}]");
            server.push("destinations.allow", &body);
        }
        write(&dir.join("server.toml"), server);
    }

    fn write_client(
        &mut self,
        dir: &Path,
        server: SocketAddr,
        addresses: &Addresses,
        made: &Certificates,
    ) -> [TestListener; 5] {
        let identity = self.client_identity.clone().unwrap_or_else(|| made.client.clone());
        let client = &mut self.client;
        client.set_default("tunnel.servers", format!("[\"{server}\"]"));
        client.set_default_text("tunnel.server_name", SERVER_NAME);
        client.set_default_text("tunnel.ca", made.ca.display());
        client.set_default_text("tunnel.certificate", identity.certificate.display());
        client.set_default_text("tunnel.private_key", identity.private_key.display());
        // A mark needs a privilege.
        client.set_default("tunnel.mark", 0);
        client.set_default_text("admin.address", addresses.client_admin);
        client.set_default_text("log.format", "json");
        let [static_address, http, socks, proxy] =
            std::array::from_fn(|_| tcp::unused(Ipv4Addr::LOCALHOST));
        let unix = dir.join("client.sock");
        let to = self.static_destination;
        let listeners = [
            format!("mode = \"static\"\naddress = \"{static_address}\"\ndestination = \"{to}\""),
            format!("mode = \"http_connect\"\naddress = \"{http}\""),
            format!("mode = \"socks5\"\naddress = \"{socks}\"\nclass = \"rtsp\""),
            format!("mode = \"proxy_protocol\"\naddress = \"{proxy}\"\nclass = \"dash\""),
            format!("mode = \"proxy_protocol\"\nunix = \"{}\"", unix.display()),
        ];
        for (listener, more) in listeners.iter().zip(&self.listeners) {
            client.push("listen", &format!("{listener}{more}"));
        }
        write(&dir.join("client.toml"), client);
        [
            TestListener::Static(static_address),
            TestListener::Http(http),
            TestListener::Socks(socks),
            TestListener::Proxy(proxy),
            TestListener::ProxyUnix(unix),
        ]
    }
}

impl Pair {
    /// A pair with the defaults.
    #[must_use]
    pub fn builder() -> PairBuilder {
        PairBuilder::default()
    }

    /// The `http_connect` listener.
    #[must_use]
    pub fn http(&self) -> &TestListener {
        &self.listeners[1]
    }

    /// Where configurations and keys are.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Waits until the client says that its tunnel is up.
    ///
    /// # Panics
    /// When it does not within `at_most`.
    #[track_caller]
    pub fn wait_healthy(&self, at_most: Duration) {
        let address = self.addresses.client_admin;
        wait::for_true("the client is healthy", at_most, || {
            matches!(admin::get(address, "/healthz"), Ok((200, _)))
        });
    }

    /// Starts the server again, with its configuration as it was; the old one must have ended.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_server_again(&mut self) {
        self.server = start_server(&self.dir().join("server.toml"), &self.addresses, false);
    }

    /// Starts another server beside the first, with the same configuration and certificate.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start_another_server(&self, tunnel: SocketAddr) -> Program {
        let addresses = Addresses {
            tunnel,
            server_admin: tcp::unused(Ipv4Addr::LOCALHOST),
            client_admin: self.addresses.client_admin,
        };
        let text = std::fs::read_to_string(self.dir().join("server.toml")).expect("it was written");
        let text = text
            .replace(&self.addresses.tunnel.to_string(), &tunnel.to_string())
            .replace(&self.addresses.server_admin.to_string(), &addresses.server_admin.to_string());
        let path = self.dir().join(format!("server-{}.toml", tunnel.port()));
        std::fs::write(&path, text).expect("a configuration file");
        start_server(&path, &addresses, false)
    }

    /// Starts the client again, with its configuration as it was; the old one must have ended.
    pub fn start_client_again(&mut self) {
        self.client = start_client(self.dir.path(), false);
    }

    /// The command that starts the client with its configuration.
    #[must_use]
    pub fn client_command(&self) -> Command {
        run_with(binaries::client(), &self.dir().join("client.toml"))
    }

    /// The command that starts the server with its configuration.
    #[must_use]
    pub fn server_command(&self) -> Command {
        run_with(binaries::server(), &self.dir().join("server.toml"))
    }

    /// Both must still run.
    ///
    /// # Panics
    /// When one does not.
    #[track_caller]
    pub fn assert_running(&mut self) {
        assert!(self.server.is_running(), "millrace-server has ended");
        assert!(self.client.is_running(), "millrace-client has ended");
    }
}

/// The command `run --config FILE`.
#[must_use]
pub fn run_with(mut program: Command, config: &Path) -> Command {
    program.args(["run", "--config"]).arg(config);
    program
}

fn start_server(config: &Path, addresses: &Addresses, measured: bool) -> Program {
    start_server_by(run_with(binaries::server(), config), addresses, measured)
}

fn start_server_by(mut command: Command, addresses: &Addresses, measured: bool) -> Program {
    if measured {
        priority::raise(&mut command);
    }
    let mut program = Program::start("millrace-server", command);
    wait::for_true("the server is healthy", START, || {
        assert!(program.is_running(), "millrace-server has ended at its start");
        matches!(admin::get(addresses.server_admin, "/healthz"), Ok((200, _)))
    });
    program
}

fn start_client(dir: &Path, measured: bool) -> Program {
    start_client_by(run_with(binaries::client(), &dir.join("client.toml")), measured)
}

fn start_client_by(mut command: Command, measured: bool) -> Program {
    if measured {
        priority::raise(&mut command);
    }
    Program::start("millrace-client", command)
}

fn write(path: &Path, settings: &Settings) {
    std::fs::write(path, settings.to_string()).expect("a configuration file");
}

/// Tests hold both ends of a thousand flows.
fn raise_descriptor_limit() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).ok();
    }
}
