//! Lookup of one name: the first name server is asked first, the next ones when it is slow.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hickory_resolver::config::{
    LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::lookup_ip::LookupIp;
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::RecordType;
use hickory_resolver::{Resolver, TokioResolver};
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use super::question::ResolveError;

/// Names that are asked for at a time. Each takes a socket for each family and name server.
pub(super) const MAX_NAMES_UNDER_WAY: usize = 256;

/// Head start of each name server over the next one: longer than most recursive look-ups take, so
/// that a server further down the list is asked only where the one before it is of no use.
const SERVER_DELAY: Duration = Duration::from_secs(1);
/// How long a server that let another one answer first is asked after the others.
const SLOW_HOLD_DOWN: Duration = Duration::from_secs(30);
/// Answers that are kept of each name server.
const MAX_CACHED_ANSWERS: u64 = 4096;
/// Longest time that an answer is kept, whatever its TTL says.
const MAX_TTL: Duration = Duration::from_secs(3600);
/// Longest time that a negative answer (no such name) is kept: the name may be added at any moment.
const MAX_NEGATIVE_TTL: Duration = Duration::from_secs(30);
/// How long one name server has for one question, with the packets that are sent again.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);

/// The name servers, each with what is cached of it.
pub(super) struct NameServers {
    servers: Vec<NameServer>,
}

struct NameServer {
    ip: IpAddr,
    resolver: TokioResolver,
    slow_until: Mutex<Option<Instant>>,
}

impl NameServers {
    pub(super) fn none() -> Self {
        Self { servers: Vec::new() }
    }

    /// Those of a configuration, in its order. Each is asked on its own: the order means something,
    /// because a later one may know less (resolv.conf(5)).
    pub(super) fn new(config: &ResolverConfig, options: &ResolverOpts) -> Self {
        let server = |server: &NameServerConfig| {
            let mut config = config.clone();
            config.name_servers = vec![server.clone()];
            let provider = TokioRuntimeProvider::default();
            let mut builder = Resolver::builder_with_config(config, provider);
            *builder.options_mut() = of_ours(options);
            let resolver = builder.build().inspect_err(|error| {
                tracing::warn!(name_server = %server.ip, %error, "failed to use a name server");
            });
            Some(NameServer {
                ip: server.ip,
                resolver: resolver.ok()?,
                slow_until: Mutex::new(None),
            })
        };
        Self { servers: config.name_servers.iter().filter_map(server).collect() }
    }

    /// Drops what is cached of a name.
    pub(super) fn forget(&self, name: &str) {
        for server in &self.servers {
            for record_type in [RecordType::A, RecordType::AAAA] {
                server.resolver.clear_lookup_cache(name, record_type);
            }
        }
    }

    /// Asks one server after the other, each with a head start, until one of them answers. A
    /// negative answer (no such name) ends the lookup too.
    pub(super) async fn lookup(self: Arc<Self>, name: String) -> Result<LookupIp, ResolveError> {
        let mut waiting = self.in_order(Instant::now()).into_iter();
        let mut next_start = tokio::time::Instant::now();
        let mut attempts = JoinSet::new();
        let mut under_way: Vec<(usize, Instant)> = Vec::new();
        let mut failure = "no name server is configured".to_owned();
        loop {
            if attempts.is_empty() || next_start <= tokio::time::Instant::now() {
                match waiting.next() {
                    Some(index) => {
                        let (resolver, name) = (self.servers[index].resolver.clone(), name.clone());
                        under_way.push((index, Instant::now()));
                        attempts.spawn(async move { (index, resolver.lookup_ip(name).await) });
                        next_start = tokio::time::Instant::now() + SERVER_DELAY;
                    }
                    None if attempts.is_empty() => return Err(ResolveError::NoAnswer(failure)),
                    None => next_start += Duration::from_secs(3600),
                }
            }
            let (index, result) = tokio::select! {
                Some(ended) = attempts.join_next() => match ended {
                    Ok(ended) => ended,
                    Err(error) => {
                        failure = error.to_string();
                        continue;
                    }
                },
                () = sleep_until(next_start) => continue,
            };
            under_way.retain(|(other, _)| *other != index);
            match result {
                Ok(found) => {
                    self.answered_by(index, &under_way);
                    return match found.iter().next() {
                        Some(_) => Ok(found),
                        None => Err(ResolveError::NotFound),
                    };
                }
                Err(error) if error.is_no_records_found() => {
                    self.answered_by(index, &under_way);
                    return Err(ResolveError::NotFound);
                }
                Err(error) => {
                    let server = &self.servers[index];
                    tracing::debug!(name, name_server = %server.ip, %error, "no answer");
                    if matches!(error, NetError::Timeout) {
                        server.set_slow(Some(Instant::now() + SLOW_HOLD_DOWN));
                    }
                    failure = format!("{}: {error}", server.ip);
                    next_start = tokio::time::Instant::now();
                }
            }
        }
    }

    /// The numbers of the servers: those that were slow lately come last.
    fn in_order(&self, now: Instant) -> Vec<usize> {
        let mut order: Vec<_> = (0..self.servers.len()).collect();
        order.sort_by_key(|index| self.servers[*index].is_slow(now));
        order
    }

    /// A server has answered before `others` that were asked earlier.
    fn answered_by(&self, index: usize, others: &[(usize, Instant)]) {
        self.servers[index].set_slow(None);
        let now = Instant::now();
        for (other, asked) in others {
            if now.saturating_duration_since(*asked) >= SERVER_DELAY {
                self.servers[*other].set_slow(Some(now + SLOW_HOLD_DOWN));
            }
        }
    }
}

impl NameServer {
    fn is_slow(&self, now: Instant) -> bool {
        let slow_until = self.slow_until.lock().unwrap_or_else(PoisonError::into_inner);
        slow_until.is_some_and(|until| until > now)
    }

    fn set_slow(&self, until: Option<Instant>) {
        *self.slow_until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }
}

/// The options of the system's file, and what is not in it.
fn of_ours(options: &ResolverOpts) -> ResolverOpts {
    let mut ours = options.clone();
    ours.timeout = ATTEMPT_TIMEOUT;
    ours.attempts = 1;
    ours.ip_strategy = LookupIpStrategy::Ipv6AndIpv4;
    // The hosts file is asked before, for whole names.
    ours.use_hosts_file = ResolveHosts::Never;
    ours.cache_size = MAX_CACHED_ANSWERS;
    ours.positive_max_ttl = Some(MAX_TTL);
    ours.negative_max_ttl = Some(MAX_NEGATIVE_TTL);
    // Both families of all names at a time.
    ours.max_active_requests = 2 * MAX_NAMES_UNDER_WAY;
    ours
}
