//! Listeners of mode `udp`.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use millrace_tunnel::address_sharing::AddressSharing;
use millrace_tunnel::core::Core;
use millrace_tunnel::datagrams::Near;
use millrace_tunnel::metrics::Drop;
use millrace_tunnel::udp::{PortOptions, UdpPort};
use millrace_wire::Destination;
use mio::{Interest, Token};

use super::{KEY_BIT, Stage, UdpFlows, UdpOpen, WAITING_BYTES};
use crate::role::ClientRole;

/// Batches taken from one socket before others have their turn.
const READ_TURNS: usize = 16;

/// One way in for UDP.
#[derive(Debug)]
pub struct UdpDoor {
    port: Arc<UdpPort>,
    destination: Destination,
    lane: usize,
    /// It may have something.
    pub(super) readable: bool,
}

impl UdpDoor {
    /// Binds `address`, which workers may share: each gets all datagrams of one source.
    ///
    /// # Errors
    /// As the system says.
    pub fn bind(
        address: SocketAddr,
        sharing: AddressSharing,
        destination: Destination,
        lane: usize,
    ) -> io::Result<Self> {
        let port = UdpPort::bind(address, PortOptions { sharing, mark: None })?;
        Ok(Self { port: Arc::new(port), destination, lane, readable: false })
    }

    /// Where it is.
    pub fn local(&self) -> SocketAddr {
        self.port.local()
    }
}

impl UdpFlows {
    /// Flows come in at these from [`UdpFlows::start`] on.
    pub fn new(doors: Vec<UdpDoor>) -> Self {
        Self { doors, ..Self::default() }
    }

    /// Begins to listen.
    ///
    /// # Errors
    /// When the loop can't take a socket.
    pub fn start(&mut self, core: &Core) -> io::Result<()> {
        for (index, door) in self.doors.iter_mut().enumerate() {
            let token: Token = Core::role_token((KEY_BIT | index as u64) as usize);
            let port = Arc::get_mut(&mut door.port).expect("no flow has it yet");
            core.registry().register(port.source(), token, Interest::READABLE)?;
        }
        Ok(())
    }
}

impl ClientRole {
    /// A UDP listener's socket reported something.
    pub(crate) fn on_udp_event(&mut self, core: &mut Core, key: u64) {
        if let Some(door) = self.udp.doors.get_mut((key & !KEY_BIT) as usize) {
            door.readable = true;
        }
        self.read_udp_doors(core);
    }

    /// Takes what the listeners' sockets have.
    pub(crate) fn read_udp_doors(&mut self, core: &mut Core) {
        for index in 0..self.udp.doors.len() {
            let port = self.udp.doors[index].port.clone();
            for _ in 0..READ_TURNS {
                if !self.udp.doors[index].readable {
                    break;
                }
                let mut buffers = self.udp.buffers.take().unwrap_or_default();
                let received = port.receive(&mut buffers, |from, to, payload| {
                    self.on_udp_datagram(core, index, from, to.ip(), payload);
                });
                self.udp.buffers = Some(buffers);
                match received {
                    Ok(more) => self.udp.doors[index].readable = more,
                    // Of a datagram that was sent before.
                    Err(error) => tracing::debug!(%error, "a UDP listener's socket"),
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
                let door = &self.udp.doors[index];
                let open = UdpOpen {
                    destination: door.destination.clone(),
                    near: Near::Shared { port: door.port.clone(), peer: from, local },
                    client: from,
                    lane: door.lane,
                    medium: None,
                    door: Some(index),
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

    /// Sends a datagram of a flow that [`ClientRole::open_udp`] made.
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
