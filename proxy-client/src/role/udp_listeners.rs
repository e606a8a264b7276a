//! Datagrams of the UDP listeners.

use std::net::{IpAddr, SocketAddr};

use millrace_tunnel::datagrams::Near;
use millrace_tunnel::event_loop::Core;
use millrace_tunnel::metrics::Drop;

use super::ClientRole;
use crate::udp::{KEY_BIT, Stage, UdpOpen, WAITING_BYTES};

/// Batches taken from one socket before others have their turn.
const READ_TURNS: usize = 16;

impl ClientRole {
    /// A UDP listener's socket has an event.
    pub(crate) fn on_udp_event(&mut self, core: &mut Core, key: u64) {
        if let Some(listener) = self.udp.listeners.get_mut((key & !KEY_BIT) as usize) {
            listener.readable = true;
        }
        self.read_udp_listeners(core);
    }

    /// Reads the sockets of the UDP listeners.
    pub(crate) fn read_udp_listeners(&mut self, core: &mut Core) {
        for index in 0..self.udp.listeners.len() {
            let port = self.udp.listeners[index].port.clone();
            for _ in 0..READ_TURNS {
                if !self.udp.listeners[index].readable {
                    break;
                }
                let mut buffers = self.udp.buffers.take().unwrap_or_default();
                let received = port.receive(&mut buffers, |from, to, payload| {
                    self.on_udp_datagram(core, index, from, to.ip(), payload);
                });
                self.udp.buffers = Some(buffers);
                match received {
                    Ok(more) => self.udp.listeners[index].readable = more,
                    // An ICMP error for an earlier datagram.
                    Err(error) => tracing::debug!(%error, "error on a UDP listener's socket"),
                }
            }
        }
    }

    fn on_udp_datagram(
        &mut self,
        core: &mut Core,
        index: usize,
        from: SocketAddr,
        local: IpAddr,
        payload: &[u8],
    ) {
        let key = match self.udp.by_source.get(&(index, from)) {
            Some(key) => *key,
            None => {
                let listener = &self.udp.listeners[index];
                let open = UdpOpen {
                    destination: listener.destination.clone(),
                    near: Near::Shared { port: listener.port.clone(), peer: from, local },
                    client: from,
                    group: listener.group,
                    medium: None,
                    listener: Some(index),
                };
                let Some(key) = self.open_udp(core, open) else {
                    return core.shared.metrics.drops.of(Drop::DatagramFlow).inc();
                };
                self.udp.by_source.insert((index, from), key);
                key
            }
        };
        self.send_udp(core, key, payload);
    }

    /// Sends a datagram of a flow that [`ClientRole::open_udp`] opened.
    pub fn send_udp(&mut self, core: &mut Core, key: u64, payload: &[u8]) {
        let Some(flow) = self.udp.flows.get_mut(&key) else { return };
        let drops = &core.shared.metrics.drops;
        match flow.stage {
            Stage::Waiting | Stage::Requested { .. } => {
                let old = flow.queue.push(payload.to_vec(), WAITING_BYTES);
                drops.of(Drop::DatagramQueue).inc_by(old);
            }
            Stage::Open(id) => {
                if !core.send_datagram(id, payload) {
                    core.shared.metrics.drops.of(Drop::DatagramFlow).inc();
                }
            }
            Stage::Refused => drops.of(Drop::DatagramFlow).inc(),
        }
    }
}
