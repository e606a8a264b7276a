//! UDP through the pair: listeners of mode `udp`, CONNECT-UDP between the two.

use std::collections::BTreeSet;
use std::io::Read;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use millrace_e2e::admin::{self, Metrics};
use millrace_e2e::data::pattern;
use millrace_e2e::origin::{Origin, source};
use millrace_e2e::pair::{Pair, PairBuilder};
use millrace_e2e::udp::{self, UdpEcho};
use millrace_e2e::wait::DEFAULT_TIMEOUT;
use millrace_e2e::{data, tcp, wait};

use crate::stub_server::{Capabilities, StubServer};

/// How long nothing must come where nothing may come.
const SILENCE: Duration = Duration::from_millis(500);

/// A pair with a UDP listener that leads to `to`, and the listener's address.
fn pair_to(to: SocketAddr) -> (PairBuilder, SocketAddr) {
    let listener = tcp::unused(Ipv4Addr::LOCALHOST);
    let body = format!("mode = \"udp\"\naddress = \"{listener}\"\ndestination = \"{to}\"");
    (Pair::builder().allow_udp("127.0.0.1").listen(&body), listener)
}

fn dropped(from: SocketAddr, reason: &str) -> f64 {
    Metrics::fetch(from).sum("millrace_drops_total", &[("reason", reason)])
}

fn active(from: SocketAddr) -> f64 {
    Metrics::fetch(from).sum("millrace_flows_active", &[])
}

#[test]
fn datagrams_of_all_sizes_arrive_whole_and_in_order() {
    let origin = UdpEcho::start();
    let (pair, listener) = pair_to(origin.address());
    let pair = pair.start();
    let client = udp::client(listener);
    let sizes = [1, 0, 2, 64, 500, 1199, 1200, 1350, 0, 1];
    for round in 0..50_u64 {
        let sent: Vec<_> =
            sizes.iter().map(|size| pattern(round * 100 + *size as u64, *size)).collect();
        for datagram in &sent {
            client.send(datagram).unwrap();
        }
        for (number, datagram) in sent.iter().enumerate() {
            let got = udp::receive(&client, DEFAULT_TIMEOUT);
            assert!(
                got.as_ref() == Some(datagram),
                "round {round}, {number}: {:?}",
                got.map(|it| it.len())
            );
        }
    }
    assert_eq!(origin.seen(), 500);
    for admin in [pair.addresses.client_admin, pair.addresses.server_admin] {
        let metrics = Metrics::fetch(admin);
        let bytes: usize = sizes.iter().sum();
        for direction in ["up", "down"] {
            let of = |name| metrics.sum(name, &[("direction", direction)]);
            assert_eq!(of("millrace_flow_datagrams_total"), 500.0);
            assert_eq!(of("millrace_flow_bytes_total"), 50.0 * bytes as f64);
        }
        let flow = &admin::flows(admin)["flows"][0];
        assert_eq!(flow["protocol"], "udp", "{flow}");
        assert_eq!(flow["destination"], origin.address().to_string(), "{flow}");
    }
}

/// Listener, tunnel and destination.
#[test]
fn all_of_it_over_ipv6() {
    let here = Ipv6Addr::LOCALHOST;
    let origin = UdpEcho::at(here.into(), |datagram| datagram.to_vec());
    let (listener, tunnel) = (tcp::unused(here), tcp::unused(here));
    let to = origin.address();
    let pair = Pair::builder()
        .allow_udp("::1")
        .tunnel_port(tunnel.port())
        .server("tunnel.listen", format!("[\"{tunnel}\"]"))
        .client("tunnel.servers", format!("[\"{tunnel}\"]"))
        .listen(&format!("mode = \"udp\"\naddress = \"{listener}\"\ndestination = \"{to}\""))
        .start();
    let clients = [udp::client(listener), udp::client(listener)];
    // Of a round the last is the largest that the tunnel's packets have room for.
    for (number, size) in [1, 0, 1200, 1410, 300, 1410].into_iter().enumerate() {
        for (client, seed) in clients.iter().zip([1, 2]) {
            let datagram = pattern(number as u64 * 10 + seed, size);
            assert!(
                udp::exchange(client, &datagram, DEFAULT_TIMEOUT) == Some(datagram),
                "{number}: {size}"
            );
        }
    }
    assert_eq!(origin.seen(), 12);
    for admin in [pair.addresses.client_admin, pair.addresses.server_admin] {
        let flows = admin::flows(admin);
        let flows = flows["flows"].as_array().unwrap();
        assert_eq!(flows.len(), 2, "{flows:?}");
        assert!(flows.iter().all(|flow| flow["destination"] == to.to_string()), "{flows:?}");
        assert_eq!(dropped(admin, "datagram_too_large"), 0.0);
    }
}

/// A server that offers only half of what CONNECT-UDP needs is asked for nothing.
#[test]
fn with_a_server_that_does_not_carry_udp_datagrams_are_dropped_and_counted() {
    for (extended_connect, datagrams) in [(true, false), (false, true)] {
        let (pair, listener) = pair_to((Ipv4Addr::LOCALHOST, 9).into());
        let at = tcp::unused(Ipv4Addr::LOCALHOST);
        let pair = pair.client("tunnel.servers", format!("[\"{at}\"]")).unhealthy().start();
        let capabilities = Capabilities { extended_connect, datagrams };
        let _server = StubServer::start(at, &pair.certificates, capabilities);
        pair.wait_healthy(DEFAULT_TIMEOUT);
        let admin = pair.addresses.client_admin;
        let of = |name| Metrics::fetch(admin).sum(name, &[]);
        let client = udp::client(listener);
        // Asked for again a second later, and no more than once a second.
        for round in 1..=2 {
            wait::for_true("it is refused", DEFAULT_TIMEOUT, || {
                client.send(b"anybody?").unwrap();
                Metrics::fetch(admin).failed_flows() >= f64::from(round)
            });
        }
        assert_eq!(of("millrace_server_flows_total"), 0.0, "{capabilities:?}");
        assert!(dropped(admin, "datagram_flow") >= 2.0, "{capabilities:?}");
        let log = pair.client.log_text();
        assert_eq!(log.matches("does not carry UDP").count(), 1, "{log}");
    }
}

#[test]
fn a_datagram_larger_than_a_packet_is_dropped_and_counted() {
    let origin = UdpEcho::with(|datagram| match datagram {
        b"more" => pattern(1, 1500),
        other => other.to_vec(),
    });
    let (pair, listener) = pair_to(origin.address());
    let pair = pair.start();
    let client = udp::client(listener);
    let drops = || {
        [pair.addresses.client_admin, pair.addresses.server_admin]
            .map(|admin| dropped(admin, "datagram_too_large"))
    };
    assert_eq!(udp::exchange(&client, b"first", DEFAULT_TIMEOUT).as_deref(), Some(&b"first"[..]));
    client.send(&pattern(2, 1500)).unwrap();
    assert_eq!(udp::exchange(&client, b"second", DEFAULT_TIMEOUT).as_deref(), Some(&b"second"[..]));
    wait::for_true("the client counts it", DEFAULT_TIMEOUT, || drops() == [1.0, 0.0]);
    client.send(b"more").unwrap();
    assert_eq!(udp::exchange(&client, b"third", DEFAULT_TIMEOUT).as_deref(), Some(&b"third"[..]));
    wait::for_true("the server counts it", DEFAULT_TIMEOUT, || drops() == [1.0, 1.0]);
    assert_eq!(origin.seen(), 4);
}

#[test]
fn a_destination_that_is_allowed_for_tcp_is_not_for_udp() {
    let origin = UdpEcho::start();
    let listener = tcp::unused(Ipv4Addr::LOCALHOST);
    let body =
        format!("mode = \"udp\"\naddress = \"{listener}\"\ndestination = \"{}\"", origin.address());
    let pair = Pair::builder().listen(&body).start();
    let client = udp::client(listener);
    let began = Instant::now();
    for sent in 1..=20 {
        client.send(b"anybody").unwrap();
        wait::for_true("it is dropped", DEFAULT_TIMEOUT, || {
            dropped(pair.addresses.client_admin, "datagram_flow") == f64::from(sent)
        });
    }
    let denied = Metrics::fetch(pair.addresses.server_admin)
        .sum("millrace_destinations_denied_total", &[("reason", "loopback")]);
    // Not a request for each datagram, but one a second.
    assert!((1.0..=1.0 + began.elapsed().as_secs_f64()).contains(&denied), "{denied}");
    assert_eq!(udp::receive(&client, SILENCE), None);
    assert_eq!(origin.seen(), 0);
}

#[test]
fn a_silent_flow_ends_and_the_next_datagram_begins_another() {
    let origin = UdpEcho::start();
    for side in ["server", "client"] {
        let (pair, listener) = pair_to(origin.address());
        let pair = match side {
            "server" => pair.server("limits.udp_idle_timeout_s", 1),
            _ => pair.client("limits.udp_idle_timeout_s", 1),
        };
        let pair = pair.start();
        let admins = [pair.addresses.client_admin, pair.addresses.server_admin];
        let client = udp::client(listener);
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(2500) {
            assert!(udp::exchange(&client, b"awake", DEFAULT_TIMEOUT).is_some(), "{side}");
            std::thread::sleep(Duration::from_millis(100));
        }
        let opened = |from| Metrics::fetch(from).sum("millrace_flows_opened_total", &[]);
        assert_eq!(admins.map(opened), [1.0, 1.0], "{side}: it was not silent");
        assert_eq!(admins.map(active), [1.0, 1.0], "{side}");
        wait::for_true("it ends at both", DEFAULT_TIMEOUT, || admins.map(active) == [0.0, 0.0]);
        assert!(udp::exchange(&client, b"again", DEFAULT_TIMEOUT).is_some(), "{side}");
        assert_eq!(admins.map(opened), [2.0, 2.0], "{side}");
        let failed = |from| Metrics::fetch(from).failed_flows();
        assert_eq!(admins.map(failed), [0.0, 0.0], "{side}");
    }
}

#[test]
fn a_flow_with_datagrams_in_one_direction_only_is_not_silent() {
    const IDLE: Duration = Duration::from_secs(2);
    let origin = udp::socket();
    let (pair, listener) = pair_to(origin.local_addr().unwrap());
    let pair = pair.server("limits.udp_idle_timeout_s", IDLE.as_secs());
    let pair = pair.client("limits.udp_idle_timeout_s", IDLE.as_secs()).start();
    let client = udp::client(listener);
    client.send(b"first").unwrap();
    let mut buffer = [0; 64];
    origin.set_read_timeout(Some(DEFAULT_TIMEOUT)).unwrap();
    let (_, flow) = origin.recv_from(&mut buffer).unwrap();
    for up in [true, false] {
        let began = Instant::now();
        while began.elapsed() < IDLE + IDLE / 2 {
            if up {
                client.send(b"up").unwrap();
                assert_eq!(origin.recv_from(&mut buffer).unwrap(), (2, flow));
            } else {
                origin.send_to(b"down", flow).unwrap();
                assert_eq!(udp::receive(&client, DEFAULT_TIMEOUT).as_deref(), Some(&b"down"[..]));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    for admin in [pair.addresses.client_admin, pair.addresses.server_admin] {
        let opened = Metrics::fetch(admin).sum("millrace_flows_opened_total", &[]);
        assert_eq!((opened, active(admin)), (1.0, 1.0));
    }
}

#[test]
fn a_thousand_flows_at_a_time() {
    let origin = UdpEcho::start();
    let (pair, listener) = pair_to(origin.address());
    let pair = pair.start();
    let clients: Vec<_> = (0..1000).map(|_| udp::client(listener)).collect();
    for round in 0..3_u64 {
        for (number, client) in clients.iter().enumerate() {
            client.send(&pattern(round << 32 | number as u64, 200)).unwrap();
        }
        for (number, client) in clients.iter().enumerate() {
            let got = udp::receive(client, DEFAULT_TIMEOUT);
            let want = pattern(round << 32 | number as u64, 200);
            assert!(
                got == Some(want),
                "flow {number}, round {round}: {:?}",
                got.map(|it| it.len())
            );
        }
    }
    for admin in [pair.addresses.client_admin, pair.addresses.server_admin] {
        assert_eq!(active(admin), 1000.0);
    }
}

#[test]
fn flows_are_bounded_at_either_end() {
    const MOST: usize = 20;
    let origin = UdpEcho::start();
    for side in ["client", "server", "peer"] {
        let (pair, listener) = pair_to(origin.address());
        let pair = match side {
            "client" => pair.client("limits.max_flows", MOST),
            "server" => pair.server("limits.max_flows", MOST),
            _ => pair.server("limits.max_flows_per_client", MOST),
        };
        let pair = pair.start();
        let clients: Vec<_> = (0..100).map(|_| udp::client(listener)).collect();
        let ask = |client: &std::net::UdpSocket| {
            client.send(b"room?").unwrap();
        };
        clients.iter().for_each(ask);
        let heard = || {
            let heard =
                |it: &&std::net::UdpSocket| udp::receive(it, Duration::from_millis(10)).is_some();
            clients.iter().filter(heard).count()
        };
        let mut served = 0;
        wait::for_true("as many as may be are served", DEFAULT_TIMEOUT, || {
            served += heard();
            served >= MOST
        });
        assert_eq!(served + heard(), MOST, "{side}");
        for admin in [pair.addresses.client_admin, pair.addresses.server_admin] {
            assert!(active(admin) <= MOST as f64, "{side}: {}", active(admin));
        }
        // Of one client as many as of all, unless something else is said.
        let reason = if side == "peer" { "peer_flows" } else { "flow_limit" };
        let admin = match side {
            "client" => pair.addresses.client_admin,
            _ => pair.addresses.server_admin,
        };
        assert!(dropped(admin, reason) >= 1.0, "{side}");
    }
}

/// A sender that is faster than the link: what arrives is the newest, in order, and the rest is
/// counted.
#[test]
fn when_the_queue_is_full_the_oldest_are_dropped_and_counted() {
    const SENT: u64 = 2000;
    let origin = UdpEcho::with(|datagram| datagram[..8].to_vec());
    let (pair, listener) = pair_to(origin.address());
    let slow = "{ name = \"constant\", rate_mbps = 2 }";
    let pair = pair.client("tunnel.congestion_control", slow).start();
    let admin = pair.addresses.client_admin;
    let client = udp::client(listener);
    // The flow is there, and so are the connection's first packets, which go at once.
    assert!(udp::exchange(&client, &[0; 8], DEFAULT_TIMEOUT).is_some());
    for number in 1..=SENT {
        let mut datagram = number.to_be_bytes().to_vec();
        datagram.resize(1000, 1);
        client.send(&datagram).unwrap();
        // At 20 Mbit/s: faster than the link, slower than this machine.
        if number % 10 == 0 {
            std::thread::sleep(Duration::from_millis(4));
        }
    }
    let mut got = Vec::new();
    while got.last() != Some(&SENT) {
        let answer = udp::receive(&client, DEFAULT_TIMEOUT).expect("the newest arrives");
        got.push(u64::from_be_bytes(answer.try_into().unwrap()));
    }
    assert!(got.is_sorted() && got.iter().collect::<BTreeSet<_>>().len() == got.len(), "{got:?}");
    let lost = SENT - got.len() as u64;
    assert!(lost > SENT / 4, "{lost} lost");
    assert_eq!(dropped(admin, "datagram_queue"), lost as f64);
}

/// There is no TCP flow that could be reset instead.
#[test]
fn udp_flows_that_hold_most_end_over_the_memory_cap_and_others_go_on() {
    const CAP_MB: u32 = 8;
    /// With the 256 KiB that each may hold, they are half above the cap.
    const SENDERS: usize = 45;
    const MAX_ROUNDS: usize = 3000;
    let echo = UdpEcho::start();
    let (pair, listener) = pair_to(echo.address());
    let slow = "{ name = \"constant\", rate_mbps = 4 }";
    let pair = pair.client("tunnel.congestion_control", slow);
    let pair = pair
        .client("tunnel.memory_cap_mb", CAP_MB)
        .client("tunnel.max_stream_window_bytes", 1 << 20)
        .client("tunnel.max_connection_window_bytes", 4 << 20)
        .both("runtime.workers", 1)
        .start();
    let sum = |name: &str, labels: &[(&str, &str)]| {
        Metrics::fetch(pair.addresses.client_admin).sum(name, labels)
    };
    let ended = || sum("millrace_flows_finished_total", &[("outcome", "memory")]);
    let small = udp::client(listener);
    assert!(udp::exchange(&small, b"small", DEFAULT_TIMEOUT).is_some());
    let senders: Vec<_> = (0..SENDERS).map(|_| udp::client(listener)).collect();
    for round in 1.. {
        assert!(round < MAX_ROUNDS, "no flow has ended");
        for sender in &senders {
            sender.send(&[1; 1000]).unwrap();
        }
        std::thread::sleep(Duration::from_millis(1));
        if round % 50 == 0 && ended() > 0.0 {
            break;
        }
    }
    let is_below_cap = || sum("millrace_memory_used_bytes", &[]) <= f64::from(CAP_MB) * 1e6;
    wait::for_true("the memory is below the cap", DEFAULT_TIMEOUT, is_below_cap);
    let ended = ended();
    println!("{ended} of {SENDERS} flows were ended");
    assert!(ended < 35.0, "{ended} flows were ended");
    assert!(pair.client.log_text().contains("tunnel.memory_cap_mb reached"));
    // The flow that holds nothing has not ended.
    let flows = admin::flows(pair.addresses.client_admin);
    let of_small = flows["flows"]
        .as_array()
        .unwrap()
        .iter()
        .find(|flow| flow["client"] == small.local_addr().unwrap().to_string());
    assert!(of_small.is_some(), "{flows}");
}

#[test]
fn tcp_flows_beside_it_are_not_disturbed() {
    const BYTES: u64 = 64 << 20;
    let echo = UdpEcho::start();
    let origin = Origin::start(source(7, BYTES));
    let (pair, listener) = pair_to(echo.address());
    let pair = pair.start();
    let flow = pair.http().open(&origin.address().to_string()).unwrap();
    let reader = std::thread::spawn(move || data::receive(&flow).unwrap());
    let client = udp::client(listener);
    let (mut exchanged, mut number) = (0, 0_u64);
    while !reader.is_finished() {
        number += 1;
        let datagram = pattern(number, 700);
        client.send(&datagram).unwrap();
        // One that was dropped is no fault: it is UDP.
        while let Some(got) = udp::receive(&client, Duration::from_secs(1)) {
            if got == datagram {
                exchanged += 1;
                break;
            }
        }
    }
    assert_eq!(reader.join().unwrap(), data::send(std::io::sink(), 7, BYTES).unwrap());
    assert!(exchanged >= 3 && exchanged * 10 >= number * 9, "{exchanged} of {number}");
}

/// A flood of datagrams, more than there is room for, and a TCP flow that needs the same link.
#[test]
fn a_flood_of_datagrams_leaves_tcp_its_share() {
    const BYTES: u64 = 1 << 20;
    let sink = UdpEcho::with(|_| Vec::new());
    let origin = Origin::start(move |mut stream| {
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        std::io::Write::write_all(&mut stream, &got.len().to_be_bytes()).unwrap();
    });
    let (pair, listener) = pair_to(sink.address());
    let rate = "{ name = \"constant\", rate_mbps = 8 }";
    let pair = pair.client("tunnel.congestion_control", rate).start();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let client = udp::client(listener);
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                for _ in 0..20 {
                    client.send(&[0; 1000]).unwrap();
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let mut flow = pair.http().open(&origin.address().to_string()).unwrap();
        let began = Instant::now();
        data::send(&flow, 8, BYTES).unwrap();
        flow.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = [0; 8];
        let read = flow.read_exact(&mut answer);
        let took = began.elapsed();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        read.unwrap();
        assert_eq!(u64::from_be_bytes(answer), BYTES);
        // Alone it takes 1 s; half of the rate is its fair share.
        assert!(took < Duration::from_secs(5), "{took:?}");
    });
    assert!(dropped(pair.addresses.client_admin, "datagram_queue") > 0.0);
}
