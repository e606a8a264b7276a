//! The shipped packet filter rules against the kernel: a client, a gateway and an origin in network
//! namespaces of their own.

use std::{
    fs::File,
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    path::PathBuf,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use millrace_tunnel::address_sharing::AddressSharing;
use millrace_tunnel::udp::UdpPort;
use millrace_wire::Destination;
use nix::sched::{CloneFlags, setns};
use socket2::{Domain, SockRef, Socket, Type};

use super::*;

const TIMEOUT: Duration = Duration::from_secs(3);
const CLIENT: [&str; 2] = ["198.18.1.2", "2001:db8:1::2"];
const GATEWAY: [&str; 2] = ["198.18.1.1", "2001:db8:1::1"];
const ORIGIN: [&str; 2] = ["198.18.2.2", "2001:db8:2::2"];
const LOOPBACK: [&str; 2] = ["127.0.0.1", "::1"];
const WILDCARD: [&str; 2] = ["0.0.0.0", "::"];
const TPROXY_PORT: u16 = 15001;
const REDIRECT_PORT: u16 = 15002;

fn at(ip: &str, port: u16) -> SocketAddr {
    (ip.parse::<IpAddr>().unwrap(), port).into()
}

fn run(command: &str) {
    let mut words = command.split_whitespace();
    let out = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(out.status.success(), "{command}: {}", String::from_utf8_lossy(&out.stderr));
}

/// client -- gateway -- origin. Removed on drop.
struct Lab {
    name: String,
}

impl Lab {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let lab = Self {
            name: format!("mri{}x{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)),
        };
        let n = &lab.name;
        for host in ["c", "g", "o"] {
            run(&format!("ip netns add {n}{host}"));
            lab.ip(host, "link set lo up");
        }
        run(&format!("ip link add lan0 netns {n}g type veth peer name eth0 netns {n}c"));
        run(&format!("ip link add wan0 netns {n}g type veth peer name eth0 netns {n}o"));
        for (host, device, v4, v6) in [
            ("c", "eth0", CLIENT[0], CLIENT[1]),
            ("g", "lan0", GATEWAY[0], GATEWAY[1]),
            ("g", "wan0", "198.18.2.1", "2001:db8:2::1"),
            ("o", "eth0", ORIGIN[0], ORIGIN[1]),
        ] {
            lab.ip(host, &format!("addr add {v4}/24 dev {device}"));
            lab.ip(host, &format!("addr add {v6}/64 dev {device} nodad"));
            lab.ip(host, &format!("link set {device} up"));
        }
        for (host, v4, v6) in [("c", GATEWAY[0], GATEWAY[1]), ("o", "198.18.2.1", "2001:db8:2::1")]
        {
            lab.ip(host, &format!("route add default via {v4}"));
            lab.ip(host, &format!("-6 route add default via {v6}"));
        }
        for family in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            lab.within("g", || std::fs::write(format!("/proc/sys/net/{family}"), "1").unwrap());
        }
        lab
    }

    fn ip(&self, host: &str, args: &str) {
        run(&format!("ip -n {}{host} {args}", self.name));
    }

    fn nft(&self, args: &str) {
        run(&format!("ip netns exec {}g nft {args}", self.name));
    }

    fn load(&self, file: &str) {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy/nftables").join(file);
        self.nft(&format!("-f {}", path.display()));
    }

    /// The policy routing that tproxy.nft asks for.
    fn route_to_listener(&self) {
        for family in ["-4", "-6"] {
            self.ip("g", &format!("{family} rule add fwmark 0x4d54 lookup 4454"));
            self.ip("g", &format!("{family} route add local default dev lo table 4454"));
        }
    }

    /// Runs `f` in the namespace of the client, the gateway or the origin (`c`, `g`, `o`). Sockets
    /// that it makes stay there.
    fn within<T: Send>(&self, host: &str, f: impl FnOnce() -> T + Send) -> T {
        let path = format!("/run/netns/{}{host}", self.name);
        thread::scope(|scope| {
            let there = scope.spawn(|| {
                setns(File::open(&path).unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
                f()
            });
            there.join().unwrap()
        })
    }

    fn listen(&self, host: &str, address: SocketAddr, transparent: bool) -> TcpListener {
        self.within(host, || listen_tcp(address, transparent, AddressSharing::Alone).unwrap())
    }

    /// Connects; with a mark if `mark` is not 0.
    fn connect(&self, host: &str, to: SocketAddr, mark: u32) -> std::io::Result<TcpStream> {
        self.within(host, || {
            let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
            if mark != 0 {
                socket.set_mark(mark)?;
            }
            socket.connect_timeout(&to.into(), TIMEOUT)?;
            socket.set_read_timeout(Some(TIMEOUT))?;
            Ok(socket.into())
        })
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for host in ["c", "g", "o"] {
            let _ =
                Command::new("ip").args(["netns", "del", &format!("{}{host}", self.name)]).output();
        }
    }
}

fn accept(listener: &TcpListener) -> Option<(TcpStream, SocketAddr)> {
    let deadline = Instant::now() + TIMEOUT;
    while Instant::now() < deadline {
        match listener.accept() {
            Ok((stream, peer)) => {
                stream.set_nonblocking(false).unwrap();
                stream.set_read_timeout(Some(TIMEOUT)).unwrap();
                return Some((stream, peer));
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_millis(2));
            }
            Err(error) => panic!("accept: {error}"),
        }
    }
    None
}

fn nothing_waits(listener: &TcpListener) -> bool {
    listener.accept().is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

/// Bytes pass both ways and the end of each side arrives.
fn assert_talks(a: TcpStream, b: TcpStream) {
    for (mut from, mut to) in [(&a, &b), (&b, &a)] {
        from.write_all(&[7; 50_000]).unwrap();
        from.shutdown(std::net::Shutdown::Write).unwrap();
        let mut got = Vec::new();
        to.read_to_end(&mut got).unwrap();
        assert!(got == [7; 50_000], "{} bytes arrived", got.len());
    }
}

/// A flow from `host` to the origin's port 80 arrives at the listener, which knows its
/// destination.
fn assert_intercepted(lab: &Lab, host: &str, mode: &Mode, listener: &TcpListener, family: usize) {
    let origin = at(ORIGIN[family], 80);
    let client = lab.connect(host, origin, 0).unwrap();
    let (accepted, peer) = accept(listener).expect("the flow must come to the listener");
    assert_eq!(peer, client.local_addr().unwrap(), "the listener sees the client's address");
    let listening = Some(listener.local_addr().unwrap());
    let mut handshake = lab.within("g", || Handshake::begin(mode, &accepted, listening)).unwrap();
    let ready =
        Step::Ready { destination: Destination::Address(origin), client: None, consumed: 0 };
    assert_eq!(handshake.on_bytes(b""), Ok(ready));
    assert_talks(client, accepted);
}

/// A flow arrives at the origin itself, and nothing at the listener.
fn assert_passes(lab: &Lab, host: &str, to: SocketAddr, mark: u32, listener: &TcpListener) {
    let origin = lab.listen("o", to, false);
    let client = lab.connect(host, to, mark).unwrap();
    let (accepted, _) = accept(&origin).expect("the flow must come to the origin");
    assert_talks(client, accepted);
    assert!(nothing_waits(listener), "the listener must see nothing of it");
}

/// A flow to the gateway's own service arrives there, though its port is one to intercept.
fn assert_own_service_stays(lab: &Lab, host: &str, service: SocketAddr) {
    let service = (lab.listen("g", service, false), service);
    let client = lab.connect(host, service.1, 0).unwrap();
    let (accepted, _) = accept(&service.0).expect("the flow must come to the service itself");
    assert_talks(client, accepted);
}

/// Without a listener the flow is refused, and does not go on to the origin.
fn assert_fails_closed(lab: &Lab, host: &str, family: usize) {
    let origin = lab.listen("o", at(ORIGIN[family], 80), false);
    let error = lab.connect(host, at(ORIGIN[family], 80), 0).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    assert!(nothing_waits(&origin));
}

fn assert_loop(lab: &Lab, host: &str, mode: &Mode, listener: &TcpListener, to: SocketAddr) {
    let _client = lab.connect(host, to, 0).unwrap();
    let (accepted, _) = accept(listener).unwrap();
    let listening = listener.local_addr().unwrap();
    let error = lab.within("g", || Handshake::begin(mode, &accepted, Some(listening)));
    assert!(
        matches!(error, Err(OriginalDestinationError::Loop(address)) if address == to),
        "{error:?}"
    );
}

/// A socket that talks to `to` only; with a mark if `mark` is not 0.
fn datagram_socket(lab: &Lab, host: &str, to: SocketAddr, mark: u32) -> UdpSocket {
    lab.within(host, || {
        let socket = UdpSocket::bind((WILDCARD[usize::from(to.is_ipv6())], 0)).unwrap();
        if mark != 0 {
            SockRef::from(&socket).set_mark(mark).unwrap();
        }
        socket.connect(to).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        socket
    })
}

/// What a datagram gets back.
fn ask(socket: &UdpSocket) -> std::io::Result<Vec<u8>> {
    socket.send(b"question").and_then(|_| receive(socket))
}

fn receive(socket: &UdpSocket) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; 2000];
    let length = socket.recv(&mut bytes)?;
    bytes.truncate(length);
    Ok(bytes)
}

/// A datagram to port 443 of the origin is answered with ICMP, and does not arrive. To the sender's own kernel the
/// rule is a policy, which the sender is told at once.
fn assert_rejects_http3(lab: &Lab, host: &str, family: usize) {
    let to = at(ORIGIN[family], 443);
    let origin = lab.within("o", || UdpSocket::bind(to).unwrap());
    origin.set_nonblocking(true).unwrap();
    let begin = Instant::now();
    let error = ask(&datagram_socket(lab, host, to, 0)).unwrap_err();
    let told = [std::io::ErrorKind::ConnectionRefused, std::io::ErrorKind::PermissionDenied];
    assert!(told.contains(&error.kind()), "{error}");
    assert!(begin.elapsed() < TIMEOUT / 2, "the answer took {:?}", begin.elapsed());
    let waiting = receive(&origin).unwrap_err();
    assert_eq!(waiting.kind(), std::io::ErrorKind::WouldBlock);
}

/// A datagram arrives at the origin, and its answer at the client.
fn assert_datagrams_pass(lab: &Lab, host: &str, to: SocketAddr, mark: u32) {
    let origin = lab.within("o", || UdpSocket::bind(to).unwrap());
    origin.set_read_timeout(Some(TIMEOUT)).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let (length, from) = origin.recv_from(&mut [0; 2000]).expect("the datagram");
            assert_eq!(length, b"question".len());
            origin.send_to(b"answer", from).unwrap();
        });
        assert_eq!(ask(&datagram_socket(lab, host, to, mark)).unwrap(), b"answer");
    });
}

/// HTTP/3 of intercepted clients is rejected. UDP to other ports and destinations passes, and all of it without the set.
fn assert_http3_is_rejected(lab: &Lab, host: &str, table: &str, family: usize) {
    assert_rejects_http3(lab, host, family);
    assert_datagrams_pass(lab, host, at(ORIGIN[family], 444), 0);
    // A port that is not intercepted.
    lab.nft(&format!("delete element inet {table} ports {{ 443 }}"));
    assert_datagrams_pass(lab, host, at(ORIGIN[family], 443), 0);
    lab.nft(&format!("add element inet {table} ports {{ 443 }}"));
    let destinations = ["destinations", "destinations6"][family];
    let everything = ["0.0.0.0/0", "::/0"][family];
    lab.nft(&format!("flush set inet {table} {destinations}"));
    assert_datagrams_pass(lab, host, at(ORIGIN[family], 443), 0);
    lab.nft(&format!("add element inet {table} {destinations} {{ {everything} }}"));
    lab.nft(&format!("flush set inet {table} rejected_udp_ports"));
    assert_datagrams_pass(lab, host, at(ORIGIN[family], 443), 0);
    lab.nft(&format!("add element inet {table} rejected_udp_ports {{ 443 }}"));
    assert_rejects_http3(lab, host, family);
}

/// A datagram arrives at the UDP listener with the origin as its destination, and its answer comes from the origin.
fn assert_datagrams_are_intercepted(lab: &Lab, host: &str, family: usize) {
    let listener = lab.within("g", || {
        let address = at(LOOPBACK[family], TPROXY_PORT);
        InterceptingUdpSocket::bind(address, true, AddressSharing::Alone).unwrap()
    });
    let origin = at(ORIGIN[family], 443);
    let client = datagram_socket(lab, host, origin, 0);
    client.send(b"question").unwrap();
    let mut buffer = DatagramBuffer::default();
    let deadline = Instant::now() + TIMEOUT;
    let datagram = loop {
        match listener.receive(&mut buffer) {
            Ok(datagram) => break datagram.expect("the kernel tells its destination"),
            Err(error) => assert!(Instant::now() < deadline, "no datagram: {error}"),
        }
        thread::sleep(Duration::from_millis(2));
    };
    let from = client.local_addr().unwrap();
    let expected = InterceptedDatagram { from, to: origin, payload: b"question" };
    assert_eq!(datagram, expected);
    let answers = lab.within("g", || {
        UdpPort::sender_from_any_address(443, origin.is_ipv4(), Some(OWN_TRAFFIC_MARK)).unwrap()
    });
    answers.send(from, origin.ip(), b"answer", 6).unwrap();
    // The client's socket takes datagrams of the origin only.
    assert_eq!(receive(&client).unwrap(), b"answer");
    // What is not intercepted does not come to the socket that answers, nor to the listener.
    lab.nft("flush set inet millrace_tproxy carried_udp_ports");
    lab.nft("flush set inet millrace_tproxy rejected_udp_ports");
    assert_datagrams_pass(lab, host, origin, 0);
    let waiting = listener.receive(&mut buffer).unwrap_err();
    assert_eq!(waiting.kind(), std::io::ErrorKind::WouldBlock);
    lab.nft("add element inet millrace_tproxy carried_udp_ports { 443 }");
    lab.nft("add element inet millrace_tproxy rejected_udp_ports { 443 }");
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn http3_is_rejected_on_a_gateway() {
    for (file, table) in [("tproxy.nft", "millrace_tproxy"), ("redirect.nft", "millrace_redirect")]
    {
        let lab = Lab::new();
        lab.load(file);
        lab.route_to_listener();
        for family in [0, 1] {
            // Loading the file alone rejects nothing.
            assert_datagrams_pass(&lab, "c", at(ORIGIN[family], 443), 0);
            lab.nft(&format!("add element inet {table} client_interfaces {{ lan0 }}"));
            assert_http3_is_rejected(&lab, "c", table, family);
            // The gateway's own.
            assert_datagrams_pass(&lab, "g", at(ORIGIN[family], 443), 0);
            lab.nft(&format!("delete element inet {table} client_interfaces {{ lan0 }}"));
        }
    }
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn http3_is_rejected_on_a_host() {
    for (file, table) in [("tproxy.nft", "millrace_tproxy"), ("redirect.nft", "millrace_redirect")]
    {
        let lab = Lab::new();
        lab.load(file);
        lab.route_to_listener();
        for family in [0, 1] {
            assert_datagrams_pass(&lab, "g", at(ORIGIN[family], 443), 0);
            lab.nft(&format!("add element inet {table} client_uids {{ 0-4294967294 }}"));
            assert_http3_is_rejected(&lab, "g", table, family);
            // A tunnel to UDP port 443.
            assert_datagrams_pass(&lab, "g", at(ORIGIN[family], 443), OWN_TRAFFIC_MARK);
            lab.nft(&format!("flush set inet {table} client_uids"));
        }
    }
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn datagrams_are_intercepted_where_the_set_says_so() {
    let lab = Lab::new();
    lab.load("tproxy.nft");
    lab.route_to_listener();
    for (host, scope) in
        [("c", "client_interfaces { lan0 }"), ("g", "client_uids { 0-4294967294 }")]
    {
        lab.nft(&format!("add element inet millrace_tproxy {scope}"));
        for family in [0, 1] {
            lab.nft("add element inet millrace_tproxy carried_udp_ports { 443 }");
            assert_datagrams_are_intercepted(&lab, host, family);
            assert_datagrams_pass(&lab, host, at(ORIGIN[family], 444), 0);
            if host == "c" {
                // Without a listener they are rejected like before.
                assert_rejects_http3(&lab, host, family);
            }
            lab.nft("flush set inet millrace_tproxy carried_udp_ports");
            assert_rejects_http3(&lab, host, family);
        }
        lab.nft(&format!("flush set inet millrace_tproxy {}", scope.split(' ').next().unwrap()));
    }
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn tproxy_on_a_gateway() {
    let lab = Lab::new();
    lab.load("tproxy.nft");
    lab.route_to_listener();
    for family in [0, 1] {
        let listener = lab.listen("g", at(LOOPBACK[family], TPROXY_PORT), true);
        let origin = at(ORIGIN[family], 80);
        // Loading the file alone intercepts nothing.
        assert_passes(&lab, "c", origin, 0, &listener);
        lab.nft("add element inet millrace_tproxy client_interfaces { lan0 }");
        assert_intercepted(&lab, "c", &Mode::Tproxy, &listener, family);
        // A port that is not in the set; the gateway's own flows.
        assert_passes(&lab, "c", at(ORIGIN[family], 8081), 0, &listener);
        assert_passes(&lab, "g", origin, 0, &listener);
        assert_own_service_stays(&lab, "c", at(GATEWAY[family], 80));
        // Without a listener new flows go on to the origin: the gateway fails open.
        let running = lab.connect("c", origin, 0).unwrap();
        let (accepted, _) = accept(&listener).unwrap();
        drop(listener);
        let other = lab.listen("g", at(LOOPBACK[family], 9999), false);
        assert_passes(&lab, "c", origin, 0, &other);
        // A flow that runs stays, also when its interface is no longer intercepted.
        lab.nft("delete element inet millrace_tproxy client_interfaces { lan0 }");
        assert_talks(running, accepted);
    }
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn tproxy_on_a_host() {
    let lab = Lab::new();
    lab.load("tproxy.nft");
    lab.route_to_listener();
    for family in [0, 1] {
        let listener = lab.listen("g", at(LOOPBACK[family], TPROXY_PORT), true);
        let origin = at(ORIGIN[family], 80);
        assert_passes(&lab, "g", origin, 0, &listener);
        lab.nft("add element inet millrace_tproxy client_uids { 0-4294967294 }");
        assert_intercepted(&lab, "g", &Mode::Tproxy, &listener, family);
        // What Millrace dials itself passes, only for its mark.
        assert_passes(&lab, "g", origin, OWN_TRAFFIC_MARK, &listener);
        assert_own_service_stays(&lab, "g", at(GATEWAY[family], 80));
        assert_loop(&lab, "g", &Mode::Tproxy, &listener, at(LOOPBACK[family], TPROXY_PORT));
        drop(listener);
        assert_fails_closed(&lab, "g", family);
        lab.nft("flush set inet millrace_tproxy client_uids");
    }
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn redirect_on_a_gateway() {
    let lab = Lab::new();
    lab.load("redirect.nft");
    for family in [0, 1] {
        let listener = lab.listen("g", at(WILDCARD[family], REDIRECT_PORT), false);
        assert_passes(&lab, "c", at(ORIGIN[family], 80), 0, &listener);
        lab.nft("add element inet millrace_redirect client_interfaces { lan0 }");
        assert_intercepted(&lab, "c", &Mode::Redirect, &listener, family);
        assert_passes(&lab, "c", at(ORIGIN[family], 8081), 0, &listener);
        assert_passes(&lab, "g", at(ORIGIN[family], 80), 0, &listener);
        assert_own_service_stays(&lab, "c", at(GATEWAY[family], 80));
        assert_loop(&lab, "c", &Mode::Redirect, &listener, at(GATEWAY[family], REDIRECT_PORT));
        drop(listener);
        assert_fails_closed(&lab, "c", family);
        lab.nft("delete element inet millrace_redirect client_interfaces { lan0 }");
    }
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn redirect_on_a_host() {
    let lab = Lab::new();
    lab.load("redirect.nft");
    for family in [0, 1] {
        let listener = lab.listen("g", at(LOOPBACK[family], REDIRECT_PORT), false);
        let origin = at(ORIGIN[family], 80);
        assert_passes(&lab, "g", origin, 0, &listener);
        lab.nft("add element inet millrace_redirect client_uids { 0-4294967294 }");
        assert_intercepted(&lab, "g", &Mode::Redirect, &listener, family);
        assert_passes(&lab, "g", origin, OWN_TRAFFIC_MARK, &listener);
        assert_own_service_stays(&lab, "g", at(GATEWAY[family], 80));
        assert_loop(&lab, "g", &Mode::Redirect, &listener, at(LOOPBACK[family], REDIRECT_PORT));
        drop(listener);
        assert_fails_closed(&lab, "g", family);
        lab.nft("flush set inet millrace_redirect client_uids");
    }
}
