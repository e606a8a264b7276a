//! The tunnel connections of one worker: opened in advance, watched, and replaced when they fail.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use millrace_config::{ClientTunnel, Connections, HostPort, TunnelServer};
use millrace_tunnel::address_sharing::AddressSharing;
use millrace_tunnel::conn_id::ConnId;
use millrace_tunnel::event_loop::Core;
use millrace_tunnel::event_loop::WorkerHandle;
use millrace_tunnel::h3_errors::H3_NO_ERROR;
use millrace_tunnel::resolve::{Resolved, Resolver};
use millrace_tunnel::source_address::source_address;
use millrace_tunnel::udp::{PortOptions, UdpPort};

use crate::connection_group::ConnectionGroup;
use crate::group_demand::GroupDemand;
use crate::server::Server;
use crate::tunnel_connection::TunnelConnection;
use crate::tunnel_connections::TunnelConnections;

/// Largest number of concurrent connection attempts with one connection per flow. More would only compete for the
/// same path.
const MAX_CONNECTING: usize = 32;
/// Head start of each address of a server over the next one (RFC 8305 §5, §8).
const ADDRESS_DELAY: Duration = Duration::from_millis(250);
/// Time without an answer after which another attempt is made beside one: the next packet of the first may be
/// seconds away.
const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(500);
/// Least [`ATTEMPT_TIMEOUT`] in round trips, where the round-trip time is known.
const ATTEMPT_ROUND_TRIPS: u32 = 3;
/// Largest number of overdue attempts of one connection group. More than one matters on paths with round-trip times of
/// seconds. With one connection per flow the bound is [`MAX_CONNECTING`].
const MAX_ATTEMPTS: usize = 4;

/// Connection state of the workers, for the health check.
#[derive(Debug, Default)]
pub struct ConnectedCounts {
    /// Workers with a healthy server.
    pub healthy: AtomicUsize,
    /// Workers with a server that answers PINGs, but no health probes.
    pub stuck: AtomicUsize,
}

/// The counts, shared by all workers.
pub type ConnectedCount = Arc<ConnectedCounts>;

/// Whether the servers can take a new flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// At least one server can take it.
    Up,
    /// No server can take it yet, but one may soon.
    Pending,
    /// No server is available, or all are full.
    Down,
}

/// A set of server numbers below 32.
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

/// The tunnel connections of one worker and the servers that they lead to.
pub struct Pool {
    config: ClientTunnel,
    groups: GroupDemand,
    connections: TunnelConnections,
    servers: Vec<Server>,
    resolver: Resolver,
    resolved: Receiver<Resolved>,
    resolved_to: Sender<Resolved>,
    ports: HashMap<bool, usize>,
    handle: WorkerHandle,
    connected: ConnectedCount,
    /// Whether this worker counts in `connected`.
    counted: bool,
    /// Whether this worker counts among those with a stuck server.
    counted_stuck: bool,
    /// When a server was usable last.
    last_up: Instant,
    /// Since when other workers have a healthy server and this one does not.
    others_up: Option<Instant>,
    /// When to check the settled connections again.
    next_settled_check: Instant,
    draining: bool,
}

impl Pool {
    /// A pool without connections, for the flows of `groups`.
    pub fn new(
        config: ClientTunnel,
        servers: Vec<Server>,
        groups: &[ConnectionGroup],
        (handle, resolver): (WorkerHandle, Resolver),
        connected: ConnectedCount,
    ) -> Self {
        let (resolved_to, resolved) = channel();
        Self {
            config,
            groups: GroupDemand::new(groups),
            connections: TunnelConnections::default(),
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
            next_settled_check: Instant::now(),
            draining: false,
        }
    }

    /// Binds the worker's sockets, one for each address family that the host supports.
    ///
    /// # Errors
    /// No socket can be bound, or the mark can't be set.
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

    /// Whether a new flow can be taken.
    pub fn state(&self, now: Instant) -> State {
        let hopeless = |server: &Server| !server.is_healthy() && server.is_down();
        let timeout = self.config.health_timeout;
        if self.servers.iter().any(|server| server.is_usable(now)) {
            State::Up
        } else if self.others_up().is_some_and(|since| now.duration_since(since) < timeout) {
            // This worker will soon reach a server that other workers have reached.
            State::Pending
        } else if self.servers.iter().all(|server| server.is_full(now) || hopeless(server))
            || now.saturating_duration_since(self.last_up) >= timeout
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

    /// Keeps other connection groups ready from now on.
    pub fn set_kept_ready(&mut self, groups: &[ConnectionGroup]) {
        self.groups.set_kept_ready(groups);
    }

    /// A flow of `group` needs a connection.
    pub fn use_group(&mut self, group: usize, now: Instant) {
        self.groups.use_group(group, now);
    }

    /// A connection that a new flow of `group` can use now: the one with the fewest flows among
    /// those to the preferred servers, except the servers in `refused_by`.
    pub fn choose(&self, core: &Core, group: usize, refused_by: ServerSet) -> Option<ConnId> {
        let now = core.now();
        let active = self.active_priority(now, refused_by);
        let fits = |id: ConnId, connection: &TunnelConnection| {
            let server = &self.servers[connection.server];
            let reached = match active {
                Some(active) => server.is_usable(now) && server.config.priority == active,
                // Early data to a server that is probably available.
                None => !server.is_full(now) && !server.is_down(),
            };
            let free = match self.config.connections {
                // A standby server has one connection for all groups.
                Connections::Shared => connection.group == Some(group) || !refused_by.is_empty(),
                Connections::PerFlow { .. } => connection.flows == 0,
            };
            !refused_by.contains(connection.server)
                && (connection.established || server.takes_early_data(connection.address))
                && reached
                && free
                && connection.takes_flows()
                && core.conn(id).is_some_and(|it| it.is_open())
        };
        let usable = self.connections.active().filter(|(id, connection)| fits(*id, connection));
        let order = |connection: &TunnelConnection| {
            (!connection.established, connection.group != Some(group), connection.flows)
        };
        usable.min_by_key(|(_, connection)| order(connection)).map(|(id, _)| id)
    }

    /// The server at the other end of a connection, as a set.
    pub fn server_of(&self, id: ConnId) -> ServerSet {
        self.connections
            .get(id)
            .map_or_else(ServerSet::default, |connection| ServerSet::of(connection.server))
    }

    /// The authority of a connection's server: its name and port.
    pub fn authority(&self, id: ConnId) -> String {
        let server =
            self.connections.get(id).map(|connection| &self.servers[connection.server].config);
        server.map(authority_of).unwrap_or_default()
    }

    /// A flow begins on a connection.
    pub fn flow_begins(&mut self, core: &Core, id: ConnId) {
        if let Some(connection) = self.connections.activate(id) {
            connection.flows += 1;
            connection.last_flow = core.now();
            self.servers[connection.server].metrics.flows.inc();
        }
    }

    /// A flow on a connection has ended, or its request has failed.
    pub fn flow_ends(&mut self, core: &mut Core, id: ConnId) {
        if let Some(connection) = self.connections.activate(id) {
            connection.flows = connection.flows.saturating_sub(1);
            if let Some(group) = connection.group {
                self.groups.use_group(group, core.now());
            }
        }
        self.close_surplus(core);
    }

    /// The server at the other end has no room for a flow.
    pub fn on_full(&mut self, core: &Core, id: ConnId) {
        // A server that drains refuses flows although it is not full.
        if let Some(connection) = self.connections.get(id).filter(|connection| !connection.retired)
        {
            self.servers[connection.server].on_full(core.now());
        }
    }

    /// Streams can be opened on a connection.
    pub fn on_open(&mut self, id: ConnId) {
        if let Some(connection) = self.connections.get_mut(id) {
            connection.open = true;
        }
    }

    /// A connection's handshake is complete.
    pub fn on_established(&mut self, core: &mut Core, id: ConnId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        connection.established = true;
        let (server, group, address) = (connection.server, connection.group, connection.address);
        self.servers[server].connected(core.now(), address, core.rtt(id));
        // The other attempts for the same group are not needed any more.
        for (other, connection) in self.connections.active_mut() {
            if (connection.server, connection.group) == (server, group)
                && !connection.established
                && group.is_some()
            {
                connection.retired = true;
                core.close(other, H3_NO_ERROR, b"another attempt succeeded");
            }
        }
        self.update(core);
        self.maintain(core, 0);
    }

    /// The server of a connection has issued a token for the next one.
    pub fn on_token(&mut self, id: ConnId, token: Vec<u8>) {
        if let Some(connection) = self.connections.get_mut(id) {
            self.servers[connection.server].resumption.token = Some(token);
        }
    }

    /// A connection has been closed.
    pub fn on_disconnected(&mut self, core: &mut Core, id: ConnId, reason: &str) {
        let Some(connection) = self.connections.remove(id) else { return };
        let has_alternative_address =
            self.has_alternative_address(connection.server, connection.group, connection.address);
        let server = &mut self.servers[connection.server];
        // The end of a retired connection without flows is expected.
        let wanted = !connection.retired || connection.flows > 0;
        if wanted && !self.draining {
            tracing::warn!(server = %server.config, reason, "tunnel connection lost");
            match connection.established {
                true => server.lost(core.now()),
                false if connection.overdue || has_alternative_address => {}
                false => server.failed(connection.started),
            }
        }
        self.update(core);
        self.maintain(core, 0);
    }

    /// The server takes no more flows on a connection.
    pub fn on_going_away(&mut self, core: &mut Core, id: ConnId) {
        if let Some(connection) = self.connections.get_mut(id) {
            connection.retired = true;
        }
        self.update(core);
        self.close_surplus(core);
        self.maintain(core, 0);
    }

    /// Whether each flow has a connection of its own.
    pub fn has_connection_per_flow(&self) -> bool {
        matches!(self.config.connections, Connections::PerFlow { .. })
    }

    /// Sends PINGs to silent servers. Returns the connections that have exceeded the health timeout since the last
    /// call: established ones, which get no new flows until the server answers, and attempts with early data that had
    /// no answer.
    ///
    /// On the connections in `awaited` flows wait for the server's response. With one connection per flow there can be
    /// many others that only carry a flow; these are checked only when their traffic pauses.
    pub fn watch(&mut self, core: &mut Core, awaited: &HashSet<ConnId>) -> Vec<ConnId> {
        let shared = !self.has_connection_per_flow();
        if !shared {
            let now = core.now();
            self.connections.settle(|id, connection| {
                connection.only_carries_flows(now) && !awaited.contains(&id)
            });
        }
        for (id, connection) in self.connections.active_mut() {
            if let Some(heard) = connection.update_heard(core, id) {
                self.servers[connection.server].on_heard(heard);
            }
        }
        let alive: Vec<_> =
            (0..self.servers.len()).map(|index| self.is_alive(index, core.now())).collect();
        let (mut lost, mut has_moved) = (Vec::new(), false);
        for (id, connection) in self.connections.active_mut() {
            let heard_elsewhere = !shared && alive[connection.server];
            let outcome = connection.watch(core, id, &self.config, heard_elsewhere);
            has_moved |= outcome.has_moved;
            if outcome.is_lost {
                let server = &self.servers[connection.server].config;
                tracing::warn!(%server, "server unresponsive");
                lost.push(id);
            }
        }
        self.watch_settled(core, has_moved);
        let unanswered = self.unanswered_attempts(core.now());
        let stuck = self.probe(core);
        for id in lost.iter().chain(&stuck) {
            if let Some(connection) = self.connections.get(*id) {
                self.servers[connection.server].failed(core.now());
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

    /// Checks the settled connections. `have_moved` says that other connections have migrated to another local address.
    fn watch_settled(&mut self, core: &mut Core, mut have_moved: bool) {
        let interval = self.config.health_interval;
        if core.now() >= self.next_settled_check {
            self.next_settled_check = core.now() + interval / 2;
            for (id, connection) in self.connections.settled_mut() {
                have_moved |= connection.ask_after_traffic(core, id, interval);
                self.servers[connection.server].on_heard(connection.heard());
            }
        }
        if have_moved {
            for (id, _) in self.connections.settled_mut() {
                core.follow_route(id);
            }
        }
    }

    /// Attempts with waiting flows that an unresponsive server has not answered in time.
    fn unanswered_attempts(&self, now: Instant) -> Vec<ConnId> {
        let is_unanswered = |connection: &TunnelConnection| {
            let timeout =
                self.servers[connection.server].answer_timeout(self.config.health_timeout);
            connection.is_unanswered_attempt(now, timeout) && !self.is_alive(connection.server, now)
        };
        let unanswered =
            self.connections.active().filter(|(_, connection)| is_unanswered(connection));
        unanswered.map(|(id, _)| id).collect()
    }

    /// Whether a packet came from a server within its health timeout.
    fn is_alive(&self, server: usize, now: Instant) -> bool {
        let server = &self.servers[server];
        server.is_heard(now, server.answer_timeout(self.config.health_timeout))
    }

    /// Probes the connections that new flows may use. Returns those that have just been found stuck.
    fn probe(&mut self, core: &mut Core) -> Vec<ConnId> {
        let shared = !self.has_connection_per_flow();
        let mut stuck = Vec::new();
        // With one connection per flow there can be many that get no new flows.
        let watched =
            self.connections.active_mut().filter(|(_, connection)| shared || connection.flows == 0);
        for (id, connection) in watched {
            let server = &mut self.servers[connection.server];
            if connection.probe(core, id, &self.config, &authority_of(&server.config)) {
                server.is_stuck = true;
                server.metrics.probe_failures.inc();
                tracing::warn!(
                    server = %server.config,
                    "server is reachable, but full-size packets do not get through"
                );
                stuck.push(id);
            }
        }
        stuck
    }

    /// Opens missing connections; `wanted` flows wait for a connection of their own.
    pub fn maintain(&mut self, core: &mut Core, wanted: usize) {
        if self.draining {
            return;
        }
        while let Ok(Resolved { key, result }) = self.resolved.try_recv() {
            self.servers[key as usize].on_resolved(core.now(), result);
        }
        self.give_up_late(core);
        self.keep_session(core);
        if self.groups.expire(core.now()) {
            self.close_surplus(core);
        }
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
            for group in missing {
                if !self.try_addresses(core, index, group) {
                    self.servers[index].failed(core.now());
                    break;
                }
            }
        }
    }

    /// Begins an attempt to the first address of a server to which a connection can be opened.
    fn try_addresses(&mut self, core: &mut Core, index: usize, group: Option<usize>) -> bool {
        for _ in 0..self.servers[index].address_count() {
            let Some(address) = self.servers[index].next_address(group) else { return false };
            match self.connect(core, index, address, group) {
                Ok(()) => return true,
                Err(error) => {
                    let server = &self.servers[index].config;
                    tracing::warn!(%server, %address, %error, "can't connect");
                }
            }
        }
        false
    }

    /// Whether a failed attempt to `address` does not mean that the server is down: connections to
    /// another address work, the group has another attempt, or it has untried addresses.
    fn has_alternative_address(
        &self,
        server: usize,
        group: Option<usize>,
        address: SocketAddr,
    ) -> bool {
        let here = |connection: &&TunnelConnection| {
            (connection.server, connection.group) == (server, group)
        };
        self.servers[server].works_elsewhere(address)
            || self.servers[server].has_untried(group)
            || self
                .connections
                .active()
                .map(|(_, connection)| connection)
                .filter(here)
                .any(TunnelConnection::is_fresh_attempt)
    }

    /// When [`Pool::maintain`] or [`Pool::watch`] has something to do before the next tick.
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.draining {
            return None;
        }
        let servers = self.servers.iter().flat_map(|it| [it.next_attempt(), it.full_until()]);
        let checks =
            self.connections.active().filter_map(|(_, connection)| connection.next_check());
        let now = Instant::now();
        let coming = servers.flatten().filter(|at| *at > now);
        coming.chain(checks).chain(self.next_address_due(now)).min()
    }

    /// When to attempt the server's next address beside an unanswered attempt.
    fn next_address_due(&self, now: Instant) -> Option<Instant> {
        let waits = |connection: &&TunnelConnection| {
            let server = &self.servers[connection.server];
            connection.is_fresh_attempt()
                && server.has_untried(connection.group)
                && server.may_be_tried(now)
        };
        let mut newest: HashMap<(usize, Option<usize>), Instant> = HashMap::new();
        for connection in self.connections.active().map(|(_, connection)| connection).filter(waits)
        {
            let started =
                newest.entry((connection.server, connection.group)).or_insert(connection.started);
            *started = connection.started.max(*started);
        }
        let due = newest.into_values().map(|started| started + ADDRESS_DELAY);
        // An attempt that has been due for longer waits for another event.
        due.filter(|at| *at + ADDRESS_DELAY / 5 > now).min()
    }

    /// Opens no new connections from now on.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// The lowest priority of the usable servers that are not in `refused_by`.
    fn active_priority(&self, now: Instant, refused_by: ServerSet) -> Option<u32> {
        let usable = self
            .servers
            .iter()
            .enumerate()
            .filter(|(index, server)| server.is_usable(now) && !refused_by.contains(*index));
        usable.map(|(_, server)| server.config.priority).min()
    }

    /// Since when other workers have a healthy server while this one does not.
    fn others_up(&self) -> Option<Instant> {
        let others = self.connected.healthy.load(Ordering::Relaxed) > usize::from(self.counted);
        let none_here = !self.servers.iter().any(Server::is_healthy);
        (others && none_here).then(|| self.others_up.unwrap_or_else(Instant::now))
    }

    /// Updates the health of the servers from the state of the connections.
    fn update(&mut self, core: &Core) {
        for index in 0..self.servers.len() {
            let is_alive = self.is_alive(index, core.now());
            let here = |connection: &TunnelConnection| {
                connection.server == index && connection.is_healthy()
            };
            // Settled connections are not watched, so they prove health only of a server that sends.
            let is_healthy = self.connections.active().any(|(_, connection)| here(connection))
                || is_alive && self.connections.settled().any(here);
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

    /// The connection group of each connection to open to a server.
    fn missing(&mut self, now: Instant, index: usize, wanted: usize) -> Vec<Option<usize>> {
        let round_trips = ATTEMPT_ROUND_TRIPS * self.servers[index].rtt().unwrap_or_default();
        let timeout = ATTEMPT_TIMEOUT.max(round_trips).min(self.config.connect_timeout);
        let mut overdue = Vec::new();
        for (_, connection) in
            self.connections.active_mut().filter(|(_, connection)| connection.server == index)
        {
            let waited = now.saturating_duration_since(connection.started);
            if connection.is_fresh_attempt() && waited >= timeout {
                connection.overdue = true;
                overdue.push((connection.group, connection.address, connection.started));
            }
        }
        for (group, address, started) in overdue {
            let is_alive = self.is_alive(index, now);
            if !is_alive && !self.has_alternative_address(index, group, address) {
                self.servers[index].failed(started);
            }
        }
        let server = &self.servers[index];
        let first = self.servers.iter().map(|server| server.config.priority).min();
        let active = self.active_priority(now, ServerSet::default()).or(first);
        let in_use =
            active == Some(server.config.priority) && (server.is_healthy() || !server.is_down());
        let live = || {
            let here = |connection: &&TunnelConnection| {
                connection.server == index && connection.takes_flows()
            };
            // A slow attempt does not block one to the next address.
            let hopeful = |connection: &&TunnelConnection| {
                let slow = now.saturating_duration_since(connection.started) >= ADDRESS_DELAY;
                connection.established
                    || !(connection.overdue || slow && server.has_untried(connection.group))
            };
            self.connections.active().map(|(_, connection)| connection).filter(here).filter(hopeful)
        };
        match self.config.connections {
            Connections::Shared => {
                let has = |group| live().any(|connection| connection.group == group);
                let standby = self.groups.standby();
                let needed = self.groups.needed().filter(|group| in_use || *group == standby);
                needed.map(Some).filter(|group| !has(*group)).collect()
            }
            Connections::PerFlow { warm } => {
                let idle = live().filter(|connection| connection.flows == 0).count();
                let connecting = live().filter(|connection| !connection.established).count();
                // One connection is always needed to check the health of the server.
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
        group: Option<usize>,
    ) -> io::Result<()> {
        self.limit_attempts(core, server, group);
        let no_family = || io::Error::other("no socket of the server's address family");
        let port = *self.ports.get(&address.is_ipv4()).ok_or_else(no_family)?;
        let local = SocketAddr::new(source_address(address)?, core.port_number(port));
        let Server { config, resumption, .. } = &self.servers[server];
        let id = core
            .connect(port, local, address, &config.name, resumption)
            .map_err(io::Error::other)?;
        self.connections.insert(id, TunnelConnection::new(server, group, address, core.now()));
        Ok(())
    }

    /// Makes room for another attempt: closes the oldest overdue one. Attempts with flows stay, because their
    /// requests have been sent as early data.
    fn limit_attempts(&mut self, core: &mut Core, server: usize, group: Option<usize>) {
        let mut attempts: Vec<_> = self
            .connections
            .active_mut()
            .filter(|(_, connection)| (connection.server, connection.group) == (server, group))
            .filter(|(_, connection)| {
                connection.overdue && !connection.established && !connection.retired
            })
            .filter(|(_, connection)| connection.flows == 0)
            .collect();
        let most = if group.is_some() { MAX_ATTEMPTS } else { MAX_CONNECTING };
        if attempts.len() >= most {
            attempts.sort_unstable_by_key(|(_, connection)| connection.started);
            let (id, connection) = &mut attempts[0];
            connection.retired = true;
            core.close(*id, H3_NO_ERROR, b"connecting took too long");
        }
    }

    fn give_up_late(&mut self, core: &mut Core) {
        let now = core.now();
        for (id, connection) in self.connections.active() {
            if !connection.established && now - connection.started > self.config.connect_timeout {
                core.close(id, H3_NO_ERROR, b"connecting took too long");
            }
        }
    }

    /// Stores each connection's first session ticket for the next connection.
    fn keep_session(&mut self, core: &Core) {
        for (id, connection) in
            self.connections.active_mut().filter(|(_, connection)| !connection.has_session)
        {
            if let Some(session) = core.conn(id).and_then(|conn| conn.session()) {
                self.servers[connection.server].resumption.session = Some(session.to_vec());
                connection.has_session = true;
            }
        }
    }

    /// Closes idle connections that are retired, exceed the number to keep, or are of groups without use.
    fn close_surplus(&mut self, core: &mut Core) {
        let keep = match self.config.connections {
            Connections::Shared => 1,
            Connections::PerFlow { warm } => warm.max(1),
        };
        let groups = &self.groups;
        let is_needed = |group: Option<usize>| group.is_none_or(|group| groups.needs(group));
        let mut idle: HashMap<(usize, Option<usize>), usize> = HashMap::new();
        for (id, connection) in
            self.connections.active_mut().filter(|(_, connection)| connection.flows == 0)
        {
            let kept = idle.entry((connection.server, connection.group)).or_default();
            *kept += usize::from(connection.is_healthy());
            let keep = if is_needed(connection.group) { keep } else { 0 };
            if connection.retired || (connection.is_healthy() && *kept > keep) {
                connection.retired = true;
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
