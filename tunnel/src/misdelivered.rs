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

use crate::accept::Arrival;
use crate::core::Core;
use crate::metrics::Drop;

/// Datagrams that may wait for a worker: four full messages (64 each). What is more is lost, as in a full socket
/// buffer.
const MAX_WAITING: usize = 256;

/// One datagram, and where it came in.
#[derive(Debug)]
pub(crate) struct Misdelivered {
    /// The address that its socket is bound to; each worker has one there.
    port: SocketAddr,
    from: SocketAddr,
    to: SocketAddr,
    datagram: Box<[u8]>,
}

#[derive(Debug)]
struct Worker {
    inbox: SyncSender<Misdelivered>,
    waker: Arc<Waker>,
    /// It has been woken, and has not looked since then.
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
    fn take(&self) -> impl Iterator<Item = Misdelivered> {
        // What comes from now on wakes the worker once more.
        self.is_woken.store(false, Ordering::SeqCst);
        self.datagrams.try_iter().take(MAX_WAITING)
    }
}

/// The workers that share addresses, by their number.
#[derive(Debug, Default)]
pub(crate) struct Neighbours(RwLock<Vec<Option<Worker>>>);

impl Neighbours {
    /// Where the datagrams of a worker come in.
    pub(crate) fn add_worker(&self, number: u8, waker: Arc<Waker>) -> Inbox {
        let (inbox, datagrams) = sync_channel(MAX_WAITING);
        let is_woken = Arc::new(AtomicBool::new(false));
        let mut workers = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let place = usize::from(number);
        if workers.len() <= place {
            workers.resize_with(place + 1, || None);
        }
        workers[place] = Some(Worker { inbox, waker, is_woken: is_woken.clone() });
        Inbox { datagrams, is_woken }
    }

    /// Gives a datagram to its worker. `false` when that has no room for it.
    fn pass(&self, owner: usize, datagram: Misdelivered) -> bool {
        let workers = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let Some(Some(worker)) = workers.get(owner) else { return false };
        // A full inbox, or that of a worker that has ended.
        if worker.inbox.try_send(datagram).is_err() {
            return false;
        }
        worker.is_woken.swap(true, Ordering::SeqCst) || worker.waker.wake().is_ok()
    }
}

impl Core {
    /// This worker's ports share their addresses with those of the others of `workers`: the kernel gives each packet to
    /// one of them as [`UdpPort::steer_by_connection_id`](crate::udp::UdpPort::steer_by_connection_id) tells it.
    pub fn share_addresses(&mut self, workers: usize) {
        self.sharing_workers = workers;
    }

    /// Gives a datagram for the connection ID `cid`, which this worker does not know, to the worker that may know it.
    /// `false` when that is this one.
    pub(crate) fn pass_on(
        &self,
        port: SocketAddr,
        (from, to): (SocketAddr, SocketAddr),
        cid: &[u8],
        datagram: &[u8],
    ) -> bool {
        let own = usize::from(self.worker);
        let owner =
            cid.first().and_then(|first| usize::from(*first).checked_rem(self.sharing_workers));
        let Some(owner) = owner.filter(|owner| *owner != own) else { return false };
        let datagram = Misdelivered { port, from, to, datagram: datagram.into() };
        if !self.shared.neighbours.pass(owner, datagram) {
            self.shared.metrics.drops.of(Drop::OtherWorkerBusy).inc();
        }
        true
    }

    /// Takes the datagrams that came to other workers.
    pub(crate) fn receive_misdelivered(&mut self) {
        let datagrams: Vec<_> = self.misdelivered.take().collect();
        for Misdelivered { port, from, to, mut datagram } in datagrams {
            if let Some(index) = self.ports.iter().position(|it| it.local() == port) {
                self.with_port(index, |core, socket| {
                    let arrival = Arrival { port: index, socket, from, to, len: datagram.len() };
                    core.on_datagram(&arrival, &mut datagram);
                });
            }
        }
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
        let neighbours = Neighbours::default();
        // In any order.
        let second = neighbours.add_worker(1, waker.clone());
        assert!(!neighbours.pass(0, datagram()), "there is no such worker");
        let first = neighbours.add_worker(0, waker);
        assert!(neighbours.pass(1, datagram()));
        let taken: Vec<_> = second.take().collect();
        assert_eq!((taken.len(), &taken[0].datagram[..]), (1, &[7][..]));
        assert_eq!(first.take().count(), 0);
        for _ in 0..MAX_WAITING {
            assert!(neighbours.pass(0, datagram()));
        }
        assert!(!neighbours.pass(0, datagram()), "more than it has room for");
        assert_eq!(first.take().count(), MAX_WAITING);
    }
}
