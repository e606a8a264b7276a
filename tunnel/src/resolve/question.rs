//! Questions and their answers.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Instant;

use millrace_wire::ConnectFailure;

use crate::event_loop::WorkerHandle;

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
    /// with addresses that have failed.
    pub uncached: bool,
}

/// What a name resolved to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedAddresses {
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
    pub result: Result<ResolvedAddresses, ResolveError>,
}

/// Where an answer goes.
#[derive(Clone, Debug)]
pub(super) struct AnswerTo {
    pub(super) key: u64,
    pub(super) answer: Sender<Resolved>,
    pub(super) worker: Option<WorkerHandle>,
}

impl AnswerTo {
    pub(super) fn send(&self, result: Result<ResolvedAddresses, ResolveError>) {
        // The worker may have ended since.
        let _ = self.answer.send(Resolved { key: self.key, result });
        if let Some(worker) = &self.worker {
            worker.wake();
        }
    }
}
