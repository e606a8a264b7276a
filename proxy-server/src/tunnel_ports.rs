//! The UDP sockets of `tunnel.listen`.

use std::io;
use std::net::SocketAddr;

use anyhow::{Context, ensure};
use millrace_ops::inherited_sockets::InheritedSockets;
use millrace_tunnel::address_sharing::{AddressSharing, bind_advice};
use millrace_tunnel::udp::{PortOptions, UdpPort};

/// For each worker one socket on each address: inherited ones first.
pub(crate) fn bind(
    addresses: &[SocketAddr],
    workers: usize,
    mut inherited: InheritedSockets,
) -> anyhow::Result<Vec<Vec<UdpPort>>> {
    inherited.check(addresses)?;
    let mut ports: Vec<Vec<UdpPort>> = (0..workers).map(|_| Vec::new()).collect();
    for address in addresses {
        let mut address = *address;
        let given = inherited.take(address);
        let given_sockets = given.len();
        ensure!(
            given_sockets <= workers,
            "{given_sockets} inherited sockets have the address {address}, for {workers} workers; \
             at most one for each worker is right"
        );
        let mut given = given.into_iter();
        for (index, mine) in ports.iter_mut().enumerate() {
            let sharing = AddressSharing::of_worker(index, workers);
            let port = match given.next() {
                Some(socket) => UdpPort::inherit(socket, sharing),
                None => UdpPort::bind(address, PortOptions { sharing, mark: None }),
            };
            let port = port.map_err(|error| bind_error(error, address))?;
            // Port 0 is the same one for all workers.
            address = port.local();
            mine.push(port);
        }
        if let (Some(last), true) = (ports.last().and_then(|ports| ports.last()), workers > 1) {
            last.steer_by_connection_id(u32::try_from(workers)?)
                .context("can't steer packets to their worker")?;
        }
        tracing::info!(%address, what = "tunnel", workers, inherited = given_sockets, "listening");
    }
    Ok(ports)
}

fn bind_error(error: io::Error, address: SocketAddr) -> anyhow::Error {
    let context = format!("can't bind tunnel.listen {address}{}", bind_advice(&error));
    anyhow::Error::new(error).context(context)
}
