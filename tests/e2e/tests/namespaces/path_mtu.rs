//! Paths whose MTU falls and grows again under a running download: a router between client and
//! server that reports it, or does not, or the server's own interface.

use std::io::Read;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use millrace_e2e::admin::{self, Metrics};
use millrace_e2e::certificates::{Certificates, SERVER_NAME};
use millrace_e2e::origin::{Origin, listen, source};
use millrace_e2e::program::Program;
use millrace_e2e::udp::{UdpEcho, exchange};
use millrace_e2e::{binaries, data, tcp, test_lock, wait};
use millrace_lab::emulator::LinkConfig;
use millrace_lab::netns::Namespace;
use millrace_lab::process::output_of;
use millrace_lab::run::Run;
use millrace_lab::topology::{CLIENT_EDGE_INSIDE, ORIGIN};
use millrace_lab::veth::{self, VethEnd};
use socket2::Socket;

use crate::world::{Options, World};

const SEED: u64 = 77;
const BYTES: usize = 16_000_000;
/// Read before the path changes, and again before it changes back.
const PART: usize = 2_000_000;
/// A UDP payload that fits in a packet on a path of 1,500 bytes only.
const DATAGRAM_BYTES: usize = 1300;
const ADMIN_CLIENT: &str = "127.0.0.1:9464";
const ADMIN_SERVER: &str = "127.0.0.1:9465";
const TCP_LISTENER: &str = "127.0.0.1:8080";
const UDP_LISTENER: &str = "127.0.0.1:8081";
const TCP_PORT: u16 = 80;

/// The version of IP between client and server.
#[derive(Clone, Copy)]
enum Ip {
    V4,
    V6,
}

impl Ip {
    /// Client, router towards it, router towards the server, server; and the prefix length.
    fn addresses(self) -> ([&'static str; 4], u8) {
        match self {
            Self::V4 => (["198.18.1.2", "198.18.1.1", "198.18.2.1", "198.18.2.2"], 24),
            Self::V6 => (["2001:2:0:1::2", "2001:2:0:1::1", "2001:2:0:2::1", "2001:2:0:2::2"], 64),
        }
    }

    /// The router's route towards the client, to be replaced.
    fn route_to_client(self) -> &'static str {
        match self {
            Self::V4 => "-4 route replace 198.18.1.0/24 dev c",
            Self::V6 => "-6 route replace 2001:2:0:1::/64 dev c metric 256",
        }
    }

    /// UDP payload of a packet of `mtu` bytes.
    fn payload(self, mtu: u64) -> u64 {
        match self {
            Self::V4 => mtu - 28,
            Self::V6 => mtu - 48,
        }
    }
}

/// Client, router and server, with both programs. Fields are dropped in this order.
struct Routed {
    server_program: Program,
    _client_program: Program,
    client: Namespace,
    router: Namespace,
    server: Namespace,
    origin: Origin,
    echo: UdpEcho,
    _run: Run,
    _lock: test_lock::TestLock,
}

impl Routed {
    fn start(version: Ip) -> Self {
        let lock = test_lock::wait(test_lock::Kind::Few);
        let run = Run::start().unwrap();
        let ([client_ip, to_client, to_server, server_ip], prefix) = version.addresses();
        let client = Namespace::create(&run, "client").unwrap();
        let router = Namespace::create(&run, "router").unwrap();
        let server = Namespace::create(&run, "server").unwrap();
        join(&router, "c", to_client, &client, client_ip, prefix);
        join(&router, "s", to_server, &server, server_ip, prefix);
        router.sysctl("net.ipv4.ip_forward", "1").unwrap();
        router.sysctl("net.ipv6.conf.all.forwarding", "1").unwrap();
        // Of packets too large for one link there may be many at once, of several tests' seconds.
        router.sysctl("net.ipv4.icmp_ratelimit", "0").unwrap();
        router.sysctl("net.ipv6.icmp.ratelimit", "0").unwrap();
        server.ip(&format!("addr add {ORIGIN}/32 dev lo")).unwrap();

        let origin = server
            .inside(|| Ok(listen(SocketAddr::new(ORIGIN.parse()?, TCP_PORT), 128)))
            .map(|listener| Origin::serve(listener, source(SEED, BYTES as u64)))
            .unwrap();
        let origin_ip: IpAddr = ORIGIN.parse().unwrap();
        let echo =
            server.inside(|| Ok(UdpEcho::at(origin_ip, |datagram| datagram.to_vec()))).unwrap();
        let server_at = SocketAddr::new(server_ip.parse().unwrap(), 4433);
        Certificates::make(run.scratch());
        let server_program = program(&server, run.scratch(), "server", &server_toml(server_at));
        let client_program =
            program(&client, run.scratch(), "client", &client_toml(server_at, echo.address()));
        client_program.expect_log("a connection", wait::DEFAULT_TIMEOUT, |line| {
            line.contains("connection established").then_some(())
        });
        Self {
            server_program,
            _client_program: client_program,
            client,
            router,
            server,
            origin,
            echo,
            _run: run,
            _lock: lock,
        }
    }

    fn connect(&self) -> Socket {
        let to: SocketAddr = TCP_LISTENER.parse().unwrap();
        let flow = self.client.inside(|| Ok(tcp::connect(to))).unwrap().unwrap();
        flow.set_read_timeout(Some(wait::DEFAULT_TIMEOUT)).unwrap();
        flow
    }

    fn datagram_flow(&self) -> UdpSocket {
        let to: SocketAddr = UDP_LISTENER.parse().unwrap();
        self.client.inside(|| Ok(millrace_e2e::udp::client(to))).unwrap()
    }

    /// A metric of the server.
    fn metric(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        metric(&self.server, ADMIN_SERVER, name, labels)
    }

    /// The size of the server's packets, as `/flows` shows it.
    fn path_mtu_bytes(&self) -> u64 {
        let admin: SocketAddr = ADMIN_SERVER.parse().unwrap();
        let flows = self.server.inside(|| Ok(admin::flows(admin))).unwrap();
        let flows = flows["flows"].as_array().unwrap();
        // All flows may not be on the connection of the download, which is the first.
        let sizes = flows.iter().filter(|flow| flow["protocol"] == "tcp");
        sizes.filter_map(|flow| flow["path_mtu_bytes"].as_u64()).next().unwrap_or(0)
    }

    fn expect_path_mtu(&self, bytes: u64) {
        wait::for_true(&format!("path MTU {bytes}"), wait::DEFAULT_TIMEOUT, || {
            self.path_mtu_bytes() == bytes
        });
    }
}

fn metric(of: &Namespace, admin: &str, name: &str, labels: &[(&str, &str)]) -> f64 {
    let admin: SocketAddr = admin.parse().unwrap();
    of.inside(|| Ok(Metrics::fetch(admin))).unwrap().sum(name, labels)
}

fn join(
    router: &Namespace,
    device: &str,
    router_ip: &str,
    host: &Namespace,
    host_ip: &str,
    prefix: u8,
) {
    let host_name = host.name();
    router.ip(&format!("link add {device} type veth peer name wan netns {host_name}")).unwrap();
    let nodad = if router_ip.contains(':') { " nodad" } else { "" };
    for (namespace, device, ip) in [(router, device, router_ip), (host, "wan", host_ip)] {
        namespace.ip(&format!("addr add {ip}/{prefix} dev {device}{nodad}")).unwrap();
        namespace.ip(&format!("link set {device} up")).unwrap();
    }
    let end = |namespace, name, address| VethEnd { namespace, name, address: Some(address) };
    veth::acquaint(end(router, device, router_ip), end(host, "wan", host_ip)).unwrap();
    let family = if router_ip.contains(':') { "-6" } else { "-4" };
    host.ip(&format!("{family} route add default via {router_ip}")).unwrap();
}

/// With several workers: the kernel gives a router's report to the socket of any of them.
fn server_toml(address: SocketAddr) -> String {
    format!(
        "[runtime]\nworkers = 4\n\
         [tunnel]\nlisten = [\"{address}\"]\nclient_ca = \"ca.pem\"\n\
         certificate = \"server.pem\"\nprivate_key = \"server.key\"\n\
         path_mtu_probe_interval_s = 1\n\
         congestion_control = {{ name = \"constant\", rate_mbps = 100 }}\n\
         [[destinations.allow]]\nnetwork = \"{ORIGIN}/32\"\nports = [\"1-65535\"]\n\
         [[destinations.allow]]\nnetwork = \"{ORIGIN}/32\"\nports = [\"1-65535\"]\n\
         protocol = \"udp\"\n"
    )
}

fn client_toml(server: SocketAddr, echo: SocketAddr) -> String {
    format!(
        "[tunnel]\nservers = [\"{server}\"]\nserver_name = \"{SERVER_NAME}\"\nca = \"ca.pem\"\n\
         certificate = \"client.pem\"\nprivate_key = \"client.key\"\n\
         path_mtu_probe_interval_s = 1\n\
         [[listen]]\nmode = \"static\"\naddress = \"{TCP_LISTENER}\"\n\
         destination = \"{ORIGIN}:{TCP_PORT}\"\n\
         [[listen]]\nmode = \"udp\"\naddress = \"{UDP_LISTENER}\"\ndestination = \"{echo}\"\n"
    )
}

fn program(of: &Namespace, dir: &Path, side: &str, config: &str) -> Program {
    let path = dir.join(format!("{side}.toml"));
    std::fs::write(&path, config).unwrap();
    let binary = binaries::path(&format!("millrace-{side}"));
    let mut command = of.command(binary.to_str().unwrap());
    command.args(["run", "--config"]).arg(&path);
    let program = Program::start(side, command);
    program.expect_log("its admin listener", wait::DEFAULT_TIMEOUT, |line| {
        (line.contains("listening") && line.contains("admin")).then_some(())
    });
    program
}

/// How the path's MTU falls.
#[derive(Clone, Copy)]
enum Change {
    /// The router's link towards the client; what the router reports of it is lost or not.
    Router { reports: bool },
    /// The server's own interface.
    Server,
}

impl Change {
    fn set_mtu(self, version: Ip, world: &Routed, mtu: u64) {
        match self {
            // Of the route and not of the device: a veth drops larger packets that come in too, but
            // not those that segmentation offload has joined.
            Self::Router { .. } => {
                let route = version.route_to_client();
                world.router.ip(&format!("{route} mtu lock {mtu}")).unwrap()
            }
            Self::Server => world.server.ip(&format!("link set wan mtu {mtu}")).unwrap(),
        };
    }

    fn prepare(self, world: &Routed) {
        if !matches!(self, Self::Router { reports: false }) {
            return;
        }
        for command in [
            "add table inet silent",
            "add chain inet silent out { type filter hook output priority 0; }",
            "add rule inet silent out icmp type destination-unreachable drop",
            "add rule inet silent out icmpv6 type packet-too-big drop",
        ] {
            output_of(world.router.command("nft").arg(command)).unwrap();
        }
    }

    fn reason(self) -> &'static str {
        match self {
            Self::Router { reports: false } => "black_hole",
            Self::Router { reports: true } => "icmp",
            Self::Server => "local",
        }
    }
}

/// A download, new flows and datagrams while the path's MTU falls to `mtu` and grows again; nothing
/// may stand still for longer than `at_most`.
fn survives(version: Ip, change: Change, mtu: u64, at_most: Duration) {
    let world = Routed::start(version);
    change.prepare(&world);
    let datagrams = world.datagram_flow();
    let datagram = data::pattern(1, DATAGRAM_BYTES);
    let mut flow = world.connect();
    let mut whole = vec![0; BYTES];
    flow.read_exact(&mut whole[..PART]).unwrap();
    world.expect_path_mtu(1452);
    assert_eq!(exchange(&datagrams, &datagram, wait::DEFAULT_TIMEOUT).as_ref(), Some(&datagram));
    assert_eq!(world.metric("millrace_datagram_capsules_total", &[]), 0.0);

    change.set_mtu(version, &world, mtu);
    let stall = read_in_time(&mut flow, &mut whole[PART..2 * PART]);
    println!("{} {mtu}: longest pause {stall:?}", change.reason());
    assert!(stall < at_most, "a pause of {stall:?}");
    // A new flow, and datagrams that no packet has room for any more.
    let mut other = vec![0; PART];
    world.connect().read_exact(&mut other).unwrap();
    assert!(other == data::pattern(SEED, PART), "a new flow has other bytes");
    world.expect_path_mtu(version.payload(mtu));
    // At a veth with a smaller MTU of its own they would not even come in.
    if matches!(change, Change::Router { .. }) {
        let again = || exchange(&datagrams, &datagram, Duration::from_secs(1));
        assert_eq!(wait::until(wait::DEFAULT_TIMEOUT, again).as_ref(), Some(&datagram));
        assert!(world.metric("millrace_datagram_capsules_total", &[]) >= 1.0);
    }
    let decreases =
        |reason| world.metric("millrace_path_mtu_decreases_total", &[("reason", reason)]);
    assert!(decreases(change.reason()) >= 1.0, "{}", world.server_program.log_text());
    let log = world.server_program.log_text();
    assert!(log.contains("path MTU fell from 1452 to 1200"), "{log}");

    change.set_mtu(version, &world, 1500);
    let stall = read_in_time(&mut flow, &mut whole[2 * PART..3 * PART]);
    assert!(stall < at_most, "a pause of {stall:?}");
    world.expect_path_mtu(1452);
    flow.read_exact(&mut whole[3 * PART..]).unwrap();
    assert!(whole == data::pattern(SEED, BYTES), "other bytes after the change");
    assert_eq!(flow.read(&mut [0]).unwrap(), 0);
    // The new flow was left before its end.
    let finished = |labels: &[_]| world.metric("millrace_flows_finished_total", labels);
    let of = |outcome| finished(&[("outcome", outcome)]);
    assert_eq!(finished(&[]), of("complete") + of("peer_reset"));
    assert!(world.origin.accepted() >= 2 && world.echo.seen() >= 1);
}

/// Reads all of `part`; the longest time in between.
fn read_in_time(flow: &mut Socket, mut part: &mut [u8]) -> Duration {
    let (mut longest, mut last) = (Duration::ZERO, Instant::now());
    while !part.is_empty() {
        let read = flow.read(part).unwrap();
        assert!(read > 0, "the end came early");
        part = &mut part[read..];
        longest = longest.max(last.elapsed());
        last = Instant::now();
    }
    longest
}

/// Two probe timeouts (RFC 9002, Section 6.2.1, with 25 ms for the peer's delay) and some more for a
/// busy machine.
const MAX_SILENT_TIME: Duration = Duration::from_millis(1000);
const MAX_REPORTED_TIME: Duration = Duration::from_millis(500);

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn download_goes_on_over_a_silent_router_with_a_smaller_mtu() {
    survives(Ip::V4, Change::Router { reports: false }, 1280, MAX_SILENT_TIME);
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn download_goes_on_over_a_silent_router_with_little_more_than_the_least_mtu() {
    survives(Ip::V4, Change::Router { reports: false }, 1250, MAX_SILENT_TIME);
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn download_goes_on_over_a_router_that_reports_a_smaller_mtu() {
    survives(Ip::V4, Change::Router { reports: true }, 1280, MAX_REPORTED_TIME);
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn download_goes_on_over_a_router_that_reports_a_smaller_ipv6_mtu() {
    survives(Ip::V6, Change::Router { reports: true }, 1280, MAX_REPORTED_TIME);
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn download_goes_on_when_the_servers_interface_shrinks() {
    survives(Ip::V4, Change::Server, 1280, MAX_REPORTED_TIME);
}

/// The rate is back when this share of it is.
const RATE_SHARE: f64 = 0.9;
const MAX_RATE_RECOVERY_TIME: Duration = Duration::from_secs(5);
/// What a rate is measured over.
const RATE_INTERVAL: Duration = Duration::from_millis(250);
/// How long the rate before is measured, once it no longer grows.
const RATE_BEFORE: Duration = Duration::from_secs(2);

/// On a link of 50 Mbit/s and 40 ms whose client's end drops packets above 1,280 bytes silently. That the rate stays is
/// told by the median of five seconds: in one of them this machine may have had no time for the link.
#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn rate_is_back_within_seconds_of_a_black_hole() {
    let _lock = test_lock::exclusive();
    let listen = format!(
        "[[listen]]\nmode = \"static\"\naddress = \"{CLIENT_EDGE_INSIDE}:8080\"\n\
         destination = \"{ORIGIN}:{TCP_PORT}\"\n"
    );
    for name in ["cubic", "bbr", "vivace-latency"] {
        let server = format!("congestion_control = \"{name}\"\n");
        let options = Options { listen: &listen, allow: &["198.18.3.0/24"], server: &server };
        let link = LinkConfig::new(50_000_000, 20_000_000, 400_000, 0.0, 0.0, 1);
        let world = World::measured(link, &options);
        let _origin = world.origin(TCP_PORT, source(SEED, 1 << 30));
        let to = format!("{CLIENT_EDGE_INSIDE}:8080");
        let mut flow = World::connect(&world.topology.player, &to).unwrap();
        flow.set_read_timeout(Some(wait::DEFAULT_TIMEOUT)).unwrap();
        let mut buffer = vec![0; 1 << 20];
        rate_mbps(&mut flow, &mut buffer, RATE_BEFORE);
        let before = rate_mbps(&mut flow, &mut buffer, RATE_BEFORE);
        for command in [
            "add table inet small",
            "add chain inet small in { type filter hook prerouting priority 0; }",
            "add rule inet small in iifname wan meta length > 1280 drop",
        ] {
            output_of(world.topology.client_edge.command("nft").arg(command)).unwrap();
        }
        let changed = Instant::now();
        while rate_mbps(&mut flow, &mut buffer, RATE_INTERVAL) < RATE_SHARE * before {
            assert!(
                changed.elapsed() < MAX_RATE_RECOVERY_TIME,
                "{name}: no {RATE_SHARE} of {before} Mbit/s"
            );
        }
        println!("{name}: {before:.1} Mbit/s before, back after {:?}", changed.elapsed());
        let mut after = [0.0; 5].map(|_: f64| rate_mbps(&mut flow, &mut buffer, 4 * RATE_INTERVAL));
        after.sort_by(f64::total_cmp);
        assert!(after[2] > RATE_SHARE * before, "{name}: {after:?} after {before} Mbit/s");
        let decreases = metric(
            &world.topology.server_edge,
            ADMIN_SERVER,
            "millrace_path_mtu_decreases_total",
            &[("reason", "black_hole")],
        );
        assert!(decreases >= 1.0);
        let finished = |labels: &[_]| {
            metric(
                &world.topology.client_edge,
                ADMIN_CLIENT,
                "millrace_flows_finished_total",
                labels,
            )
        };
        assert_eq!(finished(&[]), finished(&[("outcome", "complete")]));
    }
}

fn rate_mbps(flow: &mut Socket, buffer: &mut [u8], during: Duration) -> f64 {
    let (begin, mut bytes) = (Instant::now(), 0);
    while begin.elapsed() < during {
        bytes += flow.read(buffer).unwrap();
    }
    bytes as f64 * 8e-6 / begin.elapsed().as_secs_f64()
}
