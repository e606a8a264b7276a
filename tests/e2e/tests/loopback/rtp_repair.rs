//! RTP over UDP of an RTSP player on a path with random loss: lost packets are sent again before their deadline.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use millrace_e2e::admin::Metrics;
use millrace_e2e::pair::{Pair, PairBuilder};
use millrace_e2e::relay::{Faults, RelayOptions};
use millrace_e2e::rtsp::{Player, RtspOrigin};
use millrace_e2e::udp;

use crate::rtsp::set_up;

/// Propagation in each direction.
const ONE_WAY_DELAY: Duration = Duration::from_millis(25);
/// Propagation of a satellite path, whose round trip is longer than the deadline.
const SATELLITE_ONE_WAY_DELAY: Duration = Duration::from_millis(300);
/// Lost datagrams in a thousand.
const LOSS_PERMILLE: u32 = 10;
/// Packets of the stream, at 6 Mbit/s.
const PACKETS: u64 = 2400;
const PACKETS_PER_INTERVAL: u64 = 8;
const SEND_INTERVAL: Duration = Duration::from_millis(10);
/// The last is larger than a DATAGRAM frame of the tunnel can be.
const SIZES: [usize; 3] = [200, 1200, 1456];
/// The default of `media_deadline_ms`.
const DEADLINE: Duration = Duration::from_millis(200);
/// What scheduling adds on a machine that runs other tests beside this one.
const SCHEDULING_MARGIN: Duration = Duration::from_millis(50);

/// What the player received of the stream.
#[derive(Debug)]
struct Tally {
    missing: usize,
    duplicates: usize,
    slowest: Duration,
    /// The longest that the machine kept the sender from sending when it was due.
    sender_late: Duration,
}

/// Sends a stream to a player through a pair on a path with loss.
fn stream(pair: PairBuilder, one_way: Duration) -> (Tally, Pair) {
    let origin = RtspOrigin::start();
    let pair = pair
        .both("tunnel.congestion_control", "{ name = \"constant\", rate_mbps = 40 }")
        .relay(RelayOptions { one_way, ..RelayOptions::default() })
        .start();
    let mut player = Player::connect(&pair.listeners[2], origin.address());
    origin.asked();
    let (_, to_player) = set_up(&mut player, &origin);
    // The flow is established, and the path MTU found.
    let mut ready = Vec::new();
    while ready.len() < 3 {
        origin.media.rtp.send_to(b"ready?", to_player.rtp).unwrap();
        ready.extend(udp::receive(&player.media.rtp, Duration::from_millis(1500)));
    }
    while udp::receive(&player.media.rtp, Duration::from_millis(1000)).is_some() {}
    let relay = pair.relay.as_ref().unwrap();
    relay.set_faults(Faults { lose_permille: LOSS_PERMILLE, ..Faults::default() });
    let start = Instant::now();
    let tally = std::thread::scope(|scope| {
        let receiver = scope.spawn(|| receive_stream(&player, start));
        let mut sender_late = Duration::ZERO;
        for number in 0..PACKETS {
            if number % PACKETS_PER_INTERVAL == 0 {
                let due = SEND_INTERVAL * u32::try_from(number / PACKETS_PER_INTERVAL).unwrap();
                std::thread::sleep(due.saturating_sub(start.elapsed()));
                sender_late = sender_late.max(start.elapsed().saturating_sub(due));
            }
            let sent_us = u64::try_from(start.elapsed().as_micros()).unwrap();
            let mut packet = [number.to_be_bytes(), sent_us.to_be_bytes()].concat();
            packet.resize(SIZES[number as usize % SIZES.len()], number as u8);
            origin.media.rtp.send_to(&packet, to_player.rtp).unwrap();
        }
        Tally { sender_late, ..receiver.join().unwrap() }
    });
    (tally, pair)
}

/// Receives until nothing has come for a second.
fn receive_stream(player: &Player, start: Instant) -> Tally {
    let mut seen = vec![false; PACKETS as usize];
    let (mut duplicates, mut slowest) = (0, Duration::ZERO);
    while let Some(packet) = udp::receive(&player.media.rtp, Duration::from_secs(1)) {
        let field = |at: usize| u64::from_be_bytes(packet[at..at + 8].try_into().unwrap());
        let (number, sent) = (field(0), Duration::from_micros(field(8)));
        assert_eq!(packet.len(), SIZES[number as usize % SIZES.len()]);
        assert!(packet[16..].iter().all(|byte| *byte == number as u8), "{number} is changed");
        duplicates += usize::from(std::mem::replace(&mut seen[number as usize], true));
        slowest = slowest.max(start.elapsed().saturating_sub(sent));
    }
    let missing = seen.iter().filter(|seen| !**seen).count();
    Tally { missing, duplicates, slowest, sender_late: Duration::ZERO }
}

fn repairs(from: SocketAddr, event: &str) -> f64 {
    Metrics::fetch(from).sum("millrace_datagram_repairs_total", &[("event", event)])
}

#[test]
fn lost_packets_arrive_before_their_deadline() {
    let (tally, pair) = stream(Pair::builder().alone(), ONE_WAY_DELAY);
    let server = pair.addresses.server_admin;
    // Three losses of one packet in a row are one in a million.
    assert!(tally.missing <= 1, "{tally:?}");
    assert_eq!(tally.duplicates, 0);
    assert!(
        tally.slowest <= ONE_WAY_DELAY + DEADLINE + SCHEDULING_MARGIN + tally.sender_late,
        "{tally:?}"
    );
    let sent_again = repairs(server, "retransmitted");
    assert!((10.0..=150.0).contains(&sent_again), "{sent_again}");
    assert_eq!(repairs(server, "late"), 0.0);
    assert_eq!(repairs(server, "redundancy"), 0.0, "what is lost can be sent again");
    // Packets in two parts are not sent on the stream, where those behind a lost one would wait.
    let capsules = Metrics::fetch(server).sum("millrace_datagram_capsules_total", &[]);
    assert_eq!(capsules, 0.0);
}

/// As with a peer of an earlier version: the field is not there.
#[test]
fn with_a_peer_that_repairs_nothing_media_are_carried_as_they_are() {
    for pair in [
        Pair::builder().server("tunnel.media_deadline_ms", 0),
        Pair::builder().client("tunnel.media_deadline_ms", 0),
    ] {
        let (tally, pair) = stream(pair, ONE_WAY_DELAY);
        // Of 1,600 packets in datagrams about 16 are lost; those in capsules arrive.
        assert!((3..=60).contains(&tally.missing), "{tally:?}");
        let server = pair.addresses.server_admin;
        for event in ["retransmitted", "unrepaired", "duplicate"] {
            assert_eq!(repairs(server, event), 0.0, "{event}");
        }
        let capsules = Metrics::fetch(server).sum("millrace_datagram_capsules_total", &[]);
        assert_eq!(capsules, PACKETS as f64 / SIZES.len() as f64);
    }
}

#[test]
fn a_deadline_below_the_round_trip_leaves_losses() {
    let pair = Pair::builder().both("tunnel.media_deadline_ms", 40);
    let (tally, pair) = stream(pair.server("tunnel.media_fec", false), ONE_WAY_DELAY);
    assert!((5..=80).contains(&tally.missing), "{tally:?}");
    assert_eq!(repairs(pair.addresses.server_admin, "retransmitted"), 0.0);
    // Of datagrams, of which one may have the second parts of several packets.
    assert!(repairs(pair.addresses.server_admin, "unrepaired") >= 5.0);
}

#[test]
fn on_a_long_path_errors_are_corrected() {
    let (tally, pair) = stream(Pair::builder(), SATELLITE_ONE_WAY_DELAY);
    let [client, server] = [pair.addresses.client_admin, pair.addresses.server_admin];
    assert!(tally.missing <= 2, "{tally:?}");
    assert_eq!(tally.duplicates, 0);
    assert_eq!(repairs(server, "retransmitted"), 0.0);
    assert!(repairs(client, "corrected") >= 5.0);
    // The stream has 6 Mbit/s and a tenth of redundancy, in datagrams of up to 1,410 bytes.
    let datagrams = PACKETS as f64 + PACKETS as f64 / SIZES.len() as f64;
    let redundancy = repairs(server, "redundancy");
    assert!((datagrams / 40.0..=datagrams / 10.0).contains(&redundancy), "{redundancy}");
}

#[test]
fn without_error_correction_a_long_path_loses_packets() {
    let (tally, pair) =
        stream(Pair::builder().client("tunnel.media_fec", false), SATELLITE_ONE_WAY_DELAY);
    assert!((5..=80).contains(&tally.missing), "{tally:?}");
    assert_eq!(repairs(pair.addresses.server_admin, "redundancy"), 0.0);
}
