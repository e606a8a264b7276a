//! One server of the tunnel, as one worker sees it.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use millrace_config::{ClientTunnel, Host, HostPort, TunnelServer};
use millrace_tunnel::metrics::ServerMetrics;
use millrace_tunnel::worker::WorkerHandle;

use crate::backoff::Backoff;

/// For how long a server that has no room gets no new flows. Then the next one asks again.
const FULL_FOR: Duration = Duration::from_secs(1);

/// A name that became an address, or did not, and for which server.
pub type Resolved = (usize, io::Result<SocketAddr>);

/// See the module.
pub struct Server {
    /// Where it is, and when it is to be used.
    pub config: TunnelServer,
    /// When the next attempt to connect may be made.
    backoff: Backoff,
    /// Since when a connection to it has worked, if none has failed or got lost since then.
    works_since: Option<Instant>,
    /// What resumes a session with it.
    pub session: Option<Vec<u8>>,
    /// Whether there is a connection to it that takes flows and answers.
    healthy: bool,
    /// The last that is known of it is that it did not answer, or refused.
    down: bool,
    /// Of the newest connection, when it was made.
    rtt: Option<Duration>,
    full_until: Option<Instant>,
    address: Option<SocketAddr>,
    resolving: bool,
    /// Its part of the metrics.
    pub metrics: ServerMetrics,
}

impl Server {
    /// Nothing is known of it.
    pub fn new(config: TunnelServer, tunnel: &ClientTunnel, metrics: ServerMetrics) -> Self {
        Self {
            config,
            backoff: Backoff::new(tunnel.reconnect_min, tunnel.reconnect_max),
            works_since: None,
            session: None,
            healthy: false,
            down: false,
            rtt: None,
            full_until: None,
            address: None,
            resolving: false,
            metrics,
        }
    }

    /// Whether it is there.
    pub fn is_healthy(&self) -> bool {
        self.healthy
    }

    /// Whether it did not answer, or refused, when it was last asked.
    pub fn is_down(&self) -> bool {
        self.down
    }

    /// Whether it has said that it has no room for more flows.
    pub fn is_full(&self, now: Instant) -> bool {
        self.full_until.is_some_and(|until| until > now)
    }

    /// Whether new flows can go to it.
    pub fn is_usable(&self, now: Instant) -> bool {
        self.healthy && !self.is_full(now)
    }

    /// It has no room for more flows.
    pub fn on_full(&mut self, now: Instant) {
        if !self.is_full(now) {
            tracing::warn!(server = %self.config, "the server has no room for more flows");
        }
        self.full_until = Some(now + FULL_FOR);
        self.metrics.full.inc();
    }

    /// When it may have room again.
    pub fn full_until(&self) -> Option<Instant> {
        self.full_until
    }

    /// What its connections say now.
    pub fn set_healthy(&mut self, healthy: bool) {
        if healthy == self.healthy {
            return;
        }
        self.healthy = healthy;
        if healthy {
            self.down = false;
            self.metrics.healthy.inc();
        } else {
            self.metrics.healthy.dec();
        }
        tracing::info!(server = %self.config, healthy, "server");
    }

    /// It did not answer, or refused.
    pub fn failed(&mut self, attempt: Instant) {
        if !self.down {
            tracing::warn!(server = %self.config, "the server does not answer, or refuses");
        }
        self.down = true;
        self.lost(attempt);
    }

    /// A connection to it was lost that had worked.
    pub fn lost(&mut self, now: Instant) {
        self.address = None;
        self.metrics.failures.inc();
        if let Some(since) = self.works_since.take() {
            self.backoff.lasted(now.saturating_duration_since(since));
        }
        self.backoff.failed(now, random_fraction());
    }

    /// What a round trip to it took last.
    pub fn rtt(&self) -> Option<Duration> {
        self.rtt
    }

    /// A connection to it works, with a round trip of `rtt`.
    pub fn connected(&mut self, now: Instant, rtt: Option<Duration>) {
        self.rtt = rtt.or(self.rtt);
        self.metrics.connections.inc();
        self.works_since.get_or_insert(now);
        self.backoff.retry_now();
    }

    /// Whether the next attempt to connect may be made.
    pub fn may_be_tried(&self, now: Instant) -> bool {
        self.backoff.ready(now)
    }

    /// The next attempt to connect may be made at once.
    pub fn try_now(&mut self) {
        self.backoff.retry_now();
    }

    /// When the next attempt to connect may be made, if that is not now.
    pub fn next_attempt(&self) -> Option<Instant> {
        self.backoff.next()
    }

    /// Its address: a literal one at once; a name through a thread, since the system's resolver
    /// blocks. The answer wakes `worker` and comes as that of server `index`.
    pub fn address(
        &mut self,
        index: usize,
        answer: &Sender<Resolved>,
        worker: &WorkerHandle,
    ) -> Option<SocketAddr> {
        let HostPort { host, port } = &self.config.address;
        let name = match host {
            Host::Ip(ip) => return Some(SocketAddr::new(*ip, *port)),
            Host::Name(_) if self.address.is_some() => return self.address,
            Host::Name(name) => name.clone(),
        };
        if !self.resolving {
            let (answer, worker, port) = (answer.clone(), worker.clone(), *port);
            let spawned =
                std::thread::Builder::new().name("resolver".to_owned()).spawn(move || {
                    let first =
                        (name.as_str(), port).to_socket_addrs().and_then(|mut addresses| {
                            addresses.next().ok_or_else(|| io::Error::other("no address"))
                        });
                    // The worker may have ended since.
                    let _ = answer.send((index, first));
                    worker.wake();
                });
            self.resolving = spawned.is_ok();
        }
        None
    }

    /// The answer to [`Server::address`].
    pub fn on_resolved(&mut self, now: Instant, address: io::Result<SocketAddr>) {
        self.resolving = false;
        match address {
            Ok(address) => self.address = Some(address),
            Err(error) => {
                tracing::warn!(server = %self.config, %error, "server's name not resolved");
                self.failed(now);
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.set_healthy(false);
    }
}

fn random_fraction() -> f64 {
    let mut bytes = [0; 4];
    boring::rand::rand_bytes(&mut bytes).expect("BoringSSL's generator does not fail");
    f64::from(u32::from_ne_bytes(bytes)) / f64::from(u32::MAX)
}
