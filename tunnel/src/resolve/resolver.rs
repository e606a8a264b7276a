//! The thread that resolves, as event loops see it.

use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, atomic};
use std::thread;

use millrace_config::ResolverSettings;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::question::{AnswerTo, Asker, Name, ResolveError, Resolved, ResolvedAddresses};
use super::service::{Service, ServiceRequest};
use crate::event_loop::WorkerHandle;

/// Questions of all clients that have no answer yet, those that wait for one of the same name
/// included; more are refused at once.
const MAX_OUTSTANDING_QUESTIONS: usize = 4096;

/// The thread that resolves for all workers. It ends when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Resolver {
    requests: UnboundedSender<ServiceRequest>,
    outstanding: Arc<AtomicUsize>,
    next_question: Arc<AtomicU64>,
}

/// A question that has no answer yet. Dropping it withdraws it.
#[derive(Debug)]
pub struct Question {
    number: u64,
    requests: UnboundedSender<ServiceRequest>,
}

impl Drop for Question {
    fn drop(&mut self) {
        // A cancelled number that has been answered is unknown and ignored.
        let _ = self.requests.send(ServiceRequest::Cancel(self.number));
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

    /// Changes the settings.
    pub fn configure(&self, settings: &ResolverSettings) {
        let _ = self.requests.send(ServiceRequest::Configure(settings.clone()));
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
    /// Why the name has no addresses.
    pub fn resolve_blocking(
        &self,
        host: &str,
        port: u16,
    ) -> Result<ResolvedAddresses, ResolveError> {
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
        if self.outstanding.fetch_add(1, Ordering::Relaxed) >= MAX_OUTSTANDING_QUESTIONS {
            self.outstanding.fetch_sub(1, Ordering::Relaxed);
            return Err(ResolveError::Overloaded);
        }
        let number = self.next_question.fetch_add(1, atomic::Ordering::Relaxed);
        // A name is the same with and without the dot at its end, except that the search list is
        // not for it; in upper and lower case it is the same.
        let name = host.to_ascii_lowercase();
        let ask = ServiceRequest::Ask { number, asker, name, port, uncached, to };
        if self.requests.send(ask).is_err() {
            return Err(ResolveError::NoAnswer("the resolver has ended".to_owned()));
        }
        Ok(Question { number, requests: self.requests.clone() })
    }
}
