//! What one peer may take: by its address until its certificate is known, by the name in the
//! certificate from then on.
//!
//! A lock is taken when a handshake begins or ends and when a connection is authenticated; flows
//! count in atomics of their peer, and packets touch nothing of this.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use millrace_config::Networks;

use crate::client_id::ClientId;
use crate::fair_share::{FairShare, Place, PlaceRefusal, PoolLimits, Reserve};

/// Addresses that are remembered. One whose handshakes are over and whose rate has recovered is
/// forgotten when there are more.
const MAX_ADDRESSES: usize = 65_536;
/// How often the table is searched for addresses to forget.
const FORGET_INTERVAL: Duration = Duration::from_secs(1);

/// The part of a handshake that does not count towards the rate of its address once the client is
/// authenticated: ten times as many authenticated connections as failed handshakes. A client that opens a
/// connection for each of 1,000 flows after a restart then has them within a second.
const AUTHENTICATED_REFUND: f64 = 0.9;

/// The limits; `Default` has none.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Handshakes under way of all addresses.
    pub handshakes: usize,
    /// Of these, what one address may have under contention.
    pub handshake_share_per_source_ip: usize,
    /// Networks of load balancers: an address there stands for many clients, and each of its ports
    /// counts as an address.
    pub balancers: Networks,
    /// Handshakes under way from which on a client has to prove its address first.
    pub retry_threshold_handshakes: usize,
    /// Handshakes under way from one address.
    pub handshakes_per_address: usize,
    /// New ones from one address in a second, after as many as may be under way.
    pub handshake_rate_per_source_ip: f64,
    /// Connections of one authenticated peer.
    pub connections_per_peer: usize,
    /// Flows of one authenticated peer.
    pub flows_per_peer: usize,
    /// What one authenticated peer's connections hold together.
    pub memory_per_client_bytes: u64,
}

impl Limits {
    fn handshake_pool(&self) -> PoolLimits {
        PoolLimits {
            places: self.handshakes,
            share: self.handshake_share_per_source_ip,
            reserve: Reserve::Quarter,
        }
    }

    /// Handshakes under way that only known clients may add to: the last quarter, so that a flood from
    /// addresses that have been proven leaves these to them.
    fn kept_for_known_clients(&self) -> usize {
        self.handshakes / 4
    }

    /// Handshakes under way from which on a client has to prove its address. Half of the places
    /// are for those that have.
    fn retry_from(&self) -> usize {
        self.retry_threshold_handshakes.min(self.handshakes / 2)
    }

    fn source(&self, from: SocketAddr) -> HandshakeSource {
        match self.balancers.contains(from.ip()) {
            true => HandshakeSource::Port(from),
            false => HandshakeSource::Network(network_of(from.ip())),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshakes: usize::MAX,
            handshake_share_per_source_ip: usize::MAX,
            balancers: Networks::default(),
            retry_threshold_handshakes: usize::MAX,
            handshakes_per_address: usize::MAX,
            handshake_rate_per_source_ip: f64::INFINITY,
            connections_per_peer: usize::MAX,
            flows_per_peer: usize::MAX,
            memory_per_client_bytes: u64::MAX,
        }
    }
}

/// Which limit of handshakes was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeLimit {
    /// That of all addresses together.
    All,
    /// The address's share, while others need what is free.
    Share,
    /// Too many handshakes under way, or too many addresses.
    Handshakes,
    /// Too many new ones in a short time.
    Rate,
}

/// All peers of a process.
#[derive(Debug)]
pub struct PeerLimits {
    limits: RwLock<Limits>,
    handshakes: Arc<FairShare<HandshakeSource>>,
    addresses: Mutex<PeerAddresses>,
    peers: Mutex<HashMap<Arc<str>, Arc<AuthenticatedPeer>>>,
}

/// Where handshakes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum HandshakeSource {
    /// An address, or an IPv6 network.
    Network(IpAddr),
    /// A port of a balancer, behind which one client is.
    Port(SocketAddr),
    /// A client that has been authenticated before, at whichever address.
    Client(ClientId),
}

#[derive(Debug, Default)]
struct PeerAddresses {
    by_address: HashMap<HandshakeSource, Address>,
    forgot: Option<Instant>,
}

#[derive(Debug)]
struct Address {
    under_way: usize,
    /// New handshakes that it may begin now.
    credit: f64,
    counted: Instant,
}

impl Address {
    fn refill(&mut self, limits: &Limits, now: Instant) {
        let earned = now.saturating_duration_since(self.counted).as_secs_f64();
        let most = limits.handshakes_per_address as f64;
        self.credit = (self.credit + earned * limits.handshake_rate_per_source_ip).min(most);
        self.counted = now;
    }
}

/// One authenticated peer.
#[derive(Debug, Default)]
struct AuthenticatedPeer {
    connections: AtomicUsize,
    flows: AtomicUsize,
    memory_bytes: AtomicU64,
}

impl PeerLimits {
    /// A table without peers.
    pub fn new(limits: Limits) -> Self {
        Self {
            handshakes: FairShare::new(limits.handshake_pool()),
            limits: RwLock::new(limits),
            addresses: Mutex::default(),
            peers: Mutex::default(),
        }
    }

    /// Changes the limits; a peer that exceeds the new ones keeps what it has.
    pub fn set(&self, limits: Limits) {
        self.handshakes.set(limits.handshake_pool());
        *self.limits.write().unwrap_or_else(PoisonError::into_inner) = limits;
    }

    fn limits(&self) -> Limits {
        self.limits.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether a client has to prove its address before a handshake begins.
    pub fn wants_proof(&self) -> bool {
        self.handshakes.taken() >= self.limits().retry_from()
    }

    /// Whether an address is that of a load balancer, which many clients have.
    pub fn is_balancer(&self, ip: IpAddr) -> bool {
        self.limits.read().unwrap_or_else(PoisonError::into_inner).balancers.contains(ip)
    }

    /// Whether half of the handshakes that `from` may have under way have begun. A token can be copied and an address
    /// forged: the other half is for clients that have answered a Retry.
    pub fn is_crowded(&self, from: SocketAddr) -> bool {
        let limits = self.limits();
        let most = (limits.handshakes_per_address / 2).max(1);
        let addresses = self.addresses();
        addresses.by_address.get(&limits.source(from)).is_some_and(|it| it.under_way >= most)
    }

    /// A place for a handshake with the peer at `from`. One that is `known` goes first.
    ///
    /// # Errors
    /// The limit that was reached.
    pub fn begin_handshake(
        self: &Arc<Self>,
        from: SocketAddr,
        known: Option<ClientId>,
        now: Instant,
    ) -> Result<HandshakePlace, HandshakeLimit> {
        let limits = self.limits();
        let key = limits.source(from);
        let mut addresses = self.addresses();
        if !addresses.by_address.contains_key(&key) && !addresses.make_room(&limits, now) {
            return Err(HandshakeLimit::Handshakes);
        }
        if let Some(address) = addresses.by_address.get_mut(&key) {
            address.refill(&limits, now);
            if address.under_way >= limits.handshakes_per_address {
                return Err(HandshakeLimit::Handshakes);
            }
            if address.credit < 1.0 {
                return Err(HandshakeLimit::Rate);
            }
        }
        // Tokens can be copied: beyond the share of its address, each gives no more than the share of its
        // client, wherever it is used.
        let kept = limits.kept_for_known_clients();
        let place = self.handshakes.take_keeping(kept, key).or_else(|refusal| {
            let known =
                known.and_then(|id| self.handshakes.take_share(HandshakeSource::Client(id)).ok());
            known.ok_or(match refusal {
                PlaceRefusal::Full => HandshakeLimit::All,
                PlaceRefusal::Share => HandshakeLimit::Share,
            })
        })?;
        // Refused ones are not remembered: a flood of them would leave no room for those that get a place.
        let address = addresses.by_address.entry(key).or_insert_with(|| Address {
            under_way: 0,
            credit: limits.handshakes_per_address as f64,
            counted: now,
        });
        address.credit -= 1.0;
        address.under_way += 1;
        Ok(HandshakePlace { limits: self.clone(), address: key, _place: place })
    }

    /// A place for a connection of the peer that its certificate calls `name`; `None` when it has
    /// as many as it may.
    pub fn join(self: &Arc<Self>, name: &str) -> Option<PeerPlace> {
        let limits = self.limits();
        let mut peers = lock(&self.peers);
        let name: Arc<str> = name.into();
        let peer = peers.entry(name.clone()).or_default();
        // Joining and leaving hold the lock, so that the last place is taken once.
        if peer.connections.load(Ordering::Relaxed) >= limits.connections_per_peer {
            return None;
        }
        peer.connections.fetch_add(1, Ordering::Relaxed);
        let peer = peer.clone();
        Some(PeerPlace { limits: self.clone(), name, peer, memory_bytes: 0 })
    }

    fn addresses(&self) -> MutexGuard<'_, PeerAddresses> {
        lock(&self.addresses)
    }
}

// Counts are right whatever thread panicked beside them.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PeerAddresses {
    /// Forgets addresses that nothing has to be remembered of; whether there is room for one more.
    fn make_room(&mut self, limits: &Limits, now: Instant) -> bool {
        let rested =
            self.forgot.is_none_or(|at| now.saturating_duration_since(at) > FORGET_INTERVAL);
        if self.by_address.len() >= MAX_ADDRESSES / 2 && rested {
            self.forgot = Some(now);
            self.by_address.retain(|_, address| {
                address.refill(limits, now);
                address.under_way > 0 || address.credit < limits.handshakes_per_address as f64
            });
        }
        self.by_address.len() < MAX_ADDRESSES
    }
}

/// What counts as one address: a host may have all of an IPv6 /64 (RFC 4291, Section 2.5.4).
pub fn network_of(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => {
            let [a, b, c, d, ..] = ip.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        v4 => v4,
    }
}

/// A handshake's place among those of its address; given back when dropped.
#[derive(Debug)]
pub struct HandshakePlace {
    limits: Arc<PeerLimits>,
    address: HandshakeSource,
    _place: Place<HandshakeSource>,
}

impl HandshakePlace {
    /// The client is authenticated: its handshake costs its address less of the rate than one that fails.
    pub fn succeed(self) {
        if let Some(address) = self.limits.addresses().by_address.get_mut(&self.address) {
            address.credit += AUTHENTICATED_REFUND;
        }
    }
}

impl Drop for HandshakePlace {
    fn drop(&mut self) {
        if let Some(address) = self.limits.addresses().by_address.get_mut(&self.address) {
            address.under_way -= 1;
        }
    }
}

/// A connection's place among those of its peer; given back when dropped.
#[derive(Debug)]
pub struct PeerPlace {
    limits: Arc<PeerLimits>,
    name: Arc<str>,
    peer: Arc<AuthenticatedPeer>,
    memory_bytes: u64,
}

impl PeerPlace {
    /// The name of the peer in its certificate.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The memory that the peer has, and what it may have.
    pub fn memory(&self) -> (u64, u64) {
        let most = self.limits.limits().memory_per_client_bytes;
        (self.peer.memory_bytes.load(Ordering::Relaxed), most)
    }

    /// Whether it has more than that.
    pub fn is_over_memory(&self) -> bool {
        let (bytes, most) = self.memory();
        bytes > most
    }

    /// This connection has `bytes` of it now.
    pub fn set_memory(&mut self, bytes: u64) {
        let before = std::mem::replace(&mut self.memory_bytes, bytes);
        // Wraps around where it became less.
        self.peer.memory_bytes.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
    }

    /// A place for a flow; `None` when the peer has as many as it may.
    pub fn admit_flow(&self) -> Option<FlowPlace> {
        let most = self.limits.limits().flows_per_peer;
        let taken = self.peer.flows.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |flows| {
            (flows < most).then_some(flows + 1)
        });
        taken.is_ok().then(|| FlowPlace(self.peer.clone()))
    }
}

impl Drop for PeerPlace {
    fn drop(&mut self) {
        self.peer.memory_bytes.fetch_sub(self.memory_bytes, Ordering::Relaxed);
        let mut peers = lock(&self.limits.peers);
        if self.peer.connections.fetch_sub(1, Ordering::Relaxed) == 1 {
            peers.remove(&self.name);
        }
    }
}

/// A flow's place among those of its peer; given back when dropped.
#[derive(Debug)]
pub struct FlowPlace(Arc<AuthenticatedPeer>);

impl Drop for FlowPlace {
    fn drop(&mut self) {
        self.0.flows.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
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
        let places = (0..1000)
            .filter_map(|ms| peers.begin_handshake(at("198.18.0.1"), None, at_ms(ms)).ok());
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
        let begin = |second| {
            peers.begin_handshake(at("198.18.0.1"), None, start + Duration::from_secs(second))
        };
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
        let flood: Vec<_> =
            (0..2000).filter_map(|number| begin(number, Some("stolen")).ok()).collect();
        assert!((769..=784).contains(&flood.len()), "{}", flood.len());
        assert_eq!(begin(2000, Some("stolen")).unwrap_err(), HandshakeLimit::All);
        let known: Vec<_> =
            (0..100).map(|number: u16| begin(3000 + number, Some(&number.to_string()))).collect();
        assert!(known.iter().all(Result::is_ok));
    }

    #[test]
    fn known_client_has_a_share_beyond_that_of_its_address() {
        let limits =
            Limits { handshakes: 64, handshake_share_per_source_ip: 1, ..Limits::default() };
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
        let begin = |number: u8| {
            peers.begin_handshake(([198, 18, 0, number], 1).into(), None, Instant::now())
        };
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
}
