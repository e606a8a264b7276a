//! Name resolution beside the event loops: the system's resolver blocks.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{Receiver, Sender, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::worker::WorkerHandle;

/// Names resolved at a time. A dead name server holds a thread for its whole time-out, so that
/// with few of them one bad name would delay all others.
const THREADS: usize = 16;
/// Names that wait for a thread; more are refused at once.
const QUEUE: usize = 1024;

/// A name that became addresses, or did not.
#[derive(Debug)]
pub struct Resolved {
    /// The key it was asked for under.
    pub key: u64,
    /// As the system sorted them (RFC 6724).
    pub addresses: io::Result<Vec<SocketAddr>>,
}

struct Job {
    key: u64,
    host: String,
    port: u16,
    answer: Sender<Resolved>,
    worker: WorkerHandle,
}

/// The threads that resolve for all workers.
#[derive(Clone)]
pub struct Resolver(SyncSender<Job>);

impl Resolver {
    /// Starts the threads; they end when the last clone is dropped.
    ///
    /// # Errors
    /// When the system has no thread left.
    pub fn start() -> io::Result<Self> {
        let (sender, jobs) = sync_channel(QUEUE);
        let jobs = Arc::new(Mutex::new(jobs));
        for number in 0..THREADS {
            let jobs = jobs.clone();
            let name = format!("resolver-{number}");
            thread::Builder::new().name(name).spawn(move || serve(&jobs))?;
        }
        Ok(Self(sender))
    }

    /// Asks for the addresses of `host`; the answer wakes `worker`. `false` when too many wait.
    pub fn ask(
        &self,
        key: u64,
        host: String,
        port: u16,
        answer: Sender<Resolved>,
        worker: WorkerHandle,
    ) -> bool {
        self.0.try_send(Job { key, host, port, answer, worker }).is_ok()
    }
}

fn serve(jobs: &Mutex<Receiver<Job>>) {
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { key, host, port, answer, worker }) = job else { return };
        let addresses = (host.as_str(), port).to_socket_addrs().map(Iterator::collect);
        // The worker may have ended since.
        let _ = answer.send(Resolved { key, addresses });
        worker.wake();
    }
}
