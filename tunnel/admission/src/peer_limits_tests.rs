//! Tests of the limits of peers.

use super::*;

fn limited(limits: Limits) -> Arc<PeerLimits> {
    Arc::new(PeerLimits::new(limits))
}

fn at(ip: &str) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), 4000)
}

/// One of 131,072 addresses.
fn numbered(number: u32) -> SocketAddr {
    ((0xc612_0000 + number).to_be_bytes(), 4000).into()
}

#[test]
fn handshakes_of_one_address_are_limited_and_others_are_not() {
    let peers = limited(Limits { handshakes_per_address: 2, ..Limits::default() });
    let now = Instant::now();
    let begin = |text: &str| peers.begin_handshake(at(text), None, now);
    let first = begin("198.18.0.1").unwrap();
    let _second = begin("::ffff:198.18.0.1").unwrap();
    assert_eq!(begin("198.18.0.1").unwrap_err(), HandshakeLimit::Handshakes);
    let _other = begin("198.18.0.2").unwrap();
    drop(first);
    let _again = begin("198.18.0.1").unwrap();
    let [_a, _b] = ["2001:db8::1", "2001:db8::2"].map(|text| begin(text).unwrap());
    assert_eq!(begin("2001:db8::3").unwrap_err(), HandshakeLimit::Handshakes);
    let _next_network = begin("2001:db8:0:1::3").unwrap();
}

/// Handshakes that one address begins within a second, with four at a time and ten a second allowed.
fn begun_in_a_second(end: impl Fn(HandshakePlace)) -> usize {
    let limits = Limits {
        handshakes_per_address: 4,
        handshake_rate_per_source_ip: 10.0,
        ..Limits::default()
    };
    let (peers, start) = (limited(limits), Instant::now());
    let at_ms = |ms| start + Duration::from_millis(ms);
    let places =
        (0..1000).filter_map(|ms| peers.begin_handshake(at("198.18.0.1"), None, at_ms(ms)).ok());
    places.map(end).count()
}

#[test]
fn address_begins_as_many_at_once_as_it_may_have_under_way_and_then_at_its_rate() {
    let limits = Limits {
        handshakes_per_address: 2,
        handshake_rate_per_source_ip: 1.0,
        ..Limits::default()
    };
    let (peers, start) = (limited(limits), Instant::now());
    let begin =
        |second| peers.begin_handshake(at("198.18.0.1"), None, start + Duration::from_secs(second));
    drop([0, 0].map(|second| begin(second).unwrap()));
    assert_eq!(begin(0).unwrap_err(), HandshakeLimit::Rate);
    drop(begin(1).unwrap());
    assert_eq!(begin(1).unwrap_err(), HandshakeLimit::Rate);
    // A long time without handshakes gives no more.
    drop([100, 100].map(|second| begin(second).unwrap()));
    assert_eq!(begin(100).unwrap_err(), HandshakeLimit::Rate);
}

#[test]
fn lowered_limits_apply_to_what_begins_after_them() {
    let peers = limited(Limits::default());
    let begin = |number| peers.begin_handshake(numbered(number), None, Instant::now());
    let mut handshakes: Vec<_> = (0..8).map(|number| begin(number).unwrap()).collect();
    let mut edge = peers.join("edge").unwrap();
    edge.set_memory(100);
    let mut flows: Vec<_> = (0..2).map(|_| edge.admit_flow().unwrap()).collect();
    peers.set(Limits {
        handshakes: 8,
        connections_per_peer: 1,
        flows_per_peer: 2,
        memory_per_client_bytes: 99,
        ..Limits::default()
    });
    assert_eq!(begin(8).unwrap_err(), HandshakeLimit::All);
    assert!(peers.join("edge").is_none() && peers.join("other").is_some());
    assert!(edge.admit_flow().is_none());
    assert!(edge.is_over_memory());
    // A quarter of the places is for known clients.
    handshakes.truncate(5);
    flows.pop();
    assert!(begin(8).is_ok() && edge.admit_flow().is_some());
}

#[test]
fn handshakes_that_fail_at_once_are_limited_by_their_rate() {
    let begun = begun_in_a_second(drop);
    assert!((13..=14).contains(&begun), "{begun}");
}

#[test]
fn handshakes_of_authenticated_clients_have_ten_times_the_rate() {
    let begun = begun_in_a_second(HandshakePlace::succeed);
    assert!((120..=140).contains(&begun), "{begun}");
}

#[test]
fn proof_is_wanted_from_so_many_handshakes_on() {
    let peers = limited(Limits { retry_threshold_handshakes: 2, ..Limits::default() });
    let now = Instant::now();
    let first = peers.begin_handshake(at("198.18.0.1"), None, now).unwrap();
    assert!(!peers.wants_proof());
    let _second = peers.begin_handshake(at("198.18.0.2"), None, now).unwrap();
    assert!(peers.wants_proof());
    drop(first);
    assert!(!peers.wants_proof());
    peers.set(Limits { retry_threshold_handshakes: 0, ..Limits::default() });
    assert!(peers.wants_proof());
}

#[test]
fn half_of_the_handshakes_are_for_proven_addresses_and_a_quarter_for_known_clients() {
    let peers = limited(Limits { handshakes: 12, ..Limits::default() });
    let begin_as = |number: u8, known| {
        peers.begin_handshake(([198, 18, 0, number], 1).into(), known, Instant::now())
    };
    let begin = |number| begin_as(number, None);
    let mut places: Vec<_> = (0..5).map(|number| begin(number).unwrap()).collect();
    assert!(!peers.wants_proof());
    places.push(begin(5).unwrap());
    assert!(peers.wants_proof());
    places.extend((6..9).map(|number| begin(number).unwrap()));
    assert_eq!(begin(9).unwrap_err(), HandshakeLimit::All);
    let known = |number: u8| begin_as(number, Some(ClientId::of_name(&number.to_string())));
    let _known: Vec<_> = (9..12).map(|number| known(number).unwrap()).collect();
    assert_eq!(known(12).unwrap_err(), HandshakeLimit::All);
    // Known clients count for all.
    places.pop();
    assert_eq!(begin(12).unwrap_err(), HandshakeLimit::All);
    places.truncate(5);
    assert!(begin(12).is_ok());
}

#[test]
fn token_used_by_many_addresses_takes_from_the_share_of_its_client_only() {
    let limits =
        Limits { handshakes: 1024, handshake_share_per_source_ip: 16, ..Limits::default() };
    let (peers, now) = (limited(limits), Instant::now());
    let begin = |number: u16, known: Option<&str>| {
        let [high, low] = number.to_be_bytes();
        let from = ([198, 18, high, low], 1).into();
        peers.begin_handshake(from, known.map(ClientId::of_name), now)
    };
    let flood: Vec<_> = (0..2000).filter_map(|number| begin(number, Some("stolen")).ok()).collect();
    assert!((769..=784).contains(&flood.len()), "{}", flood.len());
    assert_eq!(begin(2000, Some("stolen")).unwrap_err(), HandshakeLimit::All);
    let known: Vec<_> =
        (0..100).map(|number: u16| begin(3000 + number, Some(&number.to_string()))).collect();
    assert!(known.iter().all(Result::is_ok));
}

#[test]
fn known_client_has_a_share_beyond_that_of_its_address() {
    let limits = Limits { handshakes: 64, handshake_share_per_source_ip: 1, ..Limits::default() };
    let (peers, now) = (limited(limits), Instant::now());
    let edge = Some(ClientId::of_name("edge"));
    let begin =
        |number: u8, known| peers.begin_handshake(([198, 18, 0, number], 1).into(), known, now);
    let mut flood: Vec<_> = (0..48).map(|number| begin(number, None).unwrap()).collect();
    flood.push(begin(100, edge).unwrap());
    assert_eq!(begin(101, edge).unwrap_err(), HandshakeLimit::All);
    flood.drain(..2);
    assert!(begin(101, edge).is_ok());
}

#[test]
fn addresses_that_flood_leave_handshakes_to_others() {
    let limits = Limits {
        handshakes: 1024,
        handshake_share_per_source_ip: 16,
        handshakes_per_address: 256,
        ..Limits::default()
    };
    let (peers, now) = (limited(limits), Instant::now());
    let begin = |number: u8| peers.begin_handshake(([198, 18, 0, number], 1).into(), None, now);
    let flood: Vec<_> = (0..8)
        .flat_map(|number| std::iter::from_fn(move || begin(number).ok()).take(1024))
        .collect();
    assert!((512..768).contains(&flood.len()), "{}", flood.len());
    assert_eq!(begin(0).unwrap_err(), HandshakeLimit::Handshakes);
    assert_eq!(begin(3).unwrap_err(), HandshakeLimit::Share);
    let _others: Vec<_> = (100..120).map(|number| begin(number).unwrap()).collect();
}

#[test]
fn an_address_is_crowded_from_half_of_its_handshakes_on() {
    let peers = limited(Limits { handshakes_per_address: 4, ..Limits::default() });
    let begin = || peers.begin_handshake(at("198.18.0.1"), None, Instant::now()).unwrap();
    let first = begin();
    assert!(!peers.is_crowded(at("198.18.0.1")));
    let second = begin();
    assert!(peers.is_crowded(at("198.18.0.1")) && !peers.is_crowded(at("198.18.0.2")));
    drop(second);
    assert!(!peers.is_crowded(at("198.18.0.1")));
    peers.set(Limits { handshakes_per_address: 1, ..Limits::default() });
    assert!(peers.is_crowded(at("198.18.0.1")) && !peers.is_crowded(at("198.18.0.2")));
    drop(first);
    assert!(!peers.is_crowded(at("198.18.0.1")), "an address without a handshake");
}

#[test]
fn addresses_without_a_place_are_not_remembered() {
    let peers = limited(Limits { handshakes: 4, ..Limits::default() });
    let begin =
        |number: u8| peers.begin_handshake(([198, 18, 0, number], 1).into(), None, Instant::now());
    let places: Vec<_> = (0..100).filter_map(|number| begin(number).ok()).collect();
    assert!(places.len() < 100);
    assert_eq!(peers.addresses().by_address.len(), places.len());
}

#[test]
fn each_port_of_a_balancer_counts_as_an_address() {
    let limits = Limits {
        handshakes_per_address: 1,
        balancers: Networks::parse(&["198.18.2.0/24"]).unwrap(),
        ..Limits::default()
    };
    let (peers, now) = (limited(limits), Instant::now());
    assert!(peers.is_balancer([198, 18, 2, 9].into()));
    assert!(!peers.is_balancer([198, 18, 3, 9].into()));
    let begin = |from: ([u8; 4], u16)| peers.begin_handshake(from.into(), None, now);
    let _first = begin(([198, 18, 2, 9], 4000)).unwrap();
    let _second = begin(([198, 18, 2, 9], 4001)).unwrap();
    assert_eq!(begin(([198, 18, 2, 9], 4000)).unwrap_err(), HandshakeLimit::Handshakes);
    let _elsewhere = begin(([198, 18, 3, 9], 4000)).unwrap();
    assert_eq!(begin(([198, 18, 3, 9], 4001)).unwrap_err(), HandshakeLimit::Handshakes);
}

#[test]
fn addresses_are_forgotten_and_never_more_than_there_is_room_for() {
    let limits = Limits {
        handshakes_per_address: 1,
        handshake_rate_per_source_ip: 1.0,
        ..Limits::default()
    };
    let (peers, start) = (limited(limits), Instant::now());
    let begin = |number, at| peers.begin_handshake(numbered(number), None, at).map(drop);
    let most = u32::try_from(MAX_ADDRESSES).unwrap();
    (0..most).for_each(|number| begin(number, start).unwrap());
    assert_eq!(begin(most, start), Err(HandshakeLimit::Handshakes));
    assert_eq!(begin(0, start), Err(HandshakeLimit::Rate), "an address in the full table");
    begin(most, start + Duration::from_secs(3)).unwrap();
    assert_eq!(peers.addresses().by_address.len(), 1);
}

#[test]
fn address_with_a_handshake_under_way_is_not_forgotten() {
    let limits = Limits {
        handshakes_per_address: 1,
        handshake_rate_per_source_ip: 1.0,
        ..Limits::default()
    };
    let (peers, start) = (limited(limits), Instant::now());
    let begin = |number, at| peers.begin_handshake(numbered(number), None, at);
    let under_way = begin(0, start).unwrap();
    let half = u32::try_from(MAX_ADDRESSES / 2).unwrap();
    (1..half).for_each(|number| drop(begin(number, start).unwrap()));
    let later = start + Duration::from_secs(3);
    drop(begin(half, later).unwrap());
    assert_eq!(peers.addresses().by_address.len(), 2);
    assert_eq!(begin(0, later).unwrap_err(), HandshakeLimit::Handshakes);
    drop(under_way);
    assert!(begin(0, later).is_ok());
}

#[test]
fn table_of_addresses_is_searched_from_half_full_on_and_once_in_an_interval() {
    let (peers, start) = (limited(Limits::default()), Instant::now());
    let mut places = Vec::new();
    let mut last_search = |number, at| {
        places.push(peers.begin_handshake(numbered(number), None, at).unwrap());
        peers.addresses().forgot
    };
    let half = u32::try_from(MAX_ADDRESSES / 2).unwrap();
    assert!((0..half).all(|number| last_search(number, start).is_none()));
    assert_eq!(last_search(half, start), Some(start));
    assert_eq!(last_search(half + 1, start + FORGET_INTERVAL / 2), Some(start));
    let later = start + FORGET_INTERVAL * 2;
    assert_eq!(last_search(half + 2, later), Some(later));
}

#[test]
fn a_peer_has_so_many_connections_flows_and_bytes_over_all_its_connections() {
    let peers = limited(Limits {
        connections_per_peer: 2,
        flows_per_peer: 3,
        memory_per_client_bytes: 100,
        ..Limits::default()
    });
    let [mut one, mut two] = [(); 2].map(|()| peers.join("edge-1").unwrap());
    assert!(peers.join("edge-1").is_none());
    let other = peers.join("edge-2").unwrap();
    one.set_memory(90);
    one.set_memory(60);
    assert_eq!([&one, &two, &other].map(PeerPlace::memory), [(60, 100), (60, 100), (0, 100)]);
    let flows: Vec<_> = [&one, &two, &one].map(|place| place.admit_flow().unwrap()).into();
    assert!(one.admit_flow().is_none() && two.admit_flow().is_none());
    assert!(other.admit_flow().is_some());
    drop(flows);
    assert!(two.admit_flow().is_some());
    drop(one);
    assert_eq!(two.memory(), (0, 100));
    two.set_memory(100);
    assert!(!two.is_over_memory());
    two.set_memory(101);
    assert!(two.is_over_memory());
    drop((two, other));
    assert!(peers.peers.lock().unwrap().is_empty());
}
