//! Datagrams of the UDP listeners.

use std::io;
use std::net::SocketAddr;

use millrace_tunnel::datagrams::QueueLimit;
use millrace_tunnel::event_loop::Core;
use millrace_tunnel::metrics::Drop;
use millrace_tunnel::udp::UdpPort;

use super::ClientRole;
use crate::accept_queue::is_out_of_resources;
use crate::intercept::{InterceptedDatagram, InterceptingUdpSocket};
use crate::udp::{DatagramSocket, KEY_BIT, NoUdpFlow, Stage, UdpOpen, UdpSource, WAITING_BYTES};

/// Batches taken from one socket before others have their turn.
const READ_TURNS: usize = 16;
/// Intercepted datagrams taken from one socket before others have their turn.
const READ_DATAGRAMS: usize = 256;

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
            if !self.udp.listeners[index].readable {
                continue;
            }
            match self.udp.listeners[index].socket.clone() {
                DatagramSocket::Static(port, _) => self.read_static(core, index, &port),
                DatagramSocket::Intercepting(socket) => self.read_intercepted(core, index, &socket),
            }
        }
    }

    fn read_static(&mut self, core: &mut Core, index: usize, port: &UdpPort) {
        for _ in 0..READ_TURNS {
            let mut buffers = self.udp.buffers.take().unwrap_or_default();
            let received = port.receive(&mut buffers, |from, to, payload| {
                self.on_udp_datagram(core, index, InterceptedDatagram { from, to, payload });
            });
            self.udp.buffers = Some(buffers);
            match received {
                Ok(true) => {}
                Ok(false) => {
                    self.udp.listeners[index].readable = false;
                    return;
                }
                // An ICMP error for an earlier datagram.
                Err(error) => tracing::debug!(%error, "error on a UDP listener's socket"),
            }
        }
    }

    fn read_intercepted(&mut self, core: &mut Core, index: usize, socket: &InterceptingUdpSocket) {
        let mut buffer = self.udp.intercepted.take().unwrap_or_default();
        for _ in 0..READ_DATAGRAMS {
            match socket.receive(&mut buffer) {
                Ok(Some(datagram)) => self.on_udp_datagram(core, index, datagram),
                Ok(None) => core.shared.metrics.drops.of(Drop::DatagramFlow).inc(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.udp.listeners[index].readable = false;
                    break;
                }
                Err(error) => tracing::debug!(%error, "error on a UDP listener's socket"),
            }
        }
        self.udp.intercepted = Some(buffer);
    }

    fn on_udp_datagram(&mut self, core: &mut Core, index: usize, it: InterceptedDatagram<'_>) {
        let InterceptedDatagram { from, to, payload } = it;
        let destination = self.udp.listeners[index].original_destination(to);
        let source = UdpSource { listener: index, client: from, destination };
        let key = match self.udp.by_source.get(&source) {
            Some(key) => *key,
            None => match self.begin_udp(core, source, to) {
                Some(key) => key,
                None => return core.shared.metrics.drops.of(Drop::DatagramFlow).inc(),
            },
        };
        self.send_udp(core, key, payload);
    }

    /// Begins the flow of a datagram that a listener has taken.
    fn begin_udp(&mut self, core: &mut Core, source: UdpSource, to: SocketAddr) -> Option<u64> {
        let client = source.client;
        let listener = &mut self.udp.listeners[source.listener];
        let (destination, near) = match listener.begin_flow(client, to) {
            Ok(begun) => begun,
            Err(reason) => {
                log_udp_refusal(core, (client, to), &reason);
                return None;
            }
        };
        let (group, source_of) = (listener.group, Some(source));
        let open = UdpOpen { destination, near, client, group, medium: None, source: source_of };
        let key = self.open_udp(core, open)?;
        self.udp.by_source.insert(source, key);
        Some(key)
    }

    /// Sends a datagram of a flow that [`ClientRole::open_udp`] opened.
    pub fn send_udp(&mut self, core: &mut Core, key: u64, payload: &[u8]) {
        let Some(flow) = self.udp.flows.get_mut(&key) else { return };
        let drops = &core.shared.metrics.drops;
        match flow.stage {
            Stage::Waiting | Stage::Requested { .. } => {
                let limit = QueueLimit::of_bytes(WAITING_BYTES);
                let old = flow.queue.push(payload.to_vec(), limit, core.now());
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

fn log_udp_refusal(core: &mut Core, (client, to): (SocketAddr, SocketAddr), reason: &NoUdpFlow) {
    if let NoUdpFlow::ReplyPort(error) = reason
        && is_out_of_resources(error)
    {
        core.shared.metrics.drops.of(Drop::DescriptorLimit).inc();
    }
    if core.may_log_refusal() {
        tracing::warn!(%client, %to, %reason, "UDP flow refused; others like it may not be logged");
    }
}
