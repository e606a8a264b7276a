//! The tunnel connections of one worker: kept warm, and made again when they break.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use millrace_config::{ClientTunnel, Connections, Host, HostPort};
use millrace_tunnel::conn::ConnId;
use millrace_tunnel::core::{Core, H3_NO_ERROR};
use millrace_tunnel::udp::{PortOptions, UdpPort};
use millrace_tunnel::worker::WorkerHandle;

use crate::backoff::Backoff;

/// Connections that may be under way at a time with one connection per flow: more would only
/// compete for the same path.
const MAX_CONNECTING: usize = 32;

#[derive(Debug)]
struct Link {
    /// The lane that it is kept for; `None` with one connection for each flow.
    lane: Option<usize>,
    /// Streams can be opened, be it as early data.
    open: bool,
    established: bool,
    flows: usize,
    started: Instant,
    /// Takes no new flows: the server said so, or it is to be closed.
    retired: bool,
    has_session: bool,
}

impl Link {
    /// Whether the server is there, and takes new flows on it.
    fn healthy(&self) -> bool {
        self.established && !self.retired
    }
}

/// How many healthy connections all workers have, for the health check.
pub type ConnectedCount = Arc<AtomicUsize>;

/// See the module.
pub struct Pool {
    config: ClientTunnel,
    lanes: usize,
    links: HashMap<ConnId, Link>,
    backoff: Backoff,
    /// Which server is tried next.
    server: usize,
    address: Option<SocketAddr>,
    resolving: bool,
    resolved: Receiver<io::Result<SocketAddr>>,
    resolved_to: Sender<io::Result<SocketAddr>>,
    session: Option<Vec<u8>>,
    ports: HashMap<bool, usize>,
    handle: WorkerHandle,
    connected: ConnectedCount,
    draining: bool,
}

impl Pool {
    /// Nothing is connected yet. `lanes` is how many the listeners have.
    pub fn new(
        config: ClientTunnel,
        lanes: usize,
        handle: WorkerHandle,
        connected: ConnectedCount,
    ) -> Self {
        let (resolved_to, resolved) = channel();
        Self {
            backoff: Backoff::new(config.reconnect_min, config.reconnect_max),
            config,
            lanes,
            links: HashMap::new(),
            server: 0,
            address: None,
            resolving: false,
            resolved,
            resolved_to,
            session: None,
            ports: HashMap::new(),
            handle,
            connected,
            draining: false,
        }
    }

    /// Binds the worker's sockets, one for each family that the machine has.
    ///
    /// # Errors
    /// When there is none, or the mark can't be set.
    pub fn start(&mut self, core: &mut Core) -> io::Result<()> {
        let options = PortOptions { shared: false, mark: self.config.mark };
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
                self.maintain(core);
                Ok(())
            }
        }
    }

    /// A connection that a new flow of `lane` can use now.
    pub fn choose(&self, core: &Core, lane: usize) -> Option<ConnId> {
        let usable = |(id, link): &(&ConnId, &Link)| {
            link.open && !link.retired && core.conn(**id).is_some_and(|conn| conn.is_open())
        };
        match self.config.connections {
            Connections::Shared => self
                .links
                .iter()
                .filter(usable)
                .filter(|(_, link)| link.lane == Some(lane))
                .map(|(id, _)| *id)
                .next(),
            Connections::PerFlow { .. } => {
                let idle = self.links.iter().filter(usable).filter(|(_, link)| link.flows == 0);
                idle.map(|(id, _)| *id).next()
            }
        }
    }

    /// A flow begins on a connection.
    pub fn flow_begins(&mut self, id: ConnId) {
        if let Some(link) = self.links.get_mut(&id) {
            link.flows += 1;
        }
    }

    /// A flow on a connection is over, or came to nothing.
    pub fn flow_ends(&mut self, core: &mut Core, id: ConnId) {
        if let Some(link) = self.links.get_mut(&id) {
            link.flows = link.flows.saturating_sub(1);
        }
        self.close_surplus(core);
    }

    /// A connection can be used.
    pub fn on_open(&mut self, id: ConnId) {
        if let Some(link) = self.links.get_mut(&id) {
            link.open = true;
        }
    }

    /// A connection's handshake is over: the server is there.
    pub fn on_established(&mut self, id: ConnId) {
        if let Some(link) = self.links.get_mut(&id) {
            link.established = true;
            self.connected.fetch_add(1, Ordering::Relaxed);
            self.backoff.succeeded();
        }
    }

    /// Whether a server is there for new flows.
    pub fn has_established(&self) -> bool {
        self.links.values().any(Link::healthy)
    }

    /// A connection is gone.
    pub fn on_disconnected(&mut self, core: &mut Core, id: ConnId, reason: &str) {
        let Some(link) = self.links.remove(&id) else { return };
        if link.healthy() {
            self.connected.fetch_sub(1, Ordering::Relaxed);
        }
        if self.draining || link.retired && link.flows == 0 {
            return;
        }
        tracing::warn!(server = %self.server(), reason, "tunnel connection lost");
        self.backoff.failed(core.now(), random_fraction());
        if !link.established {
            self.next_server();
        }
        self.address = None;
        self.maintain(core);
    }

    /// The server takes no more flows on a connection.
    pub fn on_going_away(&mut self, core: &mut Core, id: ConnId) {
        if let Some(link) = self.links.get_mut(&id) {
            if link.healthy() {
                self.connected.fetch_sub(1, Ordering::Relaxed);
            }
            link.retired = true;
        }
        self.close_surplus(core);
        self.maintain(core);
    }

    /// Makes the connections that should be there; `wanted` flows wait for one of their own.
    pub fn maintain_for(&mut self, core: &mut Core, wanted: usize) {
        if self.draining {
            return;
        }
        while let Ok(address) = self.resolved.try_recv() {
            self.resolving = false;
            match address {
                Ok(address) => self.address = Some(address),
                Err(error) => {
                    tracing::warn!(server = %self.server(), %error, "server's name not resolved");
                    self.backoff.failed(core.now(), random_fraction());
                    self.next_server();
                }
            }
        }
        self.give_up_late(core);
        self.keep_session(core);
        let missing = self.missing(wanted);
        if missing.is_empty() || !self.backoff.ready(core.now()) {
            return;
        }
        let Some(address) = self.address.or_else(|| self.resolve()) else { return };
        self.address = Some(address);
        for lane in missing {
            if let Err(error) = self.connect(core, address, lane) {
                tracing::warn!(server = %address, %error, "can't connect");
                self.backoff.failed(core.now(), random_fraction());
                return;
            }
        }
    }

    /// As [`Pool::maintain_for`], with no flow waiting.
    pub fn maintain(&mut self, core: &mut Core) {
        self.maintain_for(core, 0);
    }

    /// When [`Pool::maintain_for`] has something to do that is not the next tick's.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.backoff.next().filter(|_| !self.draining)
    }

    /// No new connections from now on.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    fn server(&self) -> &HostPort {
        &self.config.servers[self.server]
    }

    /// Another server knows nothing of the sessions of this one.
    fn next_server(&mut self) {
        if self.config.servers.len() > 1 {
            self.server = (self.server + 1) % self.config.servers.len();
            self.session = None;
        }
    }

    /// One entry for each connection to make.
    fn missing(&self, wanted: usize) -> Vec<Option<usize>> {
        let live = || self.links.values().filter(|link| !link.retired);
        match self.config.connections {
            Connections::Shared => {
                let has = |lane| live().any(|link| link.lane == lane);
                (0..self.lanes).map(Some).filter(|lane| !has(*lane)).collect()
            }
            Connections::PerFlow { warm } => {
                let idle = live().filter(|link| link.flows == 0).count();
                let connecting = live().filter(|link| !link.established).count();
                let missing = (warm + wanted).saturating_sub(idle);
                vec![None; missing.min(MAX_CONNECTING.saturating_sub(connecting))]
            }
        }
    }

    fn connect(
        &mut self,
        core: &mut Core,
        server: SocketAddr,
        lane: Option<usize>,
    ) -> io::Result<()> {
        let no_family = || io::Error::other("no socket of the server's address family");
        let port = *self.ports.get(&server.is_ipv4()).ok_or_else(no_family)?;
        let local = SocketAddr::new(source_address(server)?, core.port_number(port));
        let name = &self.config.server_name;
        let id = core
            .connect(port, local, server, name, self.session.as_deref())
            .map_err(io::Error::other)?;
        let link = Link {
            lane,
            open: false,
            established: false,
            flows: 0,
            started: core.now(),
            retired: false,
            has_session: false,
        };
        self.links.insert(id, link);
        Ok(())
    }

    /// A literal address at once; a name through a thread, since the system's resolver blocks.
    fn resolve(&mut self) -> Option<SocketAddr> {
        let HostPort { host, port } = self.server().clone();
        let name = match host {
            Host::Ip(ip) => return Some(SocketAddr::new(ip, port)),
            Host::Name(name) => name,
        };
        if !self.resolving {
            let (answer, handle) = (self.resolved_to.clone(), self.handle.clone());
            let spawned =
                std::thread::Builder::new().name("resolver".to_owned()).spawn(move || {
                    let first =
                        (name.as_str(), port).to_socket_addrs().and_then(|mut addresses| {
                            addresses.next().ok_or_else(|| io::Error::other("no address"))
                        });
                    // The worker may have ended since.
                    let _ = answer.send(first);
                    handle.wake();
                });
            self.resolving = spawned.is_ok();
        }
        None
    }

    fn give_up_late(&mut self, core: &mut Core) {
        let now = core.now();
        for (id, link) in &self.links {
            if !link.established && now - link.started > self.config.connect_timeout {
                core.close(*id, H3_NO_ERROR, b"connecting took too long");
            }
        }
    }

    /// Keeps each connection's first session for the next connection.
    fn keep_session(&mut self, core: &Core) {
        for (id, link) in self.links.iter_mut().filter(|(_, link)| !link.has_session) {
            if let Some(session) = core.conn(*id).and_then(|conn| conn.session()) {
                self.session = Some(session.to_vec());
                link.has_session = true;
            }
        }
    }

    fn close_surplus(&mut self, core: &mut Core) {
        let keep = match self.config.connections {
            Connections::Shared => usize::MAX,
            Connections::PerFlow { warm } => warm,
        };
        let mut idle = 0;
        for (id, link) in self.links.iter_mut().filter(|(_, link)| link.flows == 0) {
            idle += usize::from(link.healthy());
            if link.retired || (link.healthy() && idle > keep) {
                if link.healthy() {
                    self.connected.fetch_sub(1, Ordering::Relaxed);
                }
                link.retired = true;
                core.close(*id, H3_NO_ERROR, b"");
            }
        }
    }
}

/// The address that this machine sends from towards `server`.
fn source_address(server: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let probe = UdpSocket::bind((any, 0))?;
    // Sends nothing: it only looks up the route.
    probe.connect(server)?;
    Ok(probe.local_addr()?.ip())
}

fn random_fraction() -> f64 {
    let mut bytes = [0; 4];
    boring::rand::rand_bytes(&mut bytes).expect("BoringSSL's generator does not fail");
    f64::from(u32::from_ne_bytes(bytes)) / f64::from(u32::MAX)
}
