//! UDP through the tunnel: flows, and the listeners that take datagrams. In mode `udp` each source address is a flow,
//! in mode `tproxy` each source address with each original destination.
//!
//! The first datagram of a flow causes a CONNECT-UDP request (RFC 9298). A few datagrams wait for the response.
//! `ClientRole::open_udp` opens flows for other sockets too.

mod flows;
mod listener;
mod reply_ports;

pub use flows::{KEY_BIT, UdpFlows, UdpOpen, UdpSource};
pub(crate) use flows::{REFUSED_FOR, Stage, UdpFlow, WAITING_BYTES};
pub use listener::UdpListener;
pub(crate) use listener::{DatagramSocket, NoUdpFlow};
