//! QUIC in UDP flows on a path with random loss: lost packets are sent again, and those behind them wait.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use millrace_e2e::admin::Metrics;
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::{Pair, PairBuilder};
use millrace_e2e::quic::{self, Download, DownloadMeter, DownloadTimes, QuicOrigin};
use millrace_e2e::relay::{Faults, RelayOptions};
use millrace_e2e::test_lock::Kind;
use millrace_e2e::wait::DEFAULT_TIMEOUT;
use millrace_e2e::{tcp, udp};

/// Propagation in each direction.
const ONE_WAY: Duration = Duration::from_millis(50);
const RTT: Duration = Duration::from_millis(100);
/// Lost datagrams in a thousand.
const LOSS_PERMILLE: u32 = 10;
/// Of the tunnel, whose controller does not react to loss.
const RATE: &str = "{ name = \"constant\", rate_mbps = 20 }";
const TIMES: DownloadTimes =
    DownloadTimes { warm_up: Duration::from_secs(5), whole: Duration::from_secs(15) };
/// What the goodput of QUIC is of that of TCP at least; some of the rest are headers of QUIC inside of QUIC.
const LEAST_OF_TCP: f64 = 0.85;
/// What scheduling adds on a machine that runs other tests beside this one.
const SLACK: Duration = Duration::from_millis(50);

/// A pair with a path of 100 ms between its two, and its UDP listener that leads to `to`.
fn pair_to(to: SocketAddr) -> (PairBuilder, SocketAddr) {
    let listener = tcp::unused(Ipv4Addr::LOCALHOST);
    let body = format!("mode = \"udp\"\naddress = \"{listener}\"\ndestination = \"{to}\"");
    let pair = Pair::builder()
        .allow_udp("127.0.0.1")
        .listen(&body)
        .both("tunnel.congestion_control", RATE)
        .relay(RelayOptions { one_way: ONE_WAY, ..RelayOptions::default() });
    (pair, listener)
}

fn lose_packets(pair: &Pair) {
    let relay = pair.relay.as_ref().unwrap();
    relay.set_faults(Faults { lose_permille: LOSS_PERMILLE, ..Faults::default() });
}

fn repairs(from: SocketAddr, event: &str) -> f64 {
    Metrics::fetch(from).sum("millrace_datagram_repairs_total", &[("event", event)])
}

fn download_by_tcp(pair: &Pair) -> Download {
    let origin = Origin::start(|mut flow| {
        let chunk = vec![0; 64 << 10];
        while flow.write_all(&chunk).is_ok() {}
    });
    let mut flow = pair.http().open(&origin.address().to_string()).unwrap();
    let (mut meter, mut buffer) = (DownloadMeter::start(TIMES), vec![0; 64 << 10]);
    while !meter.is_over() {
        meter.add(flow.read(&mut buffer).unwrap());
    }
    meter.download()
}

/// By TCP and by QUIC, one after the other.
fn downloads(
    origin: &str,
    configure: impl FnOnce(PairBuilder) -> PairBuilder,
) -> ([Download; 2], Pair) {
    let socket = udp::socket();
    let (pair, listener) = pair_to(socket.local_addr().unwrap());
    let pair = configure(pair).measured().start();
    let _origin = QuicOrigin::start(socket, &pair.certificates.server, origin);
    lose_packets(&pair);
    let by_tcp = download_by_tcp(&pair);
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let by_quic = quic::download(&client, listener, TIMES);
    println!("TCP {by_tcp:.2?}, QUIC {by_quic:.2?}");
    ([by_tcp, by_quic], pair)
}

#[test]
fn goodput_of_quic_is_nearly_that_of_tcp() {
    let ([by_tcp, by_quic], pair) = downloads("cubic", |pair| pair);
    let server = pair.addresses.server_admin;
    let share = by_quic.steady_mbps / by_tcp.steady_mbps;
    assert!(share >= LEAST_OF_TCP, "{share:.3}: {by_tcp:?}, {by_quic:?}");
    assert!(repairs(server, "retransmitted") >= 100.0);
    let client = pair.addresses.client_admin;
    assert!(repairs(client, "held") >= 100.0);
    // A packet that gets lost three times.
    assert!(repairs(client, "skipped") <= 5.0, "{}", repairs(client, "skipped"));
}

/// As with a peer of an earlier version: the field is not there.
#[test]
fn with_a_peer_that_repairs_no_quic_its_packets_are_carried_as_they_are() {
    for configure in [
        |pair: PairBuilder| pair.server("tunnel.quic_repair", false),
        |pair: PairBuilder| pair.client("tunnel.quic_repair", false),
    ] {
        let ([by_tcp, by_quic], pair) = downloads("reno", configure);
        assert!(by_quic.steady_mbps > 0.0 && by_quic.steady_mbps < by_tcp.steady_mbps / 2.0);
        for admin in [pair.addresses.client_admin, pair.addresses.server_admin] {
            for event in ["retransmitted", "held", "skipped", "unrepaired", "duplicate"] {
                assert_eq!(repairs(admin, event), 0.0, "{event}");
            }
        }
    }
}

/// Packets of a stream that begins as QUIC does, or as something else.
#[derive(Debug)]
struct Tally {
    arrived: Vec<u64>,
    slowest: Duration,
}

const PACKETS: u64 = 3000;
const PACKET_BYTES: usize = 1200;
/// 9.6 Mbit/s.
const PACKETS_EACH_TIME: u64 = 10;
const TIME: Duration = Duration::from_millis(10);

/// Sends numbered packets through the tunnel after one that begins with `first_byte` and the version of QUIC.
fn stream(first_byte: u8) -> (Tally, Pair) {
    let origin = udp::socket();
    let (pair, listener) = pair_to(origin.local_addr().unwrap());
    let pair = pair.in_turn_of(Kind::Few).start();
    let client = udp::client(listener);
    let first = first_datagram(first_byte);
    client.send(&first).unwrap();
    assert!(udp::receive(&origin, DEFAULT_TIMEOUT) == Some(first));
    lose_packets(&pair);
    let start = Instant::now();
    let tally = std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let mut tally = Tally { arrived: Vec::new(), slowest: Duration::ZERO };
            while let Some(packet) = udp::receive(&origin, Duration::from_secs(1)) {
                let field = |at: usize| u64::from_be_bytes(packet[at..at + 8].try_into().unwrap());
                tally.arrived.push(field(0));
                let sent = Duration::from_micros(field(8));
                tally.slowest = tally.slowest.max(start.elapsed().saturating_sub(sent));
            }
            tally
        });
        for number in 0..PACKETS {
            if number % PACKETS_EACH_TIME == 0 {
                let due = TIME * u32::try_from(number / PACKETS_EACH_TIME).unwrap();
                std::thread::sleep(due.saturating_sub(start.elapsed()));
            }
            let sent_us = u64::try_from(start.elapsed().as_micros()).unwrap();
            let mut packet = [number.to_be_bytes(), sent_us.to_be_bytes()].concat();
            packet.resize(PACKET_BYTES, 0);
            client.send(&packet).unwrap();
        }
        receiver.join().unwrap()
    });
    (tally, pair)
}

#[test]
fn lost_packets_of_quic_arrive_in_order() {
    let (tally, pair) = stream(0xc0);
    // Three losses of one packet in a row are one in a million.
    assert!(tally.arrived.len() as u64 >= PACKETS - 1, "{}", tally.arrived.len());
    assert!(tally.arrived.is_sorted() && tally.arrived.array_windows().all(|[a, b]| a != b));
    // Half a round trip, and what a packet that was lost twice takes longer.
    assert!(tally.slowest <= ONE_WAY + 2 * RTT + RTT / 2 + SLACK, "{:?}", tally.slowest);
    let retransmitted = repairs(pair.addresses.client_admin, "retransmitted");
    assert!((10.0..=100.0).contains(&retransmitted), "{retransmitted}");
}

/// The first datagram of a flow, which begins as QUIC does or as something else.
fn first_datagram(first_byte: u8) -> Vec<u8> {
    let mut first = vec![first_byte, 0, 0, 0, 1];
    first.resize(PACKET_BYTES, 0);
    first
}

/// Another flow sends more than the tunnel carries, and may have more datagrams in the transport. QUIC has its turn all the
/// same.
#[test]
fn a_flow_that_floods_the_transport_does_not_keep_quic_out() {
    const SECONDS: u64 = 3;
    // 4.8 Mbit/s of QUIC and 38 Mbit/s of the other flow, on a tunnel of 20 Mbit/s.
    const OF_QUIC_EACH_TIME: u64 = 5;
    const OF_OTHER_EACH_TIME: u64 = 40;
    let origin = udp::socket();
    let (pair, listener) = pair_to(origin.local_addr().unwrap());
    let _pair = pair.measured().start();
    let [quic, other] = [0xc0, 0x80].map(|first_byte| {
        let client = udp::client(listener);
        client.send(&first_datagram(first_byte)).unwrap();
        assert!(udp::receive(&origin, DEFAULT_TIMEOUT) == Some(first_datagram(first_byte)));
        client
    });
    let arrived = std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let mut arrived = [0_u64; 2];
            while let Some(packet) = udp::receive(&origin, Duration::from_secs(1)) {
                arrived[usize::from(packet[0])] += 1;
            }
            arrived
        });
        let start = Instant::now();
        for time in 0..SECONDS * 100 {
            std::thread::sleep(
                (TIME * u32::try_from(time).unwrap()).saturating_sub(start.elapsed()),
            );
            for (client, mark, count) in
                [(&other, 1, OF_OTHER_EACH_TIME), (&quic, 0, OF_QUIC_EACH_TIME)]
            {
                for _ in 0..count {
                    client.send(&[mark; PACKET_BYTES]).unwrap();
                }
            }
        }
        receiver.join().unwrap()
    });
    let sent = SECONDS * 100 * OF_QUIC_EACH_TIME;
    // It has less than half of the tunnel, and both have equal turns.
    assert!(arrived[0] >= sent * 9 / 10, "{} of {sent}, beside {}", arrived[0], arrived[1]);
}

/// A new connection begins with packets that have no room for an Initial packet. It waits for path MTU discovery for longer
/// than packets of QUIC wait otherwise (three round trips).
#[test]
fn initial_packets_wait_for_path_mtu_discovery() {
    let origin = udp::socket();
    let (pair, listener) = pair_to(origin.local_addr().unwrap());
    let mut pair = pair.alone().start();
    // The search finds less than the maximum, in several steps of a round trip or more each.
    pair.relay.as_ref().unwrap().pass_up_to(Some(1320));
    pair.client.kill();
    pair.start_client_again();
    pair.wait_healthy(DEFAULT_TIMEOUT);
    let client = udp::client(listener);
    let start = Instant::now();
    client.send(&first_datagram(0xc0)).unwrap();
    let arrived = udp::receive(&origin, DEFAULT_TIMEOUT);
    assert!(arrived == Some(first_datagram(0xc0)), "it was dropped");
    let waited = start.elapsed();
    assert!(waited > 3 * RTT + ONE_WAY, "it did not have to wait: {waited:?}");
}

#[test]
fn lost_packets_of_other_flows_stay_lost() {
    let (tally, pair) = stream(0x80);
    let lost = PACKETS - tally.arrived.len() as u64;
    assert!((5..=100).contains(&lost), "{lost}");
    assert_eq!(repairs(pair.addresses.client_admin, "retransmitted"), 0.0);
    // None of them waits for a repair, which takes a round trip at least.
    assert!(tally.slowest < ONE_WAY + RTT, "{:?}", tally.slowest);
}
