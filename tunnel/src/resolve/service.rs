//! The resolver's thread: schedules lookups and merges equal questions.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use millrace_config::ResolverSettings;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::timeout;

use super::fair_queue::FairQueue;
use super::lookup::MAX_NAMES_UNDER_WAY;
use super::question::{AnswerTo, Asker, ResolveError, ResolvedAddresses};
use super::system::System;
use super::{legacy, order};

/// Names of one tunnel client that are looked up at a time.
const MAX_UNDER_WAY_PER_CLIENT: usize = 192;
/// Names of one viewer that are looked up at a time.
const MAX_UNDER_WAY_PER_VIEWER: usize = 64;
/// Questions of one viewer that wait for their turn; more are refused.
const MAX_WAITING_PER_VIEWER: usize = 256;
/// Questions of one client without an answer, whatever they wait for; more are refused.
const MAX_OUTSTANDING_PER_CLIENT: usize = 2048;
/// How long a failure is cached (RFC 9520 §3.2: at least 1 s).
const FAILURE_TTL: Duration = Duration::from_secs(1);
/// Failures that are remembered.
const MAX_FAILURES: usize = 1024;
/// How long an address of the hosts file is good for: as often as the file is looked at.
const HOSTS_TTL: Duration = Duration::from_secs(1);

/// What the thread is asked to do.
#[derive(Debug)]
pub(super) enum ServiceRequest {
    Ask { number: u64, asker: Asker, name: String, port: u16, uncached: bool, to: AnswerTo },
    Cancel(u64),
    Configure(ResolverSettings),
}

/// A question without an answer.
struct PendingQuestion {
    asker: Asker,
    name: String,
    port: u16,
    to: AnswerTo,
}

/// A name that the name servers are asked for.
struct UnderWay {
    task: AbortHandle,
    /// The share that it counts in: that of the first question.
    asker: Asker,
    /// The questions that it answers.
    numbers: Vec<u64>,
}

/// The outcome of a lookup.
type Ended = Result<(Vec<SocketAddr>, Instant), ResolveError>;

/// The state of the resolver's thread.
pub(super) struct Service {
    settings: ResolverSettings,
    system: System,
    pending: HashMap<u64, PendingQuestion>,
    outstanding: Arc<AtomicUsize>,
    outstanding_of: HashMap<Arc<str>, usize>,
    waiting: FairQueue<Asker>,
    under_way: HashMap<String, UnderWay>,
    under_way_of: NamesUnderWay,
    failures: HashMap<String, (Instant, ResolveError)>,
    tasks: JoinSet<(String, Ended)>,
}

impl Service {
    pub(super) fn new(settings: ResolverSettings, outstanding: Arc<AtomicUsize>) -> Self {
        Self {
            system: System::new(&settings),
            settings,
            pending: HashMap::new(),
            outstanding,
            outstanding_of: HashMap::new(),
            waiting: FairQueue::new(),
            under_way: HashMap::new(),
            under_way_of: NamesUnderWay::default(),
            failures: HashMap::new(),
            tasks: JoinSet::new(),
        }
    }

    /// Serves until every [`super::Resolver`] is dropped.
    pub(super) async fn run(mut self, mut requests: UnboundedReceiver<ServiceRequest>) {
        loop {
            tokio::select! {
                request = requests.recv() => match request {
                    Some(ServiceRequest::Ask { number, asker, name, port, uncached, to }) => {
                        if uncached {
                            self.system.name_servers().forget(&name);
                        }
                        self.ask(number, PendingQuestion { asker, name, port, to });
                    }
                    Some(ServiceRequest::Cancel(number)) => self.cancel(number),
                    Some(ServiceRequest::Configure(settings)) => self.configure(settings),
                    None => return,
                },
                Some(ended) = self.tasks.join_next_with_id() => self.on_ended(ended),
            }
            self.start_waiting();
        }
    }

    fn configure(&mut self, settings: ResolverSettings) {
        if settings != self.settings {
            self.system.read(&settings);
            self.settings = settings;
        }
    }

    fn ask(&mut self, number: u64, question: PendingQuestion) {
        let now = Instant::now();
        self.system.refresh(&self.settings, now);
        let name = question.name.clone();
        let asker = question.asker.clone();
        if !self.admit(number, question) {
            return;
        }
        if let Some(answer) = self.known(&name, now) {
            return self.answer(number, &answer);
        }
        if let Some(under_way) = self.under_way.get_mut(&name) {
            under_way.numbers.push(number);
        } else if self.waiting.len_of(&asker) >= MAX_WAITING_PER_VIEWER {
            self.answer(number, &Err(ResolveError::ClientLimit));
        } else {
            self.waiting.push(asker, number);
        }
    }

    /// Takes a question in, unless its client has too many.
    fn admit(&mut self, number: u64, question: PendingQuestion) -> bool {
        if let Some(client) = &question.asker.client {
            let outstanding = self.outstanding_of.entry(client.clone()).or_default();
            *outstanding += 1;
            if *outstanding > MAX_OUTSTANDING_PER_CLIENT {
                self.pending.insert(number, question);
                self.answer(number, &Err(ResolveError::ClientLimit));
                return false;
            }
        }
        self.pending.insert(number, question);
        true
    }

    /// What is known of a name without any name server.
    fn known(&mut self, name: &str, now: Instant) -> Option<Ended> {
        if let Some(ip) = legacy::parse(name) {
            return Some(Ok((vec![SocketAddr::new(ip.into(), 0)], now + HOSTS_TTL)));
        }
        let listed = self.system.in_hosts(name);
        if !listed.is_empty() {
            let mut addresses: Vec<_> =
                listed.into_iter().map(|ip| SocketAddr::new(ip, 0)).collect();
            order::sort(&mut addresses);
            return Some(Ok((addresses, now + HOSTS_TTL)));
        }
        let (until, failure) = self.failures.get(name)?;
        (*until > now).then(|| Err(failure.clone()))
    }

    fn start_waiting(&mut self) {
        while self.under_way.len() < MAX_NAMES_UNDER_WAY {
            let shares = &self.under_way_of;
            let Some((asker, number)) = self.waiting.pop(|asker| shares.has_room(asker)) else {
                return;
            };
            let Some(question) = self.pending.get(&number) else { continue };
            let name = question.name.clone();
            match self.under_way.get_mut(&name) {
                Some(under_way) => under_way.numbers.push(number),
                None => self.start(name, asker, number),
            }
        }
    }

    fn start(&mut self, name: String, asker: Asker, number: u64) {
        let (name_servers, limit) = (self.system.name_servers(), self.settings.timeout);
        let asked = name.clone();
        let task = self.tasks.spawn(async move {
            let ended = match timeout(limit, name_servers.lookup(asked.clone())).await {
                Ok(Ok(found)) => {
                    let ips = found.iter();
                    let mut addresses: Vec<_> = ips.map(|ip| SocketAddr::new(ip, 0)).collect();
                    order::sort(&mut addresses);
                    Ok((addresses, found.valid_until()))
                }
                Ok(Err(error)) => Err(error),
                Err(_) => Err(ResolveError::NoAnswer(format!("timed out after {limit:?}"))),
            };
            (asked, ended)
        });
        self.under_way_of.take(&asker);
        self.under_way.insert(name, UnderWay { task, asker, numbers: vec![number] });
    }

    fn on_ended(&mut self, ended: Result<(Id, (String, Ended)), JoinError>) {
        let (id, result) = match ended {
            Ok((id, (_, result))) => (id, result),
            Err(error) => (error.id(), Err(ResolveError::NoAnswer(error.to_string()))),
        };
        // A task that was withdrawn is not there any more.
        let is_it = |(_, it): &(&String, &UnderWay)| it.task.id() == id;
        let Some(name) = self.under_way.iter().find(is_it).map(|(name, _)| name.clone()) else {
            return;
        };
        let Some(under_way) = self.under_way.remove(&name) else { return };
        self.under_way_of.give_back(&under_way.asker);
        if let Err(error @ ResolveError::NoAnswer(_)) = &result {
            tracing::debug!(name, %error, "name not resolved");
            self.remember_failure(name, error.clone());
        }
        for number in under_way.numbers {
            self.answer(number, &result);
        }
    }

    fn remember_failure(&mut self, name: String, failure: ResolveError) {
        let now = Instant::now();
        if self.failures.len() >= MAX_FAILURES {
            self.failures.retain(|_, (until, _)| *until > now);
        }
        if self.failures.len() < MAX_FAILURES {
            self.failures.insert(name, (now + FAILURE_TTL, failure));
        }
    }

    fn answer(&mut self, number: u64, result: &Ended) {
        let Some(question) = self.forget(number) else { return };
        let port = question.port;
        let result = result.clone().map(|(mut addresses, valid_until)| {
            addresses.iter_mut().for_each(|address| address.set_port(port));
            ResolvedAddresses { addresses, valid_until }
        });
        question.to.send(result);
    }

    fn forget(&mut self, number: u64) -> Option<PendingQuestion> {
        let question = self.pending.remove(&number)?;
        self.outstanding.fetch_sub(1, Ordering::Relaxed);
        if let Some(client) = &question.asker.client
            && let Some(outstanding) = self.outstanding_of.get_mut(client)
        {
            *outstanding -= 1;
            if *outstanding == 0 {
                self.outstanding_of.remove(client);
            }
        }
        Some(question)
    }

    fn cancel(&mut self, number: u64) {
        let Some(question) = self.forget(number) else { return };
        self.waiting.remove(&question.asker, number);
        let Some(under_way) = self.under_way.get_mut(&question.name) else { return };
        under_way.numbers.retain(|other| *other != number);
        if under_way.numbers.is_empty()
            && let Some(under_way) = self.under_way.remove(&question.name)
        {
            under_way.task.abort();
            self.under_way_of.give_back(&under_way.asker);
        }
    }
}

/// How many names each viewer and each client has under way.
#[derive(Debug, Default)]
struct NamesUnderWay {
    of_viewer: HashMap<Asker, usize>,
    of_client: HashMap<Arc<str>, usize>,
}

impl NamesUnderWay {
    fn has_room(&self, asker: &Asker) -> bool {
        let of_viewer = self.of_viewer.get(asker).copied().unwrap_or(0);
        let client = asker.client.as_ref();
        let of_client = client.and_then(|it| self.of_client.get(it)).copied().unwrap_or(0);
        of_viewer < MAX_UNDER_WAY_PER_VIEWER && of_client < MAX_UNDER_WAY_PER_CLIENT
    }

    fn take(&mut self, asker: &Asker) {
        *self.of_viewer.entry(asker.clone()).or_default() += 1;
        if let Some(client) = &asker.client {
            *self.of_client.entry(client.clone()).or_default() += 1;
        }
    }

    fn give_back(&mut self, asker: &Asker) {
        if let Some(count) = self.of_viewer.get_mut(asker) {
            *count -= 1;
            if *count == 0 {
                self.of_viewer.remove(asker);
            }
        }
        if let Some(client) = &asker.client
            && let Some(count) = self.of_client.get_mut(client)
        {
            *count -= 1;
            if *count == 0 {
                self.of_client.remove(client);
            }
        }
    }
}
