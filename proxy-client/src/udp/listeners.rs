//! The UDP listeners of a worker: reads their sockets, and passes each datagram to its flow.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use millrace_tunnel::datagrams::UdpContent;
use millrace_tunnel::event_loop::Core;
use millrace_tunnel::metrics::Drop;
use millrace_tunnel::udp::{RecvBuffers, UdpPort};
use mio::Token;

use super::flows::{UdpFlows, UdpOpen, UdpSource};
use super::listener::{DatagramSocket, NoUdpFlow, UdpListener};
use super::quic_sources::QuicSources;
use crate::accept_queue::is_out_of_resources;
use crate::flow_context::FlowContext;
use crate::intercept::{DatagramBuffer, InterceptedDatagram, InterceptingUdpSocket};

/// Distinguishes the tokens of UDP listeners from others.
pub(crate) const KEY_BIT: u64 = 1 << 47;
/// Batches taken from one socket before others have their turn.
const MAX_BATCHES_PER_TURN: usize = 16;
/// Intercepted datagrams taken from one socket before others have their turn.
const MAX_DATAGRAMS_PER_TURN: usize = 256;

/// The listeners of a worker that take datagrams.
#[derive(Default)]
pub struct UdpListeners {
    listeners: Vec<UdpListener>,
    quic_sources: QuicSources,
    /// Buffers of sockets with one destination.
    buffers: Option<RecvBuffers>,
    /// Buffer of sockets that intercept.
    intercepted: Option<DatagramBuffer>,
}

impl UdpListeners {
    /// They take datagrams from [`UdpListeners::start`] on.
    pub fn new(listeners: Vec<UdpListener>) -> Self {
        Self { listeners, ..Self::default() }
    }

    /// Registers the listeners with the event loop.
    ///
    /// # Errors
    /// A socket can't be registered.
    pub(crate) fn start(&mut self, core: &Core) -> io::Result<()> {
        for (index, listener) in self.listeners.iter_mut().enumerate() {
            let token: Token = Core::role_token((KEY_BIT | index as u64) as usize);
            listener.register(core.registry(), token)?;
        }
        Ok(())
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.listeners.len()
    }

    /// Says whether a server is usable.
    pub(crate) fn on_servers(&mut self, usable: bool) {
        for listener in &mut self.listeners {
            listener.on_servers(usable);
        }
    }

    /// When there is something to do without an event.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        // Datagrams that wait in a socket are read at once.
        self.listeners.iter().any(|listener| listener.readable).then(Instant::now)
    }

    /// A listener's socket has an event.
    pub(crate) fn on_event(&mut self, key: u64) {
        if let Some(listener) = self.listeners.get_mut((key & !KEY_BIT) as usize) {
            listener.readable = true;
        }
    }

    /// Reads the sockets that may have datagrams, for `flows`.
    pub(crate) fn read(
        &mut self,
        flows: &mut UdpFlows,
        context: &mut FlowContext,
        core: &mut Core,
    ) {
        for index in 0..self.listeners.len() {
            if !self.listeners[index].readable {
                continue;
            }
            match self.listeners[index].socket.clone() {
                DatagramSocket::Static(port, _) => {
                    self.read_static(flows, context, core, index, &port);
                }
                DatagramSocket::Intercepting(socket) => {
                    self.read_intercepted(flows, context, core, index, &socket);
                }
            }
        }
    }

    fn read_static(
        &mut self,
        flows: &mut UdpFlows,
        context: &mut FlowContext,
        core: &mut Core,
        index: usize,
        port: &UdpPort,
    ) {
        for _ in 0..MAX_BATCHES_PER_TURN {
            let mut buffers = self.buffers.take().unwrap_or_default();
            let received = port.receive(&mut buffers, |from, to, payload| {
                let datagram = InterceptedDatagram { from, to, payload };
                self.on_datagram(flows, context, core, index, datagram);
            });
            self.buffers = Some(buffers);
            match received {
                Ok(true) => {}
                Ok(false) => {
                    self.listeners[index].readable = false;
                    return;
                }
                // An ICMP error for an earlier datagram.
                Err(error) => tracing::debug!(%error, "error on a UDP listener's socket"),
            }
        }
    }

    fn read_intercepted(
        &mut self,
        flows: &mut UdpFlows,
        context: &mut FlowContext,
        core: &mut Core,
        index: usize,
        socket: &InterceptingUdpSocket,
    ) {
        let mut buffer = self.intercepted.take().unwrap_or_default();
        for _ in 0..MAX_DATAGRAMS_PER_TURN {
            match socket.receive(&mut buffer) {
                Ok(Some(datagram)) => self.on_datagram(flows, context, core, index, datagram),
                Ok(None) => core.shared.metrics.drops.of(Drop::DatagramFlow).inc(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.listeners[index].readable = false;
                    break;
                }
                Err(error) => tracing::debug!(%error, "error on a UDP listener's socket"),
            }
        }
        self.intercepted = Some(buffer);
    }

    /// Leads a datagram to its flow, which it may begin.
    fn on_datagram(
        &mut self,
        flows: &mut UdpFlows,
        context: &mut FlowContext,
        core: &mut Core,
        index: usize,
        datagram: InterceptedDatagram<'_>,
    ) {
        let InterceptedDatagram { from, to, payload } = datagram;
        let listener = &mut self.listeners[index];
        let destination = listener.original_destination(to);
        let source = UdpSource { listener: index, client: from, destination };
        let key = flows.of_source(&source).or_else(|| {
            let open = begin_flow(listener, core, source, (to, payload), &mut self.quic_sources)?;
            flows.open(context, core, open)
        });
        match key {
            Some(key) => flows.send(core, key, payload),
            None => core.shared.metrics.drops.of(Drop::DatagramFlow).inc(),
        }
    }
}

/// The flow of a datagram that a listener has taken, to `to`. `None` if there can't be one.
fn begin_flow(
    listener: &mut UdpListener,
    core: &mut Core,
    source: UdpSource,
    (to, payload): (SocketAddr, &[u8]),
    quic_sources: &mut QuicSources,
) -> Option<UdpOpen> {
    let client = source.client;
    match listener.begin_flow(client, to) {
        Ok((destination, socket)) => {
            let is_quic = quic_sources.is_quic(source, payload, destination.port());
            let (group, source) = (listener.group, Some(source));
            let content = if is_quic { UdpContent::Quic } else { UdpContent::Other };
            Some(UdpOpen { destination, socket, client, group, medium: None, content, source })
        }
        Err(reason) => {
            log_refusal(core, (client, to), &reason);
            None
        }
    }
}

fn log_refusal(core: &mut Core, (client, to): (SocketAddr, SocketAddr), reason: &NoUdpFlow) {
    if let NoUdpFlow::ReplyPort(error) = reason
        && is_out_of_resources(error)
    {
        core.shared.metrics.drops.of(Drop::DescriptorLimit).inc();
    }
    if core.may_log_refusal() {
        tracing::warn!(%client, %to, %reason, "UDP flow refused; others like it may not be logged");
    }
}
