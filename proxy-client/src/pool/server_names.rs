//! Queries for the names of servers.

use std::sync::mpsc::{Receiver, Sender, channel};

use millrace_tunnel::event_loop::WorkerHandle;
use millrace_tunnel::resolve::{
    Asker, Name, Question, ResolveError, Resolved, ResolvedAddresses, Resolver,
};

/// Asks the resolver for the addresses of a worker's servers, and takes the answers.
pub(crate) struct ServerNames {
    resolver: Resolver,
    answers: Receiver<Resolved>,
    answer_to: Sender<Resolved>,
    worker: WorkerHandle,
}

impl ServerNames {
    /// The answers wake `worker`.
    pub(crate) fn new(resolver: Resolver, worker: WorkerHandle) -> Self {
        let (answer_to, answers) = channel();
        Self { resolver, answers, answer_to, worker }
    }

    /// Asks for the name of a server. [`ServerNames::answers`] has the answer later.
    ///
    /// # Errors
    /// As [`Resolver::ask`].
    pub(crate) fn ask(&self, server: usize, name: Name<'_>) -> Result<Question, ResolveError> {
        self.resolver.ask(Asker::default(), name, server as u64, &self.answer_to, &self.worker)
    }

    /// The answers that have come since the last call, each with the number of its server.
    pub(crate) fn answers(
        &self,
    ) -> impl Iterator<Item = (usize, Result<ResolvedAddresses, ResolveError>)> {
        self.answers.try_iter().map(|Resolved { key, result }| (key as usize, result))
    }
}
