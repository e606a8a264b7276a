//! A server of the tunnel, as one worker knows it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use millrace_config::{ClientTunnel, Host, HostPort, TunnelServer};
use millrace_tunnel::dial::interleave;
use millrace_tunnel::event_loop::WorkerHandle;
use millrace_tunnel::metrics::ServerMetrics;
use millrace_tunnel::resolve::{
    Addresses, Asker, Name, Question, ResolveError, Resolved, Resolver,
};
use millrace_tunnel::resumption::Resumption;

use crate::backoff::Backoff;
use crate::tunnel_connection::ANSWER_TIMEOUT_ROUND_TRIPS;

/// How long a full server gets no new flows. The next flow after that tries it again.
const FULL_FOR: Duration = Duration::from_secs(1);

/// Least time between two name queries for a server that works.
const LEAST_TTL: Duration = Duration::from_secs(1);

/// A server of the configuration, with its health, addresses and back-off.
pub struct Server {
    /// Its address, name and priority.
    pub config: TunnelServer,
    /// Pauses between attempts to connect.
    backoff: Backoff,
    /// Since when connections to it have worked without a failure or loss.
    works_since: Option<Instant>,
    /// What the next connection to it is begun with.
    pub resumption: Resumption,
    /// Whether an established connection to it takes flows and answers.
    healthy: bool,
    /// Whether the last attempt to reach it failed.
    down: bool,
    /// Its health probes had no answer in time, and no connection has been established since then.
    pub is_stuck: bool,
    /// Round-trip time of the newest connection when it was established.
    rtt: Option<Duration>,
    /// When the last known packet came on one of its established connections.
    heard: Option<Instant>,
    full_until: Option<Instant>,
    /// In the order in which they are tried (RFC 8305 §4).
    addresses: Vec<SocketAddr>,
    /// Until when they are valid; `None` after a failure.
    valid_until: Option<Instant>,
    /// The name query in progress.
    question: Option<Question>,
    /// The address that connections use until one fails.
    working: Option<SocketAddr>,
    /// The address that worked last, which is tried first.
    worked_last: Option<SocketAddr>,
    /// Attempts of each connection group since a connection worked. They cycle through the addresses.
    attempts: HashMap<Option<usize>, usize>,
    /// Its metrics.
    pub metrics: ServerMetrics,
}

impl Server {
    /// A server that no connection has been attempted to.
    pub fn new(config: TunnelServer, tunnel: &ClientTunnel, metrics: ServerMetrics) -> Self {
        let literal = match config.address {
            HostPort { host: Host::Ip(ip), port } => vec![SocketAddr::new(ip, port)],
            HostPort { host: Host::Name(_), .. } => Vec::new(),
        };
        Self {
            config,
            backoff: Backoff::new(tunnel.reconnect_min, tunnel.reconnect_max),
            works_since: None,
            resumption: Resumption::default(),
            healthy: false,
            down: false,
            is_stuck: false,
            rtt: None,
            heard: None,
            full_until: None,
            addresses: literal,
            valid_until: None,
            question: None,
            working: None,
            worked_last: None,
            attempts: HashMap::new(),
            metrics,
        }
    }

    /// Whether an established connection to it takes flows and answers.
    pub fn is_healthy(&self) -> bool {
        self.healthy
    }

    /// Whether the last attempt to reach it failed.
    pub fn is_down(&self) -> bool {
        self.down
    }

    /// A packet came on one of its established connections.
    pub fn on_heard(&mut self, at: Instant) {
        self.heard = self.heard.max(Some(at));
    }

    /// Whether a packet came within `timeout`. If so, an unanswered attempt does not mean that the server is down: it
    /// may limit the rate of handshakes.
    pub fn is_heard(&self, now: Instant, timeout: Duration) -> bool {
        self.heard.is_some_and(|at| now.saturating_duration_since(at) < timeout)
    }

    /// Whether it has refused a flow because it is full.
    pub fn is_full(&self, now: Instant) -> bool {
        self.full_until.is_some_and(|until| until > now)
    }

    /// Whether it can take new flows.
    pub fn is_usable(&self, now: Instant) -> bool {
        self.healthy && !self.is_full(now)
    }

    /// It has refused a flow because it is full.
    pub fn on_full(&mut self, now: Instant) {
        if !self.is_full(now) {
            tracing::warn!(server = %self.config, "server full");
        }
        self.full_until = Some(now + FULL_FOR);
        self.metrics.full.inc();
    }

    /// When it may take flows again.
    pub fn full_until(&self) -> Option<Instant> {
        self.full_until
    }

    /// Sets whether an established connection to it takes flows and answers.
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
        tracing::info!(server = %self.config, healthy, "tunnel server health changed");
    }

    /// An attempt to reach it failed.
    pub fn failed(&mut self, attempt: Instant) {
        if !self.down {
            tracing::warn!(server = %self.config, "server unreachable or refusing connections");
        }
        self.down = true;
        self.lost(attempt);
    }

    /// An established connection to it was lost.
    pub fn lost(&mut self, now: Instant) {
        self.valid_until = None;
        self.working = None;
        self.metrics.failures.inc();
        if let Some(since) = self.works_since.take() {
            self.backoff.lasted(now.saturating_duration_since(since));
        }
        self.backoff.failed(now, random_fraction());
    }

    /// The last known round-trip time.
    pub fn rtt(&self) -> Option<Duration> {
        self.rtt
    }

    /// How long it may leave a packet unanswered: `least`, and at least some round trips.
    pub fn answer_timeout(&self, least: Duration) -> Duration {
        least.max(ANSWER_TIMEOUT_ROUND_TRIPS * self.rtt.unwrap_or_default())
    }

    /// A connection to one of its addresses works, with a round trip of `rtt`.
    pub fn connected(&mut self, now: Instant, address: SocketAddr, rtt: Option<Duration>) {
        self.working = Some(address);
        self.worked_last = Some(address);
        self.attempts.clear();
        self.put_working_first();
        self.rtt = rtt.or(self.rtt);
        self.is_stuck = false;
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

    /// Resolves its name where it has no addresses, after a failure, and when they have expired. The
    /// answer wakes `worker` and carries the key `index`. Returns whether an address is known already.
    pub fn resolve(
        &mut self,
        index: usize,
        resolver: &Resolver,
        (answer, worker): (&Sender<Resolved>, &WorkerHandle),
        now: Instant,
    ) -> bool {
        let is_due = self.question.is_none() && self.valid_until.is_none_or(|until| until <= now);
        if let HostPort { host: Host::Name(name), port } = &self.config.address
            && is_due
        {
            // A cached answer may be the reason for a failure.
            let uncached = self.valid_until.is_none();
            let name = Name { host: name, port: *port, uncached };
            let asked = resolver.ask(Asker::default(), name, index as u64, answer, worker);
            match asked {
                Ok(question) => self.question = Some(question),
                Err(error) => self.on_resolved(now, Err(error)),
            }
        }
        !self.addresses.is_empty()
    }

    /// The answer to [`Server::resolve`]. A failed query leaves the addresses as they are.
    pub fn on_resolved(&mut self, now: Instant, result: Result<Addresses, ResolveError>) {
        self.question = None;
        match result {
            Ok(resolved) => {
                let addresses: Vec<_> = interleave(&resolved.addresses).into();
                // Name servers change the order from answer to answer.
                let is_new = |address: &SocketAddr| !self.addresses.contains(address);
                if addresses.len() != self.addresses.len() || addresses.iter().any(is_new) {
                    tracing::info!(server = %self.config, ?addresses, "server's name resolved");
                    self.addresses = addresses;
                    self.attempts.clear();
                    self.put_working_first();
                }
                self.valid_until = Some(resolved.valid_until.max(now + LEAST_TTL));
            }
            Err(error) => {
                tracing::warn!(server = %self.config, %error, "server's name not resolved");
                self.valid_until = Some(now + LEAST_TTL);
                if self.addresses.is_empty() {
                    self.failed(now);
                }
            }
        }
    }

    /// How many addresses it has.
    pub fn address_count(&self) -> usize {
        self.addresses.len()
    }

    /// The address for the next attempt of a connection group: the working one, else the next of the list.
    pub fn next_address(&mut self, group: Option<usize>) -> Option<SocketAddr> {
        if self.working.is_some() {
            return self.working;
        }
        let attempts = self.attempts.entry(group).or_default();
        let address = self.addresses.get(attempts.checked_rem(self.addresses.len())?).copied();
        *attempts += 1;
        address
    }

    /// Whether there are addresses that the connection group has not tried since all of them failed last.
    pub fn has_untried(&self, group: Option<usize>) -> bool {
        let attempts = self.attempts.get(&group).copied().unwrap_or(0);
        self.working.is_none()
            && attempts.checked_rem(self.addresses.len()).is_some_and(|it| it > 0)
    }

    /// Whether connections to another address work, so that a failure of this one does not mean that the
    /// server is down.
    pub fn works_elsewhere(&self, address: SocketAddr) -> bool {
        self.working.is_some_and(|working| working != address)
    }

    /// Whether early data may go to an address before it has answered: not to one of several
    /// addresses, which may be unreachable.
    pub fn takes_early_data(&self, address: SocketAddr) -> bool {
        self.addresses.len() < 2 || self.worked_last == Some(address)
    }

    fn put_working_first(&mut self) {
        if let Some(place) = self.addresses.iter().position(|it| Some(*it) == self.worked_last) {
            self.addresses[..=place].rotate_right(1);
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

#[cfg(test)]
mod tests {
    use millrace_tunnel::metrics::Metrics;

    use super::*;

    const GROUP: Option<usize> = Some(0);

    fn server() -> Server {
        let text = "[tunnel]\nservers = [\"edge.example:4433\"]\nserver_name = \"edge\"\n\
                    ca = \"ca\"\ncertificate = \"c\"\nprivate_key = \"k\"\n\
                    [[listen]]\nmode = \"socks5\"\naddress = \"127.0.0.1:1\"\n";
        let file = std::path::Path::new("/client.toml");
        let config =
            millrace_config::parse_client(text, file, &millrace_tunnel::algorithms::check).unwrap();
        let metrics = Metrics::new("test", "0").unwrap();
        let metrics = metrics.servers(&["edge".to_owned()]).unwrap().remove(0);
        Server::new(config.tunnel.servers[0].clone(), &config.tunnel, metrics)
    }

    fn resolved(addresses: &[&str], now: Instant) -> Result<Addresses, ResolveError> {
        let addresses = addresses.iter().map(|it| it.parse().unwrap()).collect();
        Ok(Addresses { addresses, valid_until: now + Duration::from_secs(60) })
    }

    fn address(text: &str) -> Option<SocketAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn attempts_go_to_one_address_after_the_other_until_one_works() {
        let (mut server, now) = (server(), Instant::now());
        assert_eq!(server.next_address(GROUP), None, "not resolved yet");
        assert!(!server.has_untried(GROUP));
        server.on_resolved(now, resolved(&["[::1]:1", "[::2]:1", "127.0.0.1:1"], now));
        assert!(!server.has_untried(GROUP), "no attempt has been made");
        let [first, second, third] = ["[::1]:1", "127.0.0.1:1", "[::2]:1"].map(address);
        assert_eq!(server.next_address(GROUP), first);
        assert!(server.has_untried(GROUP) && !server.takes_early_data(first.unwrap()));
        assert_eq!(
            server.next_address(Some(1)),
            first,
            "each connection group begins with the first"
        );
        assert_eq!(server.next_address(GROUP), second);
        assert_eq!(server.next_address(GROUP), third);
        assert!(!server.has_untried(GROUP), "all have been tried");
        assert_eq!(server.next_address(GROUP), first);
        server.connected(now, second.unwrap(), None);
        assert_eq!([server.next_address(GROUP), server.next_address(GROUP)], [second, second]);
        assert!(!server.has_untried(GROUP) && server.takes_early_data(second.unwrap()));
        assert!(server.works_elsewhere(first.unwrap()) && !server.works_elsewhere(second.unwrap()));
        server.lost(now);
        assert_eq!(server.next_address(GROUP), second, "what worked last is tried first");
        assert_eq!(server.next_address(GROUP), first);
        assert!(server.has_untried(GROUP));
    }

    #[test]
    fn the_addresses_of_before_are_kept_when_the_name_servers_fail() {
        let (mut server, now) = (server(), Instant::now());
        server.on_resolved(now, Err(ResolveError::NotFound));
        assert!(server.is_down(), "there is no address");
        server.on_resolved(now, resolved(&["127.0.0.1:1"], now));
        assert!(server.valid_until > Some(now + LEAST_TTL));
        server.failed(now);
        assert_eq!(server.valid_until, None, "it is asked again after a failure");
        server.on_resolved(now, Err(ResolveError::NotFound));
        assert_eq!(server.next_address(GROUP), address("127.0.0.1:1"));
        server.on_resolved(now, resolved(&["127.0.0.2:1"], now));
        assert_eq!(server.next_address(GROUP), address("127.0.0.2:1"));
    }
}
