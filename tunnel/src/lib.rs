//! What both proxies share: the QUIC event loop, the relay, certificates and metrics.

pub mod admin;
pub mod algorithms;
pub mod certificates;
pub mod cli;
mod close_reason;
pub mod conn;
pub mod core;
mod deadlines;
mod drive;
mod ends;
pub mod flow;
pub mod limits;
pub mod logging;
pub mod metrics;
pub mod own_addresses;
pub mod process;
mod receive;
pub mod role;
pub mod shared;
pub mod socket;
mod stateless_reset;
pub mod streams;
mod timer;
pub mod transport;
pub mod udp;
pub mod worker;
