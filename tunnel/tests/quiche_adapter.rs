//! What controllers are told by quiche, and what its streams do since they are patched: two
//! connections in memory, packets handed over by the test.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use millrace_cc::registry::Algorithm;
use millrace_cc::{
    Bandwidth, CongestionEvent, Controller, ControllerConfig, ControllerMetrics, LostPacket,
    PathModel, PathStart, SentPacket, Time, quiche_adapter,
};
use quiche::{Connection, RecvInfo, SendInfo};

/// What a controller was told.
#[derive(Clone, Debug, Default)]
struct Told {
    seed: u64,
    sent: Vec<u64>,
    acked: Vec<u64>,
    lost: Vec<u64>,
    spurious: Vec<u64>,
    initial_path: Option<PathModel>,
}

/// Lets everything leave, and writes down what it is told.
#[derive(Debug)]
struct Witness(Arc<Mutex<Told>>);

impl Controller for Witness {
    fn on_packet_sent(&mut self, packet: &SentPacket) {
        self.0.lock().unwrap().sent.push(packet.number);
    }

    fn on_event(&mut self, event: &CongestionEvent<'_>) {
        let mut told = self.0.lock().unwrap();
        told.acked.extend(event.acked.iter().map(|packet| packet.number));
        told.lost.extend(event.lost.iter().map(|packet| packet.number));
    }

    fn on_spurious_loss(&mut self, _now: Time, packet: &LostPacket) {
        self.0.lock().unwrap().spurious.push(packet.number);
    }

    fn init_from_path(&mut self, _now: Time, path: &PathModel) {
        self.0.lock().unwrap().initial_path = Some(path.clone());
    }

    fn window_bytes(&self) -> u64 {
        1 << 30
    }

    fn pacing_rate(&self) -> Bandwidth {
        Bandwidth::from_mbps(10_000.0)
    }

    fn metrics(&self) -> ControllerMetrics {
        ControllerMetrics { state: "witness", ..ControllerMetrics::default() }
    }
}

/// Makes witnesses and keeps what they were told. Names are told apart by the adapter.
#[derive(Clone)]
struct Witnesses {
    name: &'static str,
    told: Arc<Mutex<Vec<Arc<Mutex<Told>>>>>,
}

impl fmt::Debug for Witnesses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl ControllerConfig for Witnesses {
    fn name(&self) -> &'static str {
        self.name
    }

    fn build(&self, _now: Time, start: &PathStart) -> Box<dyn Controller> {
        let told = Arc::new(Mutex::new(Told { seed: start.seed, ..Told::default() }));
        self.told.lock().unwrap().push(told.clone());
        Box::new(Witness(told))
    }
}

impl Witnesses {
    fn new(name: &'static str) -> Self {
        Self { name, told: Arc::default() }
    }

    fn algorithm(&self) -> Algorithm {
        Algorithm::Controller(Arc::new(self.clone()))
    }

    /// What the newest of them was told.
    fn newest(&self) -> Told {
        self.told.lock().unwrap().last().unwrap().lock().unwrap().clone()
    }
}

type Packet = (Vec<u8>, SendInfo);

/// All that `from` has to send now.
fn flight(from: &mut Connection) -> Vec<Packet> {
    let mut packets = Vec::new();
    let mut buffer = [0; 1500];
    while let Ok((len, info)) = from.send(&mut buffer) {
        packets.push((buffer[..len].to_vec(), info));
    }
    packets
}

fn deliver(to: &mut Connection, packets: &[Packet]) {
    for (bytes, info) in packets {
        to.recv(&mut bytes.clone(), RecvInfo { from: info.from, to: info.to }).unwrap();
    }
}

/// A server that `algorithm` drives, and its client, with the handshake behind them and a stream
/// that the client has opened.
fn pair(algorithm: &Algorithm) -> (Connection, Connection) {
    let dir = tempfile::tempdir().unwrap();
    let issued = rcgen::generate_simple_self_signed(vec!["server".to_owned()]).unwrap();
    let path = |name: &str, pem: String| {
        let path = dir.path().join(name);
        std::fs::write(&path, pem).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let config = || {
        let mut config = quiche::Config::new(quiche::PROTOCOL_VERSION).unwrap();
        config.set_application_protos(&[b"test"]).unwrap();
        config.set_initial_max_data(1 << 24);
        config.set_initial_max_stream_data_bidi_local(1 << 24);
        config.set_initial_max_stream_data_bidi_remote(1 << 24);
        config.set_initial_max_streams_bidi(2);
        config.verify_peer(false);
        config
    };
    let (mut at_server, mut at_client) = (config(), config());
    let certificate = path("certificate", issued.cert.pem());
    let key = path("key", issued.signing_key.serialize_pem());
    at_server.load_cert_chain_from_pem_file(&certificate).unwrap();
    at_server.load_priv_key_from_pem_file(&key).unwrap();
    quiche_adapter::apply(&mut at_server, algorithm).unwrap();

    let [here, there]: [SocketAddr; 2] =
        ["192.0.2.1:1", "192.0.2.2:2"].map(|it| it.parse().unwrap());
    let id = |byte| quiche::ConnectionId::from_vec(vec![byte; 16]);
    let mut client = quiche::connect(Some("server"), &id(1), here, there, &mut at_client).unwrap();
    let mut server = quiche::accept(&id(2), None, there, here, &mut at_server).unwrap();
    for _ in 0..5 {
        deliver(&mut server, &flight(&mut client));
        deliver(&mut client, &flight(&mut server));
    }
    client.stream_send(0, b"x", false).unwrap();
    deliver(&mut server, &flight(&mut client));
    (server, client)
}

/// The client has what the server sent, and the server knows.
fn exchange(server: &mut Connection, client: &mut Connection) {
    deliver(client, &flight(server));
    deliver(server, &flight(client));
}

#[test]
fn a_late_acknowledgement_of_a_lost_packet_is_told() {
    let witnesses = Witnesses::new("spurious");
    let (mut server, mut client) = pair(&witnesses.algorithm());
    exchange(&mut server, &mut client);
    server.stream_send(0, &[7; 20_000], false).unwrap();
    let mut packets = flight(&mut server);
    let late = packets.remove(1);
    deliver(&mut client, &packets);
    deliver(&mut server, &flight(&mut client));
    let told = witnesses.newest();
    assert_eq!((told.lost.len(), told.spurious.len()), (1, 0), "{told:?}");
    // Acknowledgements of later packets come first.
    for _ in 0..5 {
        server.stream_send(0, &[8; 5_000], false).unwrap();
        exchange(&mut server, &mut client);
    }
    let lost_bytes = |server: &Connection| quiche_adapter::inspect(server).unwrap().1.lost_bytes;
    assert!(lost_bytes(&server) > 1000);
    deliver(&mut client, &[late]);
    deliver(&mut server, &flight(&mut client));
    let told = witnesses.newest();
    assert_eq!(told.spurious, told.lost);
    assert!(!told.acked.contains(&told.lost[0]));
    assert_eq!(lost_bytes(&server), 0);
    exchange(&mut server, &mut client);
    assert_eq!(witnesses.newest().spurious.len(), 1, "told again");
}

#[test]
fn a_successor_hears_of_its_own_packets_and_gets_the_path() {
    let (first, second) = (Witnesses::new("former"), Witnesses::new("successor"));
    let (mut server, mut client) = pair(&first.algorithm());
    server.stream_send(0, &[7; 40_000], false).unwrap();
    exchange(&mut server, &mut client);
    become_known(&mut server, &mut client);
    server.stream_send(0, &[7; 10_000], false).unwrap();
    let under_way = flight(&mut server);
    quiche_adapter::replace(&mut server, &second.algorithm()).unwrap();
    server.stream_send(0, &[7; 10_000], false).unwrap();
    deliver(&mut client, &under_way);
    exchange(&mut server, &mut client);

    let told = second.newest();
    let path = told.initial_path.expect("the path had carried more than an initial window");
    assert!(path.delivered_bytes > 40_000 && path.min_rtt.is_some(), "{path:?}");
    assert!(told.sent.len() >= 8 && told.acked == told.sent, "{:?} {:?}", told.sent, told.acked);
    assert!(told.sent[0] > *first.newest().sent.last().unwrap());
    let (_, path) = quiche_adapter::inspect(&server).unwrap();
    assert!(path.delivered_bytes > 60_000, "the path's own count goes on: {path:?}");
    assert_ne!(told.seed, first.newest().seed);
}

/// Runs the connection until its path is characterised (`PathModel::is_uncharacterised`).
fn become_known(server: &mut Connection, client: &mut Connection) {
    let began = Instant::now();
    let passed = |server: &Connection| {
        let (_, path) = quiche_adapter::inspect(server).unwrap();
        began.elapsed() > path.smoothed_rtt * 10
    };
    while !passed(server) {
        assert!(began.elapsed() < Duration::from_secs(20), "round trips as long as that");
        server.stream_send(0, &[7], false).unwrap();
        exchange(server, client);
    }
}

#[test]
fn before_there_was_data_a_successor_starts_afresh() {
    let (first, second) = (Witnesses::new("unused"), Witnesses::new("afresh"));
    let (mut server, mut client) = pair(&first.algorithm());
    quiche_adapter::replace(&mut server, &second.algorithm()).unwrap();
    server.stream_send(0, &[7; 10_000], false).unwrap();
    exchange(&mut server, &mut client);
    let told = second.newest();
    assert!(told.initial_path.is_none() && !told.acked.is_empty(), "{told:?}");
}

/// quiche's own BBRv2 and back, with packets under way each time.
#[test]
fn quiches_own_algorithm_takes_over_and_gives_back() {
    use millrace_cc::registry::{Spec, find};
    let bbr2 = find(&Spec::named("bbr2")).unwrap();
    let witnesses = Witnesses::new("around bbr2");
    let (mut server, mut client) = pair(&witnesses.algorithm());
    let mut sent = 0;
    for algorithm in [bbr2, witnesses.algorithm()] {
        sent += server.stream_send(0, &[7; 10_000], false).unwrap();
        let under_way = flight(&mut server);
        quiche_adapter::replace(&mut server, &algorithm).unwrap();
        deliver(&mut client, &under_way);
        for _ in 0..10 {
            // As much as the window of either takes.
            sent += server.stream_send(0, &[7; 5_000], false).unwrap_or(0);
            exchange(&mut server, &mut client);
        }
    }
    let told = witnesses.newest();
    assert!(!told.acked.is_empty() && told.initial_path.is_none(), "{told:?}");
    let mut received = 0;
    while let Ok((len, _)) = client.stream_recv(0, &mut [0; 65_536]) {
        received += len;
    }
    assert!(sent > 60_000, "only {sent} bytes left");
    assert_eq!(received, sent);
}

/// A stream that one end gives up is over when the other has answered STOP_SENDING. Its place is
/// free then (RFC 9000, Section 4.6), also where what was sent had been acknowledged before; here
/// two places are all there are.
#[test]
fn streams_that_were_given_up_leave_nothing() {
    use quiche::Shutdown::{Read, Write};
    for (server_gives_up, sent_before) in
        [(false, false), (false, true), (true, false), (true, true)]
    {
        let (mut server, mut client) = pair(&Witnesses::new("places").algorithm());
        for stream in (1..50).map(|number| 4 * number) {
            client.stream_send(stream, b"request", false).unwrap_or_else(|error| {
                panic!("stream {stream}, {server_gives_up}, {sent_before}: {error}")
            });
            exchange(&mut client, &mut server);
            let (first, second) = match server_gives_up {
                true => (&mut server, &mut client),
                false => (&mut client, &mut server),
            };
            first.stream_shutdown(stream, Write, 1).unwrap();
            if sent_before {
                exchange(first, second);
            }
            first.stream_shutdown(stream, Read, 1).unwrap();
            exchange(first, second);
            let told = second.stream_recv(stream, &mut [0; 100]);
            assert_eq!(told, Err(quiche::Error::StreamReset(1)));
            // An error only says that the direction has ended already.
            let _ = second.stream_shutdown(stream, Write, 1);
            let _ = second.stream_shutdown(stream, Read, 1);
            for _ in 0..3 {
                exchange(&mut server, &mut client);
            }
            for conn in [&mut server, &mut client] {
                let gone = Err(quiche::Error::InvalidStreamState(stream));
                assert_eq!(conn.stream_capacity(stream), gone, "state of stream {stream} is left");
            }
        }
    }
}

/// RFC 9000, Section 3.1: nothing of a stream is sent after RESET_STREAM, least of all an end in
/// order, which a peer that RESET_STREAM has not reached takes for that of a complete stream.
#[test]
fn a_reset_stream_has_no_end_in_order() {
    const CUT: u64 = 4;
    let (mut server, mut client) = pair(&Witnesses::new("reset").algorithm());
    client.stream_send(CUT, b"x", false).unwrap();
    exchange(&mut client, &mut server);
    server.stream_send(CUT, &[9; 5_000], false).unwrap();
    server.stream_send(0, &[7; 5_000], false).unwrap();
    let mut buffer = [0; 1500];
    let (len, info) = server.send(&mut buffer).unwrap();
    deliver(&mut client, &[(buffer[..len].to_vec(), info)]);
    let (begun, fin) = client.stream_recv(CUT, &mut buffer).unwrap();
    assert!(begun > 1000 && !fin, "the first packet brought {begun} bytes of the stream");

    server.stream_shutdown(CUT, quiche::Shutdown::Write, 1).unwrap();
    // The first of these has RESET_STREAM, and is lost.
    deliver(&mut client, &flight(&mut server)[1..]);
    let got = client.stream_recv(CUT, &mut buffer);
    assert_eq!(got, Err(quiche::Error::Done));
    assert!(!client.stream_finished(CUT), "it looks complete");

    // That comes again, when acknowledgements have shown its packet to be lost.
    for _ in 0..5 {
        server.stream_send(0, &[8; 5_000], false).unwrap();
        exchange(&mut server, &mut client);
    }
    assert_eq!(client.stream_recv(CUT, &mut buffer), Err(quiche::Error::StreamReset(1)));
}
