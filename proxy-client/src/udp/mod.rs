//! UDP through the tunnel: flows, and the listeners of mode `udp`, where each source address is a flow.
//!
//! The first datagram of a flow causes a CONNECT-UDP request (RFC 9298). A few datagrams wait for the response.
//! `ClientRole::open_udp` opens flows for other sockets too.

mod flows;
mod listener;

pub use flows::{KEY_BIT, UdpFlows, UdpOpen};
pub(crate) use flows::{REFUSED_FOR, Stage, UdpFlow, WAITING_BYTES};
pub use listener::UdpListener;
