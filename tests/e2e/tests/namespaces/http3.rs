//! UDP of intercepted viewers, carried as flows to each destination: a listener of mode `tproxy` with
//! `protocol = "udp"` behind the shipped rules.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use millrace_e2e::admin::{self, Metrics};
use millrace_e2e::certificates::SERVER_NAME;
use millrace_e2e::data;
use millrace_e2e::origin::{Origin, listen, source};
use millrace_e2e::program::Program;
use millrace_e2e::udp::{self, UdpEcho};
use millrace_e2e::wait::{self, DEFAULT_TIMEOUT};
use millrace_lab::netns::Namespace;
use millrace_lab::topology::{KernelCc, ORIGIN, ORIGIN_6, SERVER_EDGE_INSIDE, Topology};

use crate::world::{Options, World, load_rules, start_with};

const CLIENT_ADMIN: &str = "127.0.0.1:9464";
const SERVER_ADMIN: &str = "127.0.0.1:9465";
const HTTPS_PORT: u16 = 443;
/// Further addresses of the origin.
const OTHER_ORIGIN: &str = "198.18.3.3";
const OTHER_ORIGIN_6: &str = "2001:2:0:3::3";
/// How long nothing must come where nothing may come.
const SILENCE: Duration = Duration::from_millis(500);

const LISTEN: &str = "[[listen]]
mode = \"tproxy\"
address = \"127.0.0.1:15001\"

[[listen]]
mode = \"tproxy\"
protocol = \"udp\"
address = \"127.0.0.1:15001\"

[[listen]]
mode = \"tproxy\"
protocol = \"udp\"
address = \"[::1]:15001\"
";

const ALLOW_UDP: &str = "[[destinations.allow]]
protocol = \"udp\"
network = \"198.18.3.0/24\"
ports = [443]

[[destinations.allow]]
protocol = \"udp\"
network = \"2001:2:0:3::/64\"
ports = [443]
";

pub const CARRIED: Options<'_> =
    Options { listen: LISTEN, allow: &["198.18.3.0/24"], server: ALLOW_UDP };

/// IPv6 beside IPv4, two addresses of the origin for each, and the rules without anything to carry.
pub fn rules(topology: &Topology) {
    topology.add_ipv6(KernelCc::Cubic).unwrap();
    topology.origin.ip(&format!("addr add {OTHER_ORIGIN}/24 dev eth0")).unwrap();
    topology.origin.ip(&format!("-6 addr add {OTHER_ORIGIN_6}/64 dev eth0 nodad")).unwrap();
    let edge = &topology.client_edge;
    for family in ["-4", "-6"] {
        edge.ip(&format!("{family} rule add fwmark 0x4d54 lookup 4454")).unwrap();
        edge.ip(&format!("{family} route add local default dev lo table 4454")).unwrap();
    }
    load_rules(edge, "tproxy.nft", &["millrace_tproxy client_interfaces { \"lan\" }"]);
}

/// With the destination port of HTTP/3 to carry.
fn carrying(topology: &Topology) {
    rules(topology);
    carry(&topology.client_edge);
}

pub fn carry(edge: &Namespace) {
    let element = "add element inet millrace_tproxy carried_udp_ports { 443 }";
    millrace_lab::process::output_of(edge.command("nft").arg(element)).unwrap();
}

fn https(ip: &str) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), HTTPS_PORT)
}

/// An origin that answers each datagram with its own address ahead of it.
fn origin(world: &World, ip: &str) -> UdpEcho {
    let at = https(ip);
    let answer = move |datagram: &[u8]| [at.to_string().as_bytes(), datagram].concat();
    world.topology.origin.inside(|| Ok(UdpEcho::on(at, answer))).unwrap()
}

/// A viewer's socket that takes datagrams from everywhere.
fn viewer(world: &World, is_ipv4: bool) -> UdpSocket {
    let any =
        if is_ipv4 { IpAddr::from(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
    world.topology.player.inside(|| Ok(udp::socket_at(any))).unwrap()
}

/// The next datagram and its source.
fn receive_from(socket: &UdpSocket, at_most: Duration) -> Option<(SocketAddr, Vec<u8>)> {
    let mut buffer = vec![0; 65_536];
    socket.set_read_timeout(Some(at_most)).unwrap();
    let (length, from) = socket.recv_from(&mut buffer).ok()?;
    buffer.truncate(length);
    Some((from, buffer))
}

fn metric(of: &Namespace, admin: &str, name: &str, labels: &[(&str, &str)]) -> f64 {
    let admin: SocketAddr = admin.parse().unwrap();
    of.inside(|| Ok(Metrics::fetch(admin))).unwrap().sum(name, labels)
}

fn client_metric(world: &World, name: &str, labels: &[(&str, &str)]) -> f64 {
    metric(&world.topology.client_edge, CLIENT_ADMIN, name, labels)
}

/// The destinations of the UDP flows at an end, sorted.
fn udp_destinations(of: &Namespace, admin: &str) -> Vec<String> {
    let admin: SocketAddr = admin.parse().unwrap();
    let flows = of.inside(|| Ok(admin::flows(admin))).unwrap();
    let flows = flows["flows"].as_array().unwrap().iter();
    let udp = flows.filter(|flow| flow["protocol"] == "udp");
    let mut found: Vec<_> =
        udp.map(|flow| flow["destination"].as_str().unwrap().to_owned()).collect();
    found.sort();
    found
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn each_source_with_each_destination_is_a_flow_that_the_destination_answers() {
    let world = World::start(&CARRIED, carrying);
    let mut expected = Vec::new();
    for ips in [[ORIGIN, OTHER_ORIGIN], [ORIGIN_6, OTHER_ORIGIN_6]] {
        let origins = ips.map(|ip| origin(&world, ip));
        let is_ipv4 = origins[0].address().is_ipv4();
        // Two ports of the viewer, each to both destinations. The sizes are those of QUIC's first packets, and what is
        // larger than a packet of 1,200 bytes has room for.
        let viewers = [viewer(&world, is_ipv4), viewer(&world, is_ipv4)];
        for (number, size) in [1, 0, 1200, 1252, 1350].into_iter().enumerate() {
            for viewer in &viewers {
                for to in origins.each_ref().map(UdpEcho::address) {
                    let datagram = data::pattern(number as u64, size);
                    viewer.send_to(&datagram, to).unwrap();
                    let answer = [to.to_string().as_bytes(), &datagram].concat();
                    let got = receive_from(viewer, DEFAULT_TIMEOUT);
                    assert!(got == Some((to, answer)), "{number}: {size} to {to}: {got:?}");
                }
            }
        }
        assert_eq!(origins.each_ref().map(UdpEcho::seen), [10, 10]);
        expected.extend(
            origins.iter().flat_map(|it| [it.address().to_string(), it.address().to_string()]),
        );
    }
    expected.sort();
    let edges =
        [(&world.topology.client_edge, CLIENT_ADMIN), (&world.topology.server_edge, SERVER_ADMIN)];
    for (edge, admin) in edges {
        assert_eq!(udp_destinations(edge, admin), expected);
        for direction in ["up", "down"] {
            let labels = [("direction", direction)];
            assert_eq!(metric(edge, admin, "millrace_flow_datagrams_total", &labels), 40.0);
        }
    }
    assert_eq!(client_metric(&world, "millrace_drops_total", &[]), 0.0);
}

/// The answers leave from a port below 1024, for which the process keeps what it needs when it is no longer root.
#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn a_silent_flow_ends_and_the_next_datagram_begins_another() {
    let listen =
        format!("{LISTEN}[limits]\nudp_idle_timeout_s = 1\n[runtime]\nuser = \"nobody\"\n");
    let world = World::start(&Options { listen: &listen, ..CARRIED }, carrying);
    let origin = origin(&world, ORIGIN);
    let viewer = viewer(&world, true);
    for round in 1..=2 {
        viewer.send_to(b"question", origin.address()).unwrap();
        let from = receive_from(&viewer, DEFAULT_TIMEOUT).map(|(from, _)| from);
        assert_eq!(from, Some(origin.address()), "{}", world.client.log_text());
        assert_eq!(client_metric(&world, "millrace_flows_opened_total", &[]), f64::from(round));
        wait::for_true("the flow ends", DEFAULT_TIMEOUT, || {
            client_metric(&world, "millrace_flows_active", &[]) == 0.0
        });
    }
    assert_eq!(client_metric(&world, "millrace_flows_failed_total", &[]), 0.0);
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn flows_are_bounded_before_and_after_their_first_answer() {
    const UNANSWERED: usize = 8;
    const ANSWERED: usize = 4;
    let listen = format!(
        "{LISTEN}[limits]\nmax_unanswered_udp_flows = {UNANSWERED}\nmax_flows = {ANSWERED}\n\
         [runtime]\nworkers = 1\n"
    );
    let world = World::start(&Options { listen: &listen, ..CARRIED }, carrying);
    // It answers nothing.
    let silent = https(ORIGIN);
    let silent = world.topology.origin.inside(|| Ok(udp::socket_on(silent))).unwrap();
    let to = silent.local_addr().unwrap();
    let viewers: Vec<_> = (0..50).map(|_| viewer(&world, true)).collect();
    for viewer in &viewers {
        viewer.send_to(b"question", to).unwrap();
    }
    let unanswered = || client_metric(&world, "millrace_udp_flows_unanswered", &[]);
    let evicted = || {
        let labels = [("reason", "unanswered_udp_flow")];
        client_metric(&world, "millrace_drops_total", &labels)
    };
    wait::for_true("the others are evicted", DEFAULT_TIMEOUT, || {
        evicted() == (viewers.len() - UNANSWERED) as f64
    });
    assert_eq!(unanswered(), UNANSWERED as f64);

    drop(silent);
    let origin = origin(&world, ORIGIN);
    let mut answered = 0;
    wait::for_true("as many as may be are answered", DEFAULT_TIMEOUT, || {
        for viewer in &viewers {
            viewer.send_to(b"question", origin.address()).unwrap();
            answered += usize::from(receive_from(viewer, Duration::from_millis(20)).is_some());
        }
        answered >= ANSWERED
    });
    assert!(client_metric(&world, "millrace_flows_active", &[]) <= ANSWERED as f64);
    wait::for_true("the limit is counted", DEFAULT_TIMEOUT, || {
        let labels = [("reason", "flow_limit")];
        client_metric(&world, "millrace_drops_total", &labels) >= 1.0
    });
}

/// What the server does not allow is dropped, and does not bypass the tunnel.
#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn a_destination_that_is_not_allowed_gets_nothing() {
    let allow = ALLOW_UDP.replace("198.18.3.0/24", &format!("{ORIGIN}/32"));
    let world = World::start(&Options { server: &allow, ..CARRIED }, carrying);
    let [allowed, denied] = [ORIGIN, OTHER_ORIGIN].map(|ip| origin(&world, ip));
    let viewer = viewer(&world, true);
    viewer.send_to(b"question", denied.address()).unwrap();
    wait::for_true("the server denies it", DEFAULT_TIMEOUT, || {
        let name = "millrace_destinations_denied_total";
        metric(&world.topology.server_edge, SERVER_ADMIN, name, &[]) == 1.0
    });
    assert_eq!(receive_from(&viewer, SILENCE), None);
    assert_eq!(denied.seen(), 0);
    // The same port of the viewer to another destination is another flow.
    viewer.send_to(b"question", allowed.address()).unwrap();
    assert!(receive_from(&viewer, DEFAULT_TIMEOUT).is_some());
}

/// Without a server the rules decide: they reject, so that browsers use TCP.
#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn with_fail_mode_open_datagrams_are_left_to_the_rules_while_no_server_is_healthy() {
    let listen =
        LISTEN.replace("protocol = \"udp\"\n", "protocol = \"udp\"\nfail_mode = \"open\"\n");
    let options = Options { listen: &listen, ..CARRIED };
    let mut world = World::start(&options, |topology| {
        carrying(topology);
        // By default the kernel answers a host once a second.
        topology.client_edge.sysctl("net.ipv4.icmp_ratelimit", "0").unwrap();
        topology.client_edge.sysctl("net.ipv6.icmp.ratelimit", "0").unwrap();
    });
    let origins = [ORIGIN, ORIGIN_6].map(|ip| origin(&world, ip));
    let ask = |world: &World, to: SocketAddr| {
        let viewer = viewer(world, to.is_ipv4());
        viewer.connect(to).unwrap();
        viewer.send(b"question").unwrap();
        viewer.set_read_timeout(Some(SILENCE)).unwrap();
        viewer.recv(&mut [0; 100])
    };
    let all_answer = |world: &World| origins.iter().all(|it| ask(world, it.address()).is_ok());
    assert!(all_answer(&world));
    world.server.kill();
    // Each from a new port: the kernel spreads them over the workers.
    wait::for_true("they are rejected", DEFAULT_TIMEOUT, || {
        let refused =
            |to| ask(&world, to).is_err_and(|it| it.kind() == ErrorKind::ConnectionRefused);
        origins.iter().all(|it| refused(it.address()))
    });
    world.start_server(&options);
    wait::for_true("they are carried again", DEFAULT_TIMEOUT, || all_answer(&world));
}

/// The inner connection's programs: a client at the player, a server at the origin.
fn inner_pair(world: &World, origin: SocketAddr, target: SocketAddr) -> (Program, Program) {
    let dir = world.scratch();
    let server = format!(
        "[tunnel]\nlisten = [\"{origin}\"]\nclient_ca = \"ca.pem\"\n\
         certificate = \"server.pem\"\nprivate_key = \"server.key\"\n\
         [[destinations.allow]]\nnetwork = \"{}\"\nports = [{}]\n",
        target.ip(),
        target.port()
    );
    let client = format!(
        "[tunnel]\nservers = [\"{origin}\"]\nserver_name = \"{SERVER_NAME}\"\nca = \"ca.pem\"\n\
         certificate = \"client.pem\"\nprivate_key = \"client.key\"\n\
         [[listen]]\nmode = \"static\"\naddress = \"127.0.0.1:8080\"\n\
         destination = \"{target}\"\n"
    );
    let path = |side: &str| dir.join(format!("inner-{side}.toml"));
    let topology = &world.topology;
    let server = start_with(&topology.origin, &path("server"), "server", &server, false);
    let client = start_with(&topology.player, &path("client"), "client", &client, false);
    client.expect_log("a connection", DEFAULT_TIMEOUT, |line| {
        line.contains("connection established").then_some(())
    });
    (server, client)
}

/// A QUIC connection of a viewer, with path MTU discovery of its own: Millrace's programs are the QUIC peers too.
#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn a_viewers_quic_connection_is_carried_and_finds_its_packet_size() {
    const BYTES: usize = 8_000_000;
    /// Payload of the largest datagram in a packet of the tunnel (docs/integrate/udp.md).
    const LARGEST: u64 = 1410;
    for ip in [ORIGIN, ORIGIN_6] {
        let world = World::start(&CARRIED, carrying);
        let edge = &world.topology.server_edge;
        let target = SocketAddr::new(SERVER_EDGE_INSIDE.parse().unwrap(), 8088);
        let listener = edge.inside(|| Ok(listen(target, 16))).unwrap();
        let _target = Origin::serve(listener, source(7, BYTES as u64));
        let (_server, _client) = inner_pair(&world, https(ip), target);
        let flow = World::connect(&world.topology.player, "127.0.0.1:8080").unwrap();
        let whole = data::send(std::io::sink(), 7, BYTES as u64).unwrap();
        assert_eq!(data::receive(&flow).unwrap(), whole);

        let carried = |direction: &str| {
            client_metric(&world, "millrace_flow_bytes_total", &[("direction", direction)])
        };
        assert!(carried("down") >= BYTES as f64, "{ip}: {}", carried("down"));
        assert!(carried("up") > 0.0);
        let destinations = udp_destinations(&world.topology.client_edge, CLIENT_ADMIN);
        assert!(!destinations.is_empty());
        assert!(destinations.iter().all(|it| *it == https(ip).to_string()), "{destinations:?}");
        // Its larger probes are dropped, at the end that gets them.
        let sizes = || {
            let admin: SocketAddr = SERVER_ADMIN.parse().unwrap();
            let flows = world.topology.origin.inside(|| Ok(admin::flows(admin))).unwrap();
            let flows = flows["flows"].as_array().unwrap().clone();
            flows.iter().filter_map(|flow| flow["path_mtu_bytes"].as_u64()).collect::<Vec<_>>()
        };
        let again = World::connect(&world.topology.player, "127.0.0.1:8080").unwrap();
        wait::for_true("the inner path MTU is found", DEFAULT_TIMEOUT, || {
            let sizes = sizes();
            !sizes.is_empty() && sizes.iter().all(|size| (1380..=LARGEST).contains(size))
        });
        drop(again);
        let dropped = |of: &Namespace, admin: &str| {
            metric(of, admin, "millrace_drops_total", &[("reason", "datagram_too_large")])
        };
        assert!(dropped(&world.topology.client_edge, CLIENT_ADMIN) >= 1.0);
        assert!(dropped(&world.topology.server_edge, SERVER_ADMIN) >= 1.0);
    }
}
