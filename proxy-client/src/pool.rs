//! The tunnel connections of one worker: kept warm, watched, and made again when they break.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use millrace_config::{ClientTunnel, Connections, HostPort, TunnelServer};
use millrace_tunnel::address_sharing::AddressSharing;
use millrace_tunnel::conn::ConnId;
use millrace_tunnel::core::{Core, H3_NO_ERROR};
use millrace_tunnel::liveness::source_address;
use millrace_tunnel::resolve::{Resolved, Resolver};
use millrace_tunnel::udp::{PortOptions, UdpPort};
use millrace_tunnel::worker::WorkerHandle;

use crate::link::Link;
use crate::links::Links;
use crate::server::Server;

/// Connections that may be under way at a time with one connection per flow: more would only
/// compete for the same path.
const MAX_CONNECTING: usize = 32;
/// Head start of each address of a server over the next one (RFC 8305 §5, §8).
const ADDRESS_DELAY: Duration = Duration::from_millis(250);
/// An attempt to connect that has had no answer for so long gets company: its next packet may be
/// seconds away, and the server may come back any moment.
const ATTEMPT_PATIENCE: Duration = Duration::from_millis(500);
/// And that many round trips, where one is known: over a satellite none is over in half a second.
const ATTEMPT_ROUND_TRIPS: u32 = 3;
/// Attempts under way for one lane that had no answer in time. More than one matters on paths with round
/// trips of seconds. With one connection per flow there may be as many as are begun at a time.
const MAX_ATTEMPTS: usize = 4;
/// The lane of the one connection that a server has while it gets no flows.
const STANDBY_LANE: usize = 0;

/// What the workers have, for the health check.
#[derive(Debug, Default)]
pub struct ConnectedCounts {
    /// Workers with a healthy server.
    pub healthy: AtomicUsize,
    /// Workers with a server that answers, but not to probes.
    pub stuck: AtomicUsize,
}

/// Shared by all workers.
pub type ConnectedCount = Arc<ConnectedCounts>;

/// What the servers can do for a new flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// There is one that can take it.
    Up,
    /// There is none at the moment, but it is worth while to wait for one.
    Pending,
    /// There is none, or none with room.
    Down,
}

/// Servers, by their number; only the first 32 can be in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ServerSet(u32);

impl ServerSet {
    /// The set of one server.
    pub fn of(server: usize) -> Self {
        Self(u32::try_from(server).ok().and_then(|number| 1_u32.checked_shl(number)).unwrap_or(0))
    }

    /// The set with these bits; see [`ServerSet::bits`].
    pub fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// One bit for each server.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Whether a server is in it.
    pub fn contains(self, server: usize) -> bool {
        !self.is_empty() && self.0 & Self::of(server).0 != 0
    }

    /// Whether no server is in it.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// All servers that are in one of the two.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// See the module.
pub struct Pool {
    config: ClientTunnel,
    lanes: usize,
    links: Links,
    servers: Vec<Server>,
    resolver: Resolver,
    resolved: Receiver<Resolved>,
    resolved_to: Sender<Resolved>,
    ports: HashMap<bool, usize>,
    handle: WorkerHandle,
    connected: ConnectedCount,
    /// Whether this worker counts in `connected`.
    counted: bool,
    /// The same of those with a stuck server.
    counted_stuck: bool,
    /// When there was a usable server last.
    last_up: Instant,
    /// Since when other workers have one and this one has none.
    others_up: Option<Instant>,
    /// When to look again at the connections that only carry a flow.
    next_settled_look: Instant,
    draining: bool,
}

impl Pool {
    /// Nothing is connected yet. `lanes` is how many the listeners have.
    pub fn new(
        config: ClientTunnel,
        servers: Vec<Server>,
        lanes: usize,
        (handle, resolver): (WorkerHandle, Resolver),
        connected: ConnectedCount,
    ) -> Self {
        let (resolved_to, resolved) = channel();
        Self {
            config,
            lanes,
            links: Links::default(),
            servers,
            resolver,
            resolved,
            resolved_to,
            ports: HashMap::new(),
            handle,
            connected,
            counted: false,
            counted_stuck: false,
            last_up: Instant::now(),
            others_up: None,
            next_settled_look: Instant::now(),
            draining: false,
        }
    }

    /// Binds the worker's sockets, one for each family that the machine has.
    ///
    /// # Errors
    /// When there is none, or the mark can't be set.
    pub fn start(&mut self, core: &mut Core) -> io::Result<()> {
        let options = PortOptions { sharing: AddressSharing::Alone, mark: self.config.mark };
        let any = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
        let mut failure = None;
        for ip in any {
            match UdpPort::bind(SocketAddr::new(ip, 0), options) {
                Ok(port) => {
                    self.ports.insert(ip.is_ipv4(), core.add_port(port)?);
                }
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            Some(error) if self.ports.is_empty() => Err(error),
            _ => {
                self.maintain(core, 0);
                Ok(())
            }
        }
    }

    /// What can be done for a new flow.
    pub fn state(&self, now: Instant) -> State {
        let hopeless = |server: &Server| !server.is_healthy() && server.is_down();
        let patience = self.config.health_timeout;
        if self.servers.iter().any(|server| server.is_usable(now)) {
            State::Up
        } else if self.others_up().is_some_and(|since| now.duration_since(since) < patience) {
            // What they have reached, this one will reach soon.
            State::Pending
        } else if self.servers.iter().all(|server| server.is_full(now) || hopeless(server))
            || now.saturating_duration_since(self.last_up) >= patience
        {
            State::Down
        } else {
            State::Pending
        }
    }

    /// Whether a server would take flows if it had room.
    pub fn is_full(&self, now: Instant) -> bool {
        self.servers.iter().any(|server| server.is_healthy() && server.is_full(now))
    }

    /// A connection that a new flow of `lane` can use now: the one with the fewest flows among
    /// those to the preferred servers, of which those in `refused_by` are left out.
    pub fn choose(&self, core: &Core, lane: usize, refused_by: ServerSet) -> Option<ConnId> {
        let now = core.now();
        let active = self.active_priority(now, refused_by);
        let fits = |id: ConnId, link: &Link| {
            let server = &self.servers[link.server];
            let reached = match active {
                Some(active) => server.is_usable(now) && server.config.priority == active,
                // Early data on the way to a server that may well be there.
                None => !server.is_full(now) && !server.is_down(),
            };
            let free = match self.config.connections {
                // A server that stands by has one connection, for whatever lane.
                Connections::Shared => link.lane == Some(lane) || !refused_by.is_empty(),
                Connections::PerFlow { .. } => link.flows == 0,
            };
            !refused_by.contains(link.server)
                && (link.established || server.takes_early_data(link.address))
                && reached
                && free
                && link.takes_flows()
                && core.conn(id).is_some_and(|it| it.is_open())
        };
        let usable = self.links.active().filter(|(id, link)| fits(*id, link));
        let order = |link: &Link| (!link.established, link.lane != Some(lane), link.flows);
        usable.min_by_key(|(_, link)| order(link)).map(|(id, _)| id)
    }

    /// The server at the other end of a connection, as a set.
    pub fn server_of(&self, id: ConnId) -> ServerSet {
        self.links.get(id).map_or_else(ServerSet::default, |link| ServerSet::of(link.server))
    }

    /// What a connection's server is called as an authority: its name, and its port.
    pub fn authority(&self, id: ConnId) -> String {
        let server = self.links.get(id).map(|link| &self.servers[link.server].config);
        server.map(authority_of).unwrap_or_default()
    }

    /// A flow begins on a connection.
    pub fn flow_begins(&mut self, core: &Core, id: ConnId) {
        if let Some(link) = self.links.activate(id) {
            link.flows += 1;
            link.last_flow = core.now();
            self.servers[link.server].metrics.flows.inc();
        }
    }

    /// A flow on a connection is over, or came to nothing.
    pub fn flow_ends(&mut self, core: &mut Core, id: ConnId) {
        if let Some(link) = self.links.activate(id) {
            link.flows = link.flows.saturating_sub(1);
        }
        self.close_surplus(core);
    }

    /// The server at the other end has no room for a flow.
    pub fn on_full(&mut self, core: &Core, id: ConnId) {
        // One that goes away refuses what it has no time for; that says nothing about its room.
        if let Some(link) = self.links.get(id).filter(|link| !link.retired) {
            self.servers[link.server].on_full(core.now());
        }
    }

    /// A connection can be used.
    pub fn on_open(&mut self, id: ConnId) {
        if let Some(link) = self.links.get_mut(id) {
            link.open = true;
        }
    }

    /// A connection's handshake is over: the server is there.
    pub fn on_established(&mut self, core: &mut Core, id: ConnId) {
        let Some(link) = self.links.get_mut(id) else { return };
        link.established = true;
        let (server, lane, address) = (link.server, link.lane, link.address);
        self.servers[server].connected(core.now(), address, core.rtt(id));
        // The other attempts at the same are of no use any more.
        for (other, link) in self.links.active_mut() {
            if (link.server, link.lane) == (server, lane) && !link.established && lane.is_some() {
                link.retired = true;
                core.close(other, H3_NO_ERROR, b"another attempt succeeded");
            }
        }
        self.update(core);
        self.maintain(core, 0);
    }

    /// A connection is gone.
    pub fn on_disconnected(&mut self, core: &mut Core, id: ConnId, reason: &str) {
        let Some(link) = self.links.remove(id) else { return };
        let has_alternative_address =
            self.has_alternative_address(link.server, link.lane, link.address);
        let server = &mut self.servers[link.server];
        // Of those that are not wanted any more it is no news.
        let wanted = !link.retired || link.flows > 0;
        if wanted && !self.draining {
            tracing::warn!(server = %server.config, reason, "tunnel connection lost");
            match link.established {
                true => server.lost(core.now()),
                false if link.overdue || has_alternative_address => {}
                false => server.failed(link.started),
            }
        }
        self.update(core);
        self.maintain(core, 0);
    }

    /// The server takes no more flows on a connection.
    pub fn on_going_away(&mut self, core: &mut Core, id: ConnId) {
        if let Some(link) = self.links.get_mut(id) {
            link.retired = true;
        }
        self.update(core);
        self.close_surplus(core);
        self.maintain(core, 0);
    }

    /// Whether each flow has a connection of its own.
    pub fn has_connection_per_flow(&self) -> bool {
        matches!(self.config.connections, Connections::PerFlow { .. })
    }

    /// Asks servers that are silent whether they are still there. The connections that have been
    /// silent for too long since the last call, and get no new flows until they are heard again; and
    /// attempts that flows wait for as early data, and that had no answer in the same time.
    ///
    /// On the connections in `awaited` flows wait for the server's answer. With one connection for each flow there
    /// can be very many others that carry a flow. Nothing new comes to them, so that they are asked only when their
    /// traffic pauses.
    pub fn watch(&mut self, core: &mut Core, awaited: &HashSet<ConnId>) -> Vec<ConnId> {
        let shared = !self.has_connection_per_flow();
        if !shared {
            let now = core.now();
            self.links.settle(|id, link| link.only_carries_flows(now) && !awaited.contains(&id));
        }
        for (id, link) in self.links.active_mut() {
            if let Some(heard) = link.listen(core, id) {
                self.servers[link.server].on_heard(heard);
            }
        }
        let alive: Vec<_> =
            (0..self.servers.len()).map(|index| self.is_alive(index, core.now())).collect();
        let (mut lost, mut has_moved) = (Vec::new(), false);
        for (id, link) in self.links.active_mut() {
            let heard_elsewhere = !shared && alive[link.server];
            let outcome = link.watch(core, id, &self.config, heard_elsewhere);
            has_moved |= outcome.has_moved;
            if outcome.is_lost {
                tracing::warn!(server = %self.servers[link.server].config, "server is silent");
                lost.push(id);
            }
        }
        self.watch_settled(core, has_moved);
        let unanswered = self.unanswered_attempts(core.now());
        let stuck = self.probe(core);
        for id in lost.iter().chain(&stuck) {
            if let Some(link) = self.links.get(*id) {
                self.servers[link.server].failed(core.now());
            }
        }
        if !stuck.is_empty() {
            self.close_surplus(core);
        }
        lost.extend(stuck);
        self.update(core);
        lost.extend(unanswered);
        lost
    }

    /// Looks after the connections that only carry a flow, of which others `have_moved` to another address.
    fn watch_settled(&mut self, core: &mut Core, mut have_moved: bool) {
        let interval = self.config.health_interval;
        if core.now() >= self.next_settled_look {
            self.next_settled_look = core.now() + interval / 2;
            for (id, link) in self.links.settled_mut() {
                have_moved |= link.ask_after_traffic(core, id, interval);
                self.servers[link.server].on_heard(link.heard());
            }
        }
        if have_moved {
            for (id, _) in self.links.settled_mut() {
                core.follow_route(id);
            }
        }
    }

    /// The attempts that flows wait for, and that a silent server has not answered in time.
    fn unanswered_attempts(&self, now: Instant) -> Vec<ConnId> {
        let is_unanswered = |link: &Link| {
            let patience = self.servers[link.server].patience(self.config.health_timeout);
            link.is_unanswered_attempt(now, patience) && !self.is_alive(link.server, now)
        };
        let unanswered = self.links.active().filter(|(_, link)| is_unanswered(link));
        unanswered.map(|(id, _)| id).collect()
    }

    /// Whether a packet came from a server within its health timeout.
    fn is_alive(&self, server: usize, now: Instant) -> bool {
        let server = &self.servers[server];
        server.is_heard(now, server.patience(self.config.health_timeout))
    }

    /// Probes the connections that flows may get. Those that have just turned out to be stuck.
    fn probe(&mut self, core: &mut Core) -> Vec<ConnId> {
        let shared = !self.has_connection_per_flow();
        let mut stuck = Vec::new();
        // With one connection for each flow there can be very many that nothing new comes to.
        let watched = self.links.active_mut().filter(|(_, link)| shared || link.flows == 0);
        for (id, link) in watched {
            let server = &mut self.servers[link.server];
            if link.probe(core, id, &self.config, &authority_of(&server.config)) {
                server.is_stuck = true;
                server.metrics.probe_failures.inc();
                tracing::warn!(
                    server = %server.config,
                    "a server answers, but full-size packets do not get through"
                );
                stuck.push(id);
            }
        }
        stuck
    }

    /// Makes the connections that should be there; `wanted` flows wait for one of their own.
    pub fn maintain(&mut self, core: &mut Core, wanted: usize) {
        if self.draining {
            return;
        }
        while let Ok(Resolved { key, result }) = self.resolved.try_recv() {
            self.servers[key as usize].on_resolved(core.now(), result);
        }
        self.give_up_late(core);
        self.keep_session(core);
        for index in 0..self.servers.len() {
            let missing = self.missing(core.now(), index, wanted);
            let server = &mut self.servers[index];
            if missing.is_empty() || !server.may_be_tried(core.now()) {
                continue;
            }
            let to = (&self.resolved_to, &self.handle);
            if !server.resolve(index, &self.resolver, to, core.now()) {
                continue;
            }
            for lane in missing {
                if !self.try_addresses(core, index, lane) {
                    self.servers[index].failed(core.now());
                    break;
                }
            }
        }
    }

    /// Begins an attempt to the first address of a server to which that is possible.
    fn try_addresses(&mut self, core: &mut Core, index: usize, lane: Option<usize>) -> bool {
        for _ in 0..self.servers[index].address_count() {
            let Some(address) = self.servers[index].next_address(lane) else { return false };
            match self.connect(core, index, address, lane) {
                Ok(()) => return true,
                Err(error) => {
                    let server = &self.servers[index].config;
                    tracing::warn!(%server, %address, %error, "can't connect");
                }
            }
        }
        false
    }

    /// Whether the failure of an attempt to `address` is not yet that of the server: connections
    /// work to another address, the lane has another attempt under way, or there are addresses that
    /// it has not tried.
    fn has_alternative_address(
        &self,
        server: usize,
        lane: Option<usize>,
        address: SocketAddr,
    ) -> bool {
        let here = |link: &&Link| (link.server, link.lane) == (server, lane);
        self.servers[server].works_elsewhere(address)
            || self.servers[server].has_untried(lane)
            || self.links.active().map(|(_, link)| link).filter(here).any(Link::is_fresh_attempt)
    }

    /// When [`Pool::maintain`] or [`Pool::watch`] has something to do before the next tick.
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.draining {
            return None;
        }
        let servers = self.servers.iter().flat_map(|it| [it.next_attempt(), it.full_until()]);
        let links = self.links.active().filter_map(|(_, link)| link.next_look());
        let now = Instant::now();
        let coming = servers.flatten().filter(|at| *at > now);
        coming.chain(links).chain(self.next_address_due(now)).min()
    }

    /// When an attempt that has no answer yet is joined by one to the server's next address.
    fn next_address_due(&self, now: Instant) -> Option<Instant> {
        let waits = |link: &&Link| {
            let server = &self.servers[link.server];
            link.is_fresh_attempt() && server.has_untried(link.lane) && server.may_be_tried(now)
        };
        let mut newest: HashMap<(usize, Option<usize>), Instant> = HashMap::new();
        for link in self.links.active().map(|(_, link)| link).filter(waits) {
            let started = newest.entry((link.server, link.lane)).or_insert(link.started);
            *started = link.started.max(*started);
        }
        let due = newest.into_values().map(|started| started + ADDRESS_DELAY);
        // What is due for longer waits for something else.
        due.filter(|at| *at + ADDRESS_DELAY / 5 > now).min()
    }

    /// No new connections from now on.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// The lowest priority that a usable server has which is not in `refused_by`.
    fn active_priority(&self, now: Instant, refused_by: ServerSet) -> Option<u32> {
        let usable = self
            .servers
            .iter()
            .enumerate()
            .filter(|(index, server)| server.is_usable(now) && !refused_by.contains(*index));
        usable.map(|(_, server)| server.config.priority).min()
    }

    /// Since when other workers have a healthy server, as far as that is news to this one, which
    /// has none.
    fn others_up(&self) -> Option<Instant> {
        let others = self.connected.healthy.load(Ordering::Relaxed) > usize::from(self.counted);
        let none_here = !self.servers.iter().any(Server::is_healthy);
        (others && none_here).then(|| self.others_up.unwrap_or_else(Instant::now))
    }

    /// Draws what follows from the state of the connections.
    fn update(&mut self, core: &Core) {
        for index in 0..self.servers.len() {
            let is_alive = self.is_alive(index, core.now());
            let here = |link: &Link| link.server == index && link.healthy();
            // Those that only carry a flow are not watched: they say nothing by themselves.
            let is_healthy = self.links.active().any(|(_, link)| here(link))
                || is_alive && self.links.settled().any(here);
            let is_healthy = is_healthy && !self.draining;
            self.servers[index].set_healthy(is_healthy);
        }
        if self.servers.iter().any(|server| server.is_usable(core.now())) {
            self.last_up = core.now();
        }
        let others_up = self.others_up();
        if others_up.is_some() && self.others_up.is_none() {
            for server in &mut self.servers {
                server.try_now();
            }
        }
        self.others_up = others_up;
        let stuck = self.servers.iter().any(|server| server.is_stuck);
        if stuck != std::mem::replace(&mut self.counted_stuck, stuck) {
            match stuck {
                true => self.connected.stuck.fetch_add(1, Ordering::Relaxed),
                false => self.connected.stuck.fetch_sub(1, Ordering::Relaxed),
            };
        }
        let healthy = self.servers.iter().any(Server::is_healthy);
        if healthy != std::mem::replace(&mut self.counted, healthy) {
            match healthy {
                true => self.connected.healthy.fetch_add(1, Ordering::Relaxed),
                false => self.connected.healthy.fetch_sub(1, Ordering::Relaxed),
            };
        }
    }

    /// One entry for each connection to make to a server.
    fn missing(&mut self, now: Instant, index: usize, wanted: usize) -> Vec<Option<usize>> {
        let round_trips = ATTEMPT_ROUND_TRIPS * self.servers[index].rtt().unwrap_or_default();
        let patience = ATTEMPT_PATIENCE.max(round_trips).min(self.config.connect_timeout);
        let mut overdue = Vec::new();
        for (_, link) in self.links.active_mut().filter(|(_, link)| link.server == index) {
            let waited = now.saturating_duration_since(link.started);
            if link.is_fresh_attempt() && waited >= patience {
                link.overdue = true;
                overdue.push((link.lane, link.address, link.started));
            }
        }
        for (lane, address, started) in overdue {
            let is_alive = self.is_alive(index, now);
            if !is_alive && !self.has_alternative_address(index, lane, address) {
                self.servers[index].failed(started);
            }
        }
        let server = &self.servers[index];
        let first = self.servers.iter().map(|server| server.config.priority).min();
        let active = self.active_priority(now, ServerSet::default()).or(first);
        let in_use =
            active == Some(server.config.priority) && (server.is_healthy() || !server.is_down());
        let live = || {
            let here = |link: &&Link| link.server == index && link.takes_flows();
            // An attempt that is slow does not keep the next address from being tried.
            let hopeful = |link: &&Link| {
                let slow = now.saturating_duration_since(link.started) >= ADDRESS_DELAY;
                link.established || !(link.overdue || slow && server.has_untried(link.lane))
            };
            self.links.active().map(|(_, link)| link).filter(here).filter(hopeful)
        };
        match self.config.connections {
            Connections::Shared => {
                let has = |lane| live().any(|link| link.lane == lane);
                let lanes = if in_use { 0..self.lanes } else { STANDBY_LANE..STANDBY_LANE + 1 };
                lanes.map(Some).filter(|lane| !has(*lane)).collect()
            }
            Connections::PerFlow { warm } => {
                let idle = live().filter(|link| link.flows == 0).count();
                let connecting = live().filter(|link| !link.established).count();
                // One is needed in any case, to know whether the server is there.
                let wanted = if in_use { warm.max(1) + wanted } else { 1 };
                let missing = wanted.saturating_sub(idle);
                vec![None; missing.min(MAX_CONNECTING.saturating_sub(connecting))]
            }
        }
    }

    fn connect(
        &mut self,
        core: &mut Core,
        server: usize,
        address: SocketAddr,
        lane: Option<usize>,
    ) -> io::Result<()> {
        self.limit_attempts(core, server, lane);
        let no_family = || io::Error::other("no socket of the server's address family");
        let port = *self.ports.get(&address.is_ipv4()).ok_or_else(no_family)?;
        let local = SocketAddr::new(source_address(address)?, core.port_number(port));
        let Server { config, session, .. } = &self.servers[server];
        let id = core
            .connect(port, local, address, &config.name, session.as_deref())
            .map_err(io::Error::other)?;
        self.links.insert(id, Link::new(server, lane, address, core.now()));
        Ok(())
    }

    /// Makes room for another attempt: the oldest that had no answer goes. Not one with flows: their
    /// requests are under way as early data, and the answer may be, too.
    fn limit_attempts(&mut self, core: &mut Core, server: usize, lane: Option<usize>) {
        let mut attempts: Vec<_> = self
            .links
            .active_mut()
            .filter(|(_, link)| (link.server, link.lane) == (server, lane))
            .filter(|(_, link)| link.overdue && !link.established && !link.retired)
            .filter(|(_, link)| link.flows == 0)
            .collect();
        let most = if lane.is_some() { MAX_ATTEMPTS } else { MAX_CONNECTING };
        if attempts.len() >= most {
            attempts.sort_unstable_by_key(|(_, link)| link.started);
            let (id, link) = &mut attempts[0];
            link.retired = true;
            core.close(*id, H3_NO_ERROR, b"connecting took too long");
        }
    }

    fn give_up_late(&mut self, core: &mut Core) {
        let now = core.now();
        for (id, link) in self.links.active() {
            if !link.established && now - link.started > self.config.connect_timeout {
                core.close(id, H3_NO_ERROR, b"connecting took too long");
            }
        }
    }

    /// Keeps each connection's first session for the next connection.
    fn keep_session(&mut self, core: &Core) {
        for (id, link) in self.links.active_mut().filter(|(_, link)| !link.has_session) {
            if let Some(session) = core.conn(id).and_then(|conn| conn.session()) {
                self.servers[link.server].session = Some(session.to_vec());
                link.has_session = true;
            }
        }
    }

    /// Closes idle connections that nobody needs: what went away, and more than are kept warm.
    fn close_surplus(&mut self, core: &mut Core) {
        let keep = match self.config.connections {
            Connections::Shared => 1,
            Connections::PerFlow { warm } => warm.max(1),
        };
        let mut idle: HashMap<(usize, Option<usize>), usize> = HashMap::new();
        for (id, link) in self.links.active_mut().filter(|(_, link)| link.flows == 0) {
            let kept = idle.entry((link.server, link.lane)).or_default();
            *kept += usize::from(link.healthy());
            if link.retired || (link.healthy() && *kept > keep) {
                link.retired = true;
                core.close(id, H3_NO_ERROR, b"");
            }
        }
        self.update(core);
    }
}

/// What a server is called as an authority: its name, and its port.
fn authority_of(server: &TunnelServer) -> String {
    HostPort { host: server.name.clone(), port: server.address.port }.to_string()
}
