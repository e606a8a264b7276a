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
#[path = "peer_limits_tests.rs"]
mod tests;
