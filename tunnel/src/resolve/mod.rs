//! Name resolution beside the event loops: one thread with an asynchronous resolver.
//!
//! A name is looked for in `/etc/hosts` first and then asked of the name servers of
//! `/etc/resolv.conf`, with its `search` and `ndots`. Both files are read again when they change.
//! Other sources of `/etc/nsswitch.conf` are not asked.
//!
//! Answers are kept for their TTL, equal questions are asked once, and each viewer and each client
//! has a bounded share of the questions that are under way at a time.

mod fair_queue;
mod legacy;
mod lookup;
mod order;
mod service;
mod system;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, atomic};
use std::thread;
use std::time::Instant;

use millrace_config::ResolverSettings;
use millrace_wire::ConnectFailure;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::worker::WorkerHandle;
use service::{Request, Service};

/// Questions of all clients that have no answer yet, those that wait for one of the same name
/// included; more are refused at once.
const MAX_OUTSTANDING: usize = 4096;

/// The source of a question, by which shares are counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Asker {
    /// The client of the tunnel, by the name in its certificate; `None` is this program itself.
    pub client: Option<Arc<str>>,
    /// The viewer.
    pub viewer: Option<IpAddr>,
}

/// A name to resolve.
#[derive(Clone, Copy, Debug)]
pub struct Name<'a> {
    /// The name itself.
    pub host: &'a str,
    /// The port that its addresses get.
    pub port: u16,
    /// Whether the name servers are asked although an answer of theirs is still good: for a name
    /// whose addresses have failed.
    pub uncached: bool,
}

/// What a name resolved to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// At least one, in the order in which to try them (RFC 6724).
    pub addresses: Vec<SocketAddr>,
    /// The end of the answer's TTL.
    pub valid_until: Instant,
}

/// Why a name did not become addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// The name servers say that it has no address.
    #[error("the name has no address")]
    NotFound,
    /// No name server answered in time, or all of them failed.
    #[error("no name server answered: {0}")]
    NoAnswer(String),
    /// The viewer or the client has as many questions as it may.
    #[error("too many questions of one client")]
    ClientLimit,
    /// There are as many questions as there may be.
    #[error("too many questions")]
    Overloaded,
}

impl From<&ResolveError> for ConnectFailure {
    fn from(error: &ResolveError) -> Self {
        match error {
            ResolveError::NotFound | ResolveError::NoAnswer(_) => Self::NameNotResolved,
            ResolveError::ClientLimit => Self::ClientLimitReached,
            ResolveError::Overloaded => Self::Overloaded,
        }
    }
}

/// The answer to a question.
#[derive(Debug)]
pub struct Resolved {
    /// The key it was asked for under.
    pub key: u64,
    /// What it is.
    pub result: Result<Addresses, ResolveError>,
}

/// Where an answer goes.
#[derive(Clone, Debug)]
struct AnswerTo {
    key: u64,
    answer: Sender<Resolved>,
    worker: Option<WorkerHandle>,
}

impl AnswerTo {
    fn send(&self, result: Result<Addresses, ResolveError>) {
        // The worker may have ended since.
        let _ = self.answer.send(Resolved { key: self.key, result });
        if let Some(worker) = &self.worker {
            worker.wake();
        }
    }
}

/// The thread that resolves for all workers. It ends when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Resolver {
    requests: UnboundedSender<Request>,
    outstanding: Arc<AtomicUsize>,
    next_question: Arc<AtomicU64>,
}

/// A question that has no answer yet. Dropping it withdraws it.
#[derive(Debug)]
pub struct Question {
    number: u64,
    requests: UnboundedSender<Request>,
}

impl Drop for Question {
    fn drop(&mut self) {
        // Of one that has been answered nothing is known any more.
        let _ = self.requests.send(Request::Cancel(self.number));
    }
}

impl Resolver {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system has no thread or no descriptor left.
    pub fn start(settings: &ResolverSettings) -> io::Result<Self> {
        let (requests, received) = unbounded_channel();
        let outstanding = Arc::new(AtomicUsize::new(0));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let service = Service::new(settings.clone(), outstanding.clone());
        thread::Builder::new()
            .name("resolver".to_owned())
            .spawn(move || runtime.block_on(service.run(received)))?;
        Ok(Self { requests, outstanding, next_question: Arc::new(AtomicU64::new(0)) })
    }

    /// Other settings from now on.
    pub fn configure(&self, settings: &ResolverSettings) {
        let _ = self.requests.send(Request::Configure(settings.clone()));
    }

    /// Asks for the addresses of `name`. The answer comes under `key` and wakes `worker`,
    /// unless the question is dropped before.
    ///
    /// # Errors
    /// When there are too many questions.
    pub fn ask(
        &self,
        asker: Asker,
        name: Name<'_>,
        key: u64,
        answer: &Sender<Resolved>,
        worker: &WorkerHandle,
    ) -> Result<Question, ResolveError> {
        let to = AnswerTo { key, answer: answer.clone(), worker: Some(worker.clone()) };
        self.send(asker, name, to)
    }

    /// Asks, and waits for the answer. Not for event loops.
    ///
    /// # Errors
    /// Why there is none.
    pub fn resolve_blocking(&self, host: &str, port: u16) -> Result<Addresses, ResolveError> {
        let (answer, answers) = channel();
        let to = AnswerTo { key: 0, answer, worker: None };
        let name = Name { host, port, uncached: false };
        let _question = self.send(Asker::default(), name, to)?;
        match answers.recv() {
            Ok(resolved) => resolved.result,
            Err(_) => Err(ResolveError::NoAnswer("the resolver has ended".to_owned())),
        }
    }

    fn send(
        &self,
        asker: Asker,
        Name { host, port, uncached }: Name<'_>,
        to: AnswerTo,
    ) -> Result<Question, ResolveError> {
        if self.outstanding.fetch_add(1, Ordering::Relaxed) >= MAX_OUTSTANDING {
            self.outstanding.fetch_sub(1, Ordering::Relaxed);
            return Err(ResolveError::Overloaded);
        }
        let number = self.next_question.fetch_add(1, atomic::Ordering::Relaxed);
        // A name is the same with and without the dot at its end, except that the search list is
        // not for it; in upper and lower case it is the same.
        let name = host.to_ascii_lowercase();
        let ask = Request::Ask { number, asker, name, port, uncached, to };
        if self.requests.send(ask).is_err() {
            return Err(ResolveError::NoAnswer("the resolver has ended".to_owned()));
        }
        Ok(Question { number, requests: self.requests.clone() })
    }
}
