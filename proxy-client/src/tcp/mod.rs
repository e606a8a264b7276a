//! TCP through the tunnel: listeners, the connections that they accept, and the requests for their flows.
//!
//! An accepted connection passes the handshake of its listener, which names the destination, waits for the first bytes
//! that tell its class, and is requested on a tunnel connection or bypasses the tunnel.

mod accepted_table;
mod first_bytes;
mod flows;
mod listeners;
mod rejects;
mod requests;
mod unanswered;

pub(crate) use flows::TcpFlows;
pub(crate) use listeners::{Accept, MAX_ACCEPTS_PER_TURN, TcpListeners};
pub(crate) use unanswered::answer as answer_unanswered;
