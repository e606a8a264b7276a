//! Datagrams that came to the socket of another worker than that of their connection.
//!
//! Where several datagrams of one pair of addresses follow each other, a network card or its driver joins them to
//! one (`UDP_GRO` of udp(7)), also those of several connections, and the kernel chooses the socket by the
//! connection ID of the first. The others would be of no known connection, and the answer to them would end theirs
//! (RFC 9000, Section 10.3).

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, PoisonError, RwLock};

use mio::Waker;

/// Datagrams that may wait for a worker: four full messages (64 each). What is more is lost, as in a full socket
/// buffer.
const MAX_WAITING_DATAGRAMS: usize = 256;

/// One datagram, and where it came in.
#[derive(Debug)]
pub(crate) struct Misdelivered {
    /// The address that its socket is bound to; each worker has one there.
    pub(crate) port: SocketAddr,
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) datagram: Box<[u8]>,
}

#[derive(Debug)]
struct WorkerInbox {
    inbox: SyncSender<Misdelivered>,
    waker: Arc<Waker>,
    /// The worker has been woken and has not read its inbox since.
    is_woken: Arc<AtomicBool>,
}

/// Where the datagrams of one worker come in.
#[derive(Debug)]
pub(crate) struct Inbox {
    datagrams: Receiver<Misdelivered>,
    is_woken: Arc<AtomicBool>,
}

impl Inbox {
    /// What has come so far.
    pub(crate) fn take(&self) -> impl Iterator<Item = Misdelivered> {
        // The next datagram wakes the worker again.
        self.is_woken.store(false, Ordering::SeqCst);
        self.datagrams.try_iter().take(MAX_WAITING_DATAGRAMS)
    }
}

/// The workers that share addresses, by their number.
#[derive(Debug, Default)]
pub(crate) struct SharingWorkers(RwLock<Vec<Option<WorkerInbox>>>);

impl SharingWorkers {
    /// Where the datagrams of a worker come in.
    pub(crate) fn add_worker(&self, number: u8, waker: Arc<Waker>) -> Inbox {
        let (inbox, datagrams) = sync_channel(MAX_WAITING_DATAGRAMS);
        let is_woken = Arc::new(AtomicBool::new(false));
        let mut workers = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let place = usize::from(number);
        if workers.len() <= place {
            workers.resize_with(place + 1, || None);
        }
        workers[place] = Some(WorkerInbox { inbox, waker, is_woken: is_woken.clone() });
        Inbox { datagrams, is_woken }
    }

    /// Gives a datagram to its worker. `false` when that has no room for it.
    pub(crate) fn pass(&self, owner: usize, datagram: Misdelivered) -> bool {
        let workers = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let Some(Some(worker)) = workers.get(owner) else { return false };
        // A full inbox, or that of a worker that has ended.
        if worker.inbox.try_send(datagram).is_err() {
            return false;
        }
        worker.is_woken.swap(true, Ordering::SeqCst) || worker.waker.wake().is_ok()
    }
}

#[cfg(test)]
mod tests {
    use mio::{Poll, Token};

    use super::*;

    fn datagram() -> Misdelivered {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        Misdelivered { port: address, from: address, to: address, datagram: Box::new([7]) }
    }

    #[test]
    fn datagrams_go_to_the_worker_of_their_connection_id_while_it_has_room() {
        let poll = Poll::new().unwrap();
        let waker = Arc::new(Waker::new(poll.registry(), Token(0)).unwrap());
        let sharing_workers = SharingWorkers::default();
        // In any order.
        let second = sharing_workers.add_worker(1, waker.clone());
        assert!(!sharing_workers.pass(0, datagram()), "there is no such worker");
        let first = sharing_workers.add_worker(0, waker);
        assert!(sharing_workers.pass(1, datagram()));
        let taken: Vec<_> = second.take().collect();
        assert_eq!((taken.len(), &taken[0].datagram[..]), (1, &[7][..]));
        assert_eq!(first.take().count(), 0);
        for _ in 0..MAX_WAITING_DATAGRAMS {
            assert!(sharing_workers.pass(0, datagram()));
        }
        assert!(!sharing_workers.pass(0, datagram()), "more than it has room for");
        assert_eq!(first.take().count(), MAX_WAITING_DATAGRAMS);
    }
}
