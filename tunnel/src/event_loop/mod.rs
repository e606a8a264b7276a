//! One event loop on one thread: it owns connections and flows, and the code that changes them.

pub(crate) mod accept;
pub(crate) mod congestion_control;
pub mod core;
pub(crate) mod drive;
pub(crate) mod ends;
pub(crate) mod faults;
pub(crate) mod memory_eviction;
pub(crate) mod misdelivered;
pub(crate) mod panics;
pub(crate) mod path_mtu;
pub(crate) mod peer_liveness;
pub mod probes;
pub(crate) mod progress;
pub(crate) mod receive;
pub mod role;
pub(crate) mod rtsp;
pub(crate) mod selection;
pub(crate) mod send;
pub mod settings;
pub(crate) mod state;
pub mod streams;
pub(crate) mod tcp_liveness;
pub(crate) mod tokens;
pub(crate) mod udp_flows;
pub(crate) mod udp_receive;
pub(crate) mod udp_send;
pub mod worker;

pub use core::{Core, RelayStart};
pub use role::Role;
pub use settings::WorkerSettings;
pub use worker::{Worker, WorkerHandle};
