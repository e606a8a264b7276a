//! The addresses of a server, in the order in which connections try them (Happy Eyeballs, RFC 8305).

use std::collections::HashMap;
use std::fmt::Display;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use millrace_config::{Host, HostPort};
use millrace_tunnel::dial::interleave;
use millrace_tunnel::resolve::{Name, Question, ResolveError, ResolvedAddresses};

/// Least time between two name queries for a server that works.
const MIN_TTL: Duration = Duration::from_secs(1);

/// The addresses of one server, and which of them have worked.
#[derive(Default)]
pub(crate) struct ServerAddresses {
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
}

impl ServerAddresses {
    /// The address of a configured server; none where it has a name, which has to be resolved.
    pub(crate) fn new(server: &HostPort) -> Self {
        let addresses = match server {
            HostPort { host: Host::Ip(ip), port } => vec![SocketAddr::new(*ip, *port)],
            HostPort { host: Host::Name(_), .. } => Vec::new(),
        };
        Self { addresses, ..Self::default() }
    }

    /// Calls `ask` for the name of `server` where it has no addresses, after a failure, and when they have expired.
    ///
    /// # Errors
    /// That of `ask`.
    pub(crate) fn query(
        &mut self,
        server: &HostPort,
        now: Instant,
        ask: impl FnOnce(Name<'_>) -> Result<Question, ResolveError>,
    ) -> Result<(), ResolveError> {
        let is_due = self.question.is_none() && self.valid_until.is_none_or(|until| until <= now);
        if let HostPort { host: Host::Name(name), port } = server
            && is_due
        {
            // A cached answer may be the reason for a failure.
            let uncached = self.valid_until.is_none();
            self.question = Some(ask(Name { host: name, port: *port, uncached })?);
        }
        Ok(())
    }

    /// The result of a query. A failed one leaves the addresses as they are. `server` is for the log.
    pub(crate) fn on_resolved(
        &mut self,
        server: &impl Display,
        now: Instant,
        result: Result<ResolvedAddresses, ResolveError>,
    ) {
        self.question = None;
        match result {
            Ok(resolved) => {
                let addresses: Vec<_> = interleave(&resolved.addresses).into();
                // Name servers change the order from answer to answer.
                let is_new = |address: &SocketAddr| !self.addresses.contains(address);
                if addresses.len() != self.addresses.len() || addresses.iter().any(is_new) {
                    tracing::info!(%server, ?addresses, "server's name resolved");
                    self.addresses = addresses;
                    self.attempts.clear();
                    self.put_working_first();
                }
                self.valid_until = Some(resolved.valid_until.max(now + MIN_TTL));
            }
            Err(error) => {
                tracing::warn!(%server, %error, "server's name not resolved");
                self.valid_until = Some(now + MIN_TTL);
            }
        }
    }

    /// A connection to one of them works.
    pub(crate) fn on_connected(&mut self, address: SocketAddr) {
        self.working = Some(address);
        self.worked_last = Some(address);
        self.attempts.clear();
        self.put_working_first();
    }

    /// A connection or an attempt has failed: all addresses are tried again, and the name is asked for.
    pub(crate) fn on_failure(&mut self) {
        self.valid_until = None;
        self.working = None;
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.addresses.len()
    }

    /// The address for the next attempt of a connection group: the working one, else the next of the list.
    pub(crate) fn next_to_try(&mut self, group: Option<usize>) -> Option<SocketAddr> {
        if self.working.is_some() {
            return self.working;
        }
        let attempts = self.attempts.entry(group).or_default();
        let address = self.addresses.get(attempts.checked_rem(self.addresses.len())?).copied();
        *attempts += 1;
        address
    }

    /// Whether there are addresses that the connection group has not tried since all of them failed last.
    pub(crate) fn has_untried(&self, group: Option<usize>) -> bool {
        let attempts = self.attempts.get(&group).copied().unwrap_or(0);
        self.working.is_none()
            && attempts.checked_rem(self.addresses.len()).is_some_and(|it| it > 0)
    }

    /// Whether connections to another address work, so that a failure of this one does not mean that the
    /// server is down.
    pub(crate) fn works_elsewhere(&self, address: SocketAddr) -> bool {
        self.working.is_some_and(|working| working != address)
    }

    /// Whether early data may go to an address before it has answered: not to one of several
    /// addresses, which may be unreachable.
    pub(crate) fn takes_early_data(&self, address: SocketAddr) -> bool {
        self.addresses.len() < 2 || self.worked_last == Some(address)
    }

    fn put_working_first(&mut self) {
        if let Some(place) = self.addresses.iter().position(|it| Some(*it) == self.worked_last) {
            self.addresses[..=place].rotate_right(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: Option<usize> = Some(0);

    fn named() -> ServerAddresses {
        ServerAddresses::new(&HostPort { host: Host::Name("edge.example".to_owned()), port: 1 })
    }

    fn resolved(addresses: &[&str], now: Instant) -> Result<ResolvedAddresses, ResolveError> {
        let addresses = addresses.iter().map(|it| it.parse().unwrap()).collect();
        Ok(ResolvedAddresses { addresses, valid_until: now + Duration::from_secs(60) })
    }

    fn address(text: &str) -> Option<SocketAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn attempts_go_to_one_address_after_the_other_until_one_works() {
        let (mut addresses, now) = (named(), Instant::now());
        assert_eq!(addresses.next_to_try(GROUP), None, "not resolved yet");
        assert!(!addresses.has_untried(GROUP));
        let answer = resolved(&["[::1]:1", "[::2]:1", "127.0.0.1:1"], now);
        addresses.on_resolved(&"edge", now, answer);
        assert!(!addresses.has_untried(GROUP), "no attempt has been made");
        let [first, second, third] = ["[::1]:1", "127.0.0.1:1", "[::2]:1"].map(address);
        assert_eq!(addresses.next_to_try(GROUP), first);
        assert!(addresses.has_untried(GROUP) && !addresses.takes_early_data(first.unwrap()));
        assert_eq!(
            addresses.next_to_try(Some(1)),
            first,
            "each connection group begins with the first"
        );
        assert_eq!(addresses.next_to_try(GROUP), second);
        assert_eq!(addresses.next_to_try(GROUP), third);
        assert!(!addresses.has_untried(GROUP), "all have been tried");
        assert_eq!(addresses.next_to_try(GROUP), first);
        addresses.on_connected(second.unwrap());
        assert_eq!([addresses.next_to_try(GROUP), addresses.next_to_try(GROUP)], [second, second]);
        assert!(!addresses.has_untried(GROUP) && addresses.takes_early_data(second.unwrap()));
        assert!(addresses.works_elsewhere(first.unwrap()));
        assert!(!addresses.works_elsewhere(second.unwrap()));
        addresses.on_failure();
        assert_eq!(addresses.next_to_try(GROUP), second, "what worked last is tried first");
        assert_eq!(addresses.next_to_try(GROUP), first);
        assert!(addresses.has_untried(GROUP));
    }

    #[test]
    fn name_is_asked_for_after_a_failure_and_when_its_addresses_have_expired() {
        let (mut addresses, now) = (named(), Instant::now());
        let server = HostPort { host: Host::Name("edge.example".to_owned()), port: 1 };
        let asks = |addresses: &mut ServerAddresses, now| {
            let mut asked = None;
            // The error stands for a question: one cannot be made without a resolver.
            let _ = addresses.query(&server, now, |name| {
                asked = Some(name.uncached);
                Err(ResolveError::NotFound)
            });
            asked
        };
        assert_eq!(asks(&mut addresses, now), Some(true));
        addresses.on_resolved(&"edge", now, resolved(&["127.0.0.1:1"], now));
        assert_eq!(asks(&mut addresses, now), None);
        assert_eq!(asks(&mut addresses, now + Duration::from_secs(60)), Some(false));
        addresses.on_failure();
        assert_eq!(asks(&mut addresses, now), Some(true), "the cached answer may be wrong");
        addresses.on_resolved(&"edge", now, Err(ResolveError::NotFound));
        assert_eq!(asks(&mut addresses, now), None);
        assert_eq!(asks(&mut addresses, now + MIN_TTL), Some(false));
        assert_eq!(addresses.next_to_try(GROUP), address("127.0.0.1:1"), "they are kept");
    }
}
