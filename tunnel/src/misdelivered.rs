//! Datagrams that came to the socket of another worker than that of their connection.
//!
//! Where several datagrams of one pair of addresses follow each other, a network card or its driver joins them to
//! one (`UDP_GRO` of udp(7)), also those of several connections, and the kernel chooses the socket by the
//! connection ID of the first. The others would be of no known connection, and the answer to them would end theirs
//! (RFC 9000, Section 10.3).

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, PoisonError, RwLock};

use mio::Waker;

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
}

/// The workers that share addresses, by their number.
#[derive(Debug, Default)]
pub(crate) struct Neighbours(RwLock<Vec<Option<Worker>>>);

impl Neighbours {
    /// Where the datagrams of a worker come in.
    pub(crate) fn add_worker(&self, number: u8, waker: Arc<Waker>) -> Receiver<Misdelivered> {
        let (inbox, datagrams) = sync_channel(MAX_WAITING);
        let mut workers = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let place = usize::from(number);
        if workers.len() <= place {
            workers.resize_with(place + 1, || None);
        }
        workers[place] = Some(Worker { inbox, waker });
        datagrams
    }

    /// The worker to which the kernel gives packets for connection IDs that begin with `first_byte`, as
    /// [`UdpPort::steer_by_connection_id`](crate::udp::UdpPort::steer_by_connection_id) tells it.
    fn owner(&self, first_byte: u8) -> usize {
        let workers = self.0.read().unwrap_or_else(PoisonError::into_inner).len();
        usize::from(first_byte).checked_rem(workers).unwrap_or(0)
    }

    /// Gives a datagram to its worker. `false` when that has no room for it.
    fn pass(&self, owner: usize, datagram: Misdelivered) -> bool {
        let workers = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let Some(Some(worker)) = workers.get(owner) else { return false };
        // A worker that can't be woken has ended.
        worker.inbox.try_send(datagram).is_ok() && worker.waker.wake().is_ok()
    }
}

impl Core {
    /// This worker's ports have the addresses of those of the other workers: packets are given to them by their
    /// connection IDs.
    pub fn share_addresses(&mut self) {
        self.shares_addresses = true;
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
        let Some(first) = cid.first().filter(|_| self.shares_addresses) else { return false };
        let owner = self.shared.neighbours.owner(*first);
        if owner == usize::from(self.worker) {
            return false;
        }
        let datagram = Misdelivered { port, from, to, datagram: datagram.into() };
        if !self.shared.neighbours.pass(owner, datagram) {
            self.shared.metrics.drops.of(Drop::OtherWorkerBusy).inc();
        }
        true
    }

    /// Takes the datagrams that came to other workers.
    pub(crate) fn receive_misdelivered(&mut self) {
        for _ in 0..MAX_WAITING {
            let Ok(Misdelivered { port, from, to, mut datagram }) = self.misdelivered.try_recv()
            else {
                return;
            };
            if let Some(index) = self.ports.iter().position(|it| it.local() == port) {
                self.with_port(index, |core, socket| {
                    core.on_datagram(index, socket, from, to, &mut datagram);
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
        assert!(!neighbours.pass(0, datagram()), "nobody is there");
        let first = neighbours.add_worker(0, waker);
        assert_eq!([0, 1, 2, 255].map(|byte| neighbours.owner(byte)), [0, 1, 0, 1]);
        assert!(neighbours.pass(1, datagram()));
        assert_eq!(second.try_recv().unwrap().datagram[..], [7]);
        assert!(first.try_recv().is_err());
        for _ in 0..MAX_WAITING {
            assert!(neighbours.pass(0, datagram()));
        }
        assert!(!neighbours.pass(0, datagram()), "more than it has room for");
    }
}
