//! A server of the tunnel, as one worker knows it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use millrace_config::{ClientTunnel, HostPort, TunnelServer};
use millrace_tunnel::metrics::ServerMetrics;
use millrace_tunnel::resolve::{Name, ResolveError, ResolvedAddresses};
use millrace_tunnel::resumption::Resumption;

use super::backoff::Backoff;
use super::connection_liveness::MIN_ANSWER_TIMEOUT_ROUND_TRIPS;
use super::server_addresses::ServerAddresses;
use super::server_names::ServerNames;

/// How long a full server gets no new flows. The next flow after that tries it again.
const FULL_HOLD_DOWN: Duration = Duration::from_secs(1);

/// A server of the configuration, with its health, addresses and back-off.
pub struct Server {
    /// Its address, name and priority.
    pub(crate) config: TunnelServer,
    /// Where connections to it go.
    pub(crate) addresses: ServerAddresses,
    /// What the next connection to it is begun with.
    pub(crate) resumption: Resumption,
    /// Its health probes had no answer in time, and no connection has been established since then.
    pub(crate) is_stuck: bool,
    /// Its metrics.
    pub(crate) metrics: ServerMetrics,
    /// Pauses between attempts to connect.
    backoff: Backoff,
    /// Since when connections to it have worked without a failure or loss.
    works_since: Option<Instant>,
    /// Whether an established connection to it takes flows and answers.
    healthy: bool,
    /// Whether the last attempt to reach it failed.
    down: bool,
    /// Round-trip time of the newest connection when it was established.
    rtt: Option<Duration>,
    /// When the last known packet came on one of its established connections.
    last_received: Option<Instant>,
    /// Until when it gets no new flows, because it has refused one.
    full_until: Option<Instant>,
}

impl Server {
    /// A server that no connection has been attempted to.
    pub fn new(config: TunnelServer, tunnel: &ClientTunnel, metrics: ServerMetrics) -> Self {
        Self {
            addresses: ServerAddresses::new(&config.address),
            config,
            resumption: Resumption::default(),
            is_stuck: false,
            metrics,
            backoff: Backoff::new(tunnel.reconnect_min, tunnel.reconnect_max),
            works_since: None,
            healthy: false,
            down: false,
            rtt: None,
            last_received: None,
            full_until: None,
        }
    }

    /// What it is called as an authority: its name, and its port.
    pub(crate) fn authority(&self) -> String {
        let (host, port) = (self.config.name.clone(), self.config.address.port);
        HostPort { host, port }.to_string()
    }

    /// Whether an established connection to it takes flows and answers.
    pub(crate) fn is_healthy(&self) -> bool {
        self.healthy
    }

    /// Whether the last attempt to reach it failed.
    pub(crate) fn is_down(&self) -> bool {
        self.down
    }

    /// A packet came on one of its established connections.
    pub(crate) fn on_packet(&mut self, at: Instant) {
        self.last_received = self.last_received.max(Some(at));
    }

    /// Whether a packet came within `timeout`. If so, an unanswered attempt does not mean that the server is down: it
    /// may limit the rate of handshakes.
    pub(crate) fn has_received(&self, now: Instant, timeout: Duration) -> bool {
        self.last_received.is_some_and(|at| now.saturating_duration_since(at) < timeout)
    }

    /// Whether it has refused a flow because it is full.
    pub(crate) fn is_full(&self, now: Instant) -> bool {
        self.full_until.is_some_and(|until| until > now)
    }

    /// Whether it can take new flows.
    pub(crate) fn is_usable(&self, now: Instant) -> bool {
        self.healthy && !self.is_full(now)
    }

    /// It has refused a flow because it is full.
    pub(crate) fn on_full(&mut self, now: Instant) {
        if !self.is_full(now) {
            tracing::warn!(server = %self.config, "server full");
        }
        self.full_until = Some(now + FULL_HOLD_DOWN);
        self.metrics.full.inc();
    }

    /// When it may take flows again.
    pub(crate) fn full_until(&self) -> Option<Instant> {
        self.full_until
    }

    /// Sets whether an established connection to it takes flows and answers.
    pub(crate) fn set_healthy(&mut self, healthy: bool) {
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

    /// Its health probes had no answer in time.
    pub(crate) fn on_stuck(&mut self) {
        self.is_stuck = true;
        self.metrics.probe_failures.inc();
        tracing::warn!(
            server = %self.config,
            "server is reachable, but full-size packets do not get through"
        );
    }

    /// An attempt to reach it failed.
    pub(crate) fn failed(&mut self, attempt: Instant) {
        if !self.down {
            tracing::warn!(server = %self.config, "server unreachable or refusing connections");
        }
        self.down = true;
        self.lost(attempt);
    }

    /// An established connection to it was lost.
    pub(crate) fn lost(&mut self, now: Instant) {
        self.addresses.on_failure();
        self.metrics.failures.inc();
        if let Some(since) = self.works_since.take() {
            self.backoff.lasted(now.saturating_duration_since(since));
        }
        self.backoff.failed(now, random_fraction());
    }

    /// A connection to one of its addresses works, with a round trip of `rtt`.
    pub(crate) fn connected(&mut self, now: Instant, address: SocketAddr, rtt: Option<Duration>) {
        self.addresses.on_connected(address);
        self.rtt = rtt.or(self.rtt);
        self.is_stuck = false;
        self.metrics.connections.inc();
        self.works_since.get_or_insert(now);
        self.backoff.retry_now();
    }

    /// The last known round-trip time.
    pub(crate) fn rtt(&self) -> Option<Duration> {
        self.rtt
    }

    /// How long it may leave a packet unanswered: `least`, and at least some round trips.
    pub(crate) fn answer_timeout(&self, least: Duration) -> Duration {
        least.max(MIN_ANSWER_TIMEOUT_ROUND_TRIPS * self.rtt.unwrap_or_default())
    }

    /// Whether the next attempt to connect may be made.
    pub(crate) fn may_be_tried(&self, now: Instant) -> bool {
        self.backoff.ready(now)
    }

    /// The next attempt to connect may be made at once.
    pub(crate) fn try_now(&mut self) {
        self.backoff.retry_now();
    }

    /// When the next attempt to connect may be made, if that is not now.
    pub(crate) fn next_attempt(&self) -> Option<Instant> {
        self.backoff.next()
    }

    /// Asks for its name when that is due. `number` is its own. Returns whether an address is known already.
    pub(crate) fn resolve(&mut self, number: usize, names: &ServerNames, now: Instant) -> bool {
        let ask = |name: Name<'_>| names.ask(number, name);
        if let Err(error) = self.addresses.query(&self.config.address, now, ask) {
            self.on_resolved(now, Err(error));
        }
        self.addresses.count() > 0
    }

    /// The answer to [`Server::resolve`].
    pub(crate) fn on_resolved(
        &mut self,
        now: Instant,
        result: Result<ResolvedAddresses, ResolveError>,
    ) {
        let has_failed = result.is_err();
        self.addresses.on_resolved(&self.config, now, result);
        if has_failed && self.addresses.count() == 0 {
            self.failed(now);
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

    fn resolved(address: &str, now: Instant) -> Result<ResolvedAddresses, ResolveError> {
        let addresses = vec![address.parse().unwrap()];
        Ok(ResolvedAddresses { addresses, valid_until: now + Duration::from_secs(60) })
    }

    fn address(text: &str) -> Option<SocketAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn the_addresses_of_before_are_kept_when_the_name_servers_fail() {
        let (mut server, now) = (server(), Instant::now());
        server.on_resolved(now, Err(ResolveError::NotFound));
        assert!(server.is_down(), "there is no address");
        server.on_resolved(now, resolved("127.0.0.1:1", now));
        server.failed(now);
        server.on_resolved(now, Err(ResolveError::NotFound));
        assert_eq!(server.addresses.next_to_try(GROUP), address("127.0.0.1:1"));
        server.on_resolved(now, resolved("127.0.0.2:1", now));
        assert_eq!(server.addresses.next_to_try(GROUP), address("127.0.0.2:1"));
    }

    #[test]
    fn a_server_that_has_refused_a_flow_is_not_usable_for_a_while() {
        let (mut server, now) = (server(), Instant::now());
        server.set_healthy(true);
        assert!(server.is_usable(now));
        server.on_full(now);
        assert!(server.is_healthy() && !server.is_usable(now));
        assert!(server.is_usable(now + FULL_HOLD_DOWN));
    }
}
