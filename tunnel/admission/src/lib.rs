//! Admission: limits and fair shares of flows, connections, handshakes and memory.
//!
//! [`fair_share`] divides a number of places between users. [`flow_admission`] has the pools of flows, and
//! [`peer_limits`] those of connections, handshakes and memory. Nothing here knows of sockets or QUIC.

pub mod client_id;
pub mod fair_share;
pub mod flow_admission;
pub mod flow_owner;
pub mod peer_limits;
