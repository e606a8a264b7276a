//! UDP through the tunnel: flows, and the listeners that take datagrams. In mode `udp` each source address is a flow,
//! in mode `tproxy` each source address with each original destination.
//!
//! The first datagram of a flow causes a CONNECT-UDP request (RFC 9298). A few datagrams wait for the response.
//! `UdpFlows::open` opens flows for other sockets too.

mod flows;
mod listener;
mod listeners;
mod media;
mod quic_sources;
mod reply_ports;
mod requests;

pub(crate) use flows::UdpFlows;
pub use listener::UdpListener;
pub(crate) use listeners::KEY_BIT;
pub use listeners::UdpListeners;
