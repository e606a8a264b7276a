//! Datagrams that came to another worker than that of their connection, at either of them.

use std::net::SocketAddr;

use crate::event_loop::accept::Arrival;
use crate::event_loop::core::Core;
use crate::metrics::Drop;
use crate::misdelivered::Misdelivered;

impl Core {
    /// This worker's ports share their addresses with those of the others of `workers`: the kernel gives each packet to
    /// one of them as [`UdpPort::steer_by_connection_id`](crate::udp::UdpPort::steer_by_connection_id) tells it.
    pub fn share_addresses(&mut self, workers: usize) {
        self.routes.sharing_workers = workers;
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
        let own = usize::from(self.routes.worker);
        let owner = cid
            .first()
            .and_then(|first| usize::from(*first).checked_rem(self.routes.sharing_workers));
        let Some(owner) = owner.filter(|owner| *owner != own) else { return false };
        let datagram = Misdelivered { port, from, to, datagram: datagram.into() };
        if !self.shared.sharing_workers.pass(owner, datagram) {
            self.shared.metrics.drops.of(Drop::OtherWorkerBusy).inc();
        }
        true
    }

    /// Takes the datagrams that came to other workers.
    pub(crate) fn receive_misdelivered(&mut self) {
        let datagrams: Vec<_> = self.routes.misdelivered.take().collect();
        for Misdelivered { port, from, to, mut datagram } in datagrams {
            if let Some(index) = self.sockets.ports.iter().position(|it| it.local() == port) {
                self.with_port(index, |core, socket| {
                    let arrival = Arrival { port: index, socket, from, to, len: datagram.len() };
                    core.on_datagram(&arrival, &mut datagram);
                });
            }
        }
    }
}
