//! Binds the listeners of a configuration.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use millrace_config::{Host, HostPort, Interception, Listen, ListenAddress};
use millrace_tunnel::address_sharing::{AddressSharing, bind_advice};
use millrace_tunnel::udp::UdpPort;
use millrace_wire::Destination;
use mio::net::{TcpListener, UnixListener};

use crate::intercept::{Mode, UnixSocket, listen_tcp};
use crate::listener::{Listener, ListeningSocket, SharedSocket};
use crate::udp::UdpListener;

/// Binds one listener per worker and TCP or Unix address. They do not accept connections yet.
pub(crate) fn bind_listeners(
    listens: &[Listen],
    workers: usize,
) -> anyhow::Result<Vec<Vec<Listener>>> {
    let mut listeners: Vec<Vec<Listener>> = (0..workers).map(|_| Vec::new()).collect();
    for (number, listen) in listens.iter().enumerate() {
        let Some(mode) = mode_of(&listen.interception)? else { continue };
        let what = listen.interception.as_str();
        match &listen.address {
            ListenAddress::Tcp(address) => {
                let mut address = *address;
                for (index, mine) in listeners.iter_mut().enumerate() {
                    let sharing = AddressSharing::of_worker(index, workers);
                    let socket = listen_tcp(address, mode == Mode::Tproxy, sharing)?;
                    // The port that the kernel chose for port 0 is the same for all workers.
                    address = socket.local_addr()?;
                    let socket = ListeningSocket::Tcp(TcpListener::from_std(socket));
                    let (mode, fail_mode) = (mode.clone(), listen.fail_mode);
                    let listener = Listener::new(socket, mode, number, Some(address), fail_mode);
                    mine.push(listener.with_trusted_proxies(listen.trusted_proxies.clone()));
                }
                tracing::info!(%address, what, "listening");
            }
            ListenAddress::Unix(path) => {
                let socket = UnixSocket::listen(path, None)?;
                let handles: io::Result<Vec<_>> =
                    listeners.iter().map(|_| socket.try_clone_listener()).collect();
                let shared = Arc::new(SharedSocket::new(socket));
                for (mine, handle) in listeners.iter_mut().zip(handles?) {
                    let handle = UnixListener::from_std(handle);
                    let socket = ListeningSocket::Unix(handle, shared.clone());
                    let (mode, fail_mode) = (mode.clone(), listen.fail_mode);
                    mine.push(Listener::new(socket, mode, number, None, fail_mode));
                }
                tracing::info!(address = %listen.address, what, "listening");
            }
        }
    }
    Ok(listeners)
}

/// Binds one listener per worker and UDP address. `mark` is that of answers to intercepted datagrams.
pub(crate) fn bind_udp_listeners(
    listens: &[Listen],
    group_of: &[usize],
    workers: usize,
    mark: Option<u32>,
) -> anyhow::Result<Vec<Vec<UdpListener>>> {
    let mut listeners: Vec<Vec<UdpListener>> = (0..workers).map(|_| Vec::new()).collect();
    for (listen, group) in listens.iter().zip(group_of.iter().copied()) {
        let ListenAddress::Tcp(mut address) = listen.address else { continue };
        let destination = match &listen.interception {
            Interception::Udp { destination } => Some(destination_of(destination)?),
            Interception::TproxyUdp => None,
            _ => continue,
        };
        if destination.is_none() {
            warn_of_missing_privilege(address, mark);
        }
        for (index, mine) in listeners.iter_mut().enumerate() {
            let sharing = AddressSharing::of_worker(index, workers);
            let listener = match destination.clone() {
                Some(destination) => UdpListener::bind(address, sharing, destination, group),
                None => {
                    let fail_mode = listen.fail_mode;
                    UdpListener::bind_intercepting(address, sharing, group, mark, fail_mode)
                }
            };
            let listener = listener.map_err(|error| {
                let advice = match error.kind() {
                    io::ErrorKind::PermissionDenied if destination.is_none() => {
                        ": interception needs CAP_NET_ADMIN"
                    }
                    _ => bind_advice(&error),
                };
                let context =
                    format!("can't bind the UDP address {address} of a [[listen]]{advice}");
                anyhow::Error::new(error).context(context)
            })?;
            // The port that the kernel chose for port 0 is the same for all workers.
            address = listener.local();
            mine.push(listener);
        }
        tracing::info!(%address, what = listen.interception.as_str(), protocol = "udp", "listening");
    }
    Ok(listeners)
}

/// Answers leave from the port that an intercepted datagram was sent to, usually that of HTTPS.
fn warn_of_missing_privilege(address: SocketAddr, mark: Option<u32>) {
    const HTTPS_PORT: u16 = 443;
    let socket = UdpPort::sender_from_any_address(HTTPS_PORT, address.is_ipv4(), mark);
    if let Err(error) = socket
        && error.kind() == io::ErrorKind::PermissionDenied
    {
        let needed = "CAP_NET_ADMIN and CAP_NET_BIND_SERVICE";
        tracing::warn!(%address, needed, "no answers can leave from UDP port {HTTPS_PORT}");
    }
}

pub(crate) fn destination_of(HostPort { host, port }: &HostPort) -> anyhow::Result<Destination> {
    Ok(match host {
        Host::Ip(ip) => Destination::from_address(SocketAddr::new(*ip, *port))?,
        Host::Name(name) => Destination::from_host_port(name, *port)?,
    })
}

/// How the destination of a TCP flow is learnt; `None` for UDP.
fn mode_of(interception: &Interception) -> anyhow::Result<Option<Mode>> {
    Ok(Some(match interception {
        Interception::Tproxy => Mode::Tproxy,
        Interception::Redirect => Mode::Redirect,
        Interception::ProxyProtocol => Mode::ProxyProtocol,
        Interception::HttpConnect => Mode::HttpConnect,
        Interception::Socks5 => Mode::Socks5,
        Interception::Static { destination } => Mode::Static(destination_of(destination)?),
        Interception::TproxyUdp | Interception::Udp { .. } => return Ok(None),
    }))
}
