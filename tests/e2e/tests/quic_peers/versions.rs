//! First packets of other QUIC versions, and with connection IDs that are too short.

use std::net::UdpSocket;
use std::time::Duration;

use millrace_e2e::admin::Metrics;
use millrace_e2e::pair::Pair;
use millrace_e2e::wait;

use crate::peer::Peer;

/// RFC 9369, Section 3.1.
const VERSION_2: u32 = 0x6b33_43cf;
/// RFC 9000, Section 14.1.
const MIN_INITIAL_BYTES: usize = 1200;

fn dropped(pair: &Pair, reason: &str) -> f64 {
    let metrics = Metrics::fetch(pair.addresses.server_admin);
    metrics.sum("millrace_drops_total", &[("reason", reason)])
}

fn socket(pair: &Pair) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(pair.addresses.tunnel).unwrap();
    socket.set_read_timeout(Some(wait::DEFAULT_TIMEOUT)).unwrap();
    socket
}

/// A packet with a long header whose rest is of no importance.
fn packet(first: u8, version: u32, dcid: &[u8], scid: &[u8], len: usize) -> Vec<u8> {
    let mut packet = vec![first];
    packet.extend(version.to_be_bytes());
    for id in [dcid, scid] {
        packet.push(id.len() as u8);
        packet.extend(id);
    }
    packet.resize(len, 0);
    packet
}

/// Version, IDs and versions of a Version Negotiation packet (RFC 9000, Section 17.2.1).
fn negotiation(dcid: &[u8], scid: &[u8]) -> Vec<u8> {
    let mut expected = packet(0, 0, dcid, scid, 7 + dcid.len() + scid.len());
    expected.extend(1_u32.to_be_bytes());
    expected.remove(0);
    expected
}

#[test]
fn an_initial_of_another_version_is_answered_with_the_version_that_is_spoken() {
    let pair = Pair::builder().start();
    let socket = socket(&pair);
    // The type bits of an Initial of version 2, of version 1, and of a version to come.
    for (first, version) in [(0xd0, VERSION_2), (0xc0, 0x0a0a_0a0a), (0xff, 0xff00_001d)] {
        for (dcid, scid) in
            [([1; 8].as_slice(), [2; 8].as_slice()), (&[3; 20], &[]), (&[4; 5], &[5; 4])]
        {
            let sent = packet(first, version, dcid, scid, MIN_INITIAL_BYTES);
            socket.send(&sent).unwrap();
            let mut answer = [0; 1500];
            let len = socket.recv(&mut answer).unwrap();
            assert_eq!(answer[0] & 0x80, 0x80);
            assert_eq!(answer[1..len], negotiation(scid, dcid), "{version:x}");
        }
    }
    assert_eq!(dropped(&pair, "unsupported_version"), 9.0);
    // Too short for an answer of any kind (Section 6.1).
    socket.send(&packet(0xd0, VERSION_2, &[1; 8], &[2; 8], MIN_INITIAL_BYTES - 1)).unwrap();
    wait::for_true("it is dropped", wait::DEFAULT_TIMEOUT, || dropped(&pair, "malformed") >= 1.0);
    assert_eq!(dropped(&pair, "unsupported_version"), 9.0);
}

#[test]
fn an_initial_with_a_short_destination_id_is_dropped() {
    let pair = Pair::builder().start();
    let mut peer = Peer::new(&pair, true);
    let first = peer.next_datagram();
    // Its ID cut to 5 and to 7 bytes: what follows is never looked at.
    let (len, rest) = (usize::from(first[5]), &first[6..]);
    for (count, short) in [(1.0, 5), (2.0, 7)] {
        let mut cut = first[..5].to_vec();
        cut.push(short as u8);
        cut.extend(&rest[..short]);
        cut.extend(&rest[len..]);
        cut.resize(MIN_INITIAL_BYTES, 0);
        peer.socket.send(&cut).unwrap();
        wait::for_true("it is dropped", wait::DEFAULT_TIMEOUT, || {
            dropped(&pair, "malformed") >= count
        });
    }
    assert_eq!(peer.receive(Duration::from_millis(100)), None);
    // The whole one is answered.
    peer.socket.send(&first).unwrap();
    assert!(peer.receive(wait::DEFAULT_TIMEOUT).is_some());
}
