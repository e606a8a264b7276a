//! End-to-end tests of the two binaries: they are started, configured, used and killed as an operator
//! would. The helpers here know nothing of the programs' internals.
//!
//! - [`pair`]: a server and a client with temporary certificates, on loopback.
//! - [`listeners`]: clients of each kind of listener. [`origin`]: the destinations behind the tunnel.
//! - [`udp`]: the same for UDP. [`rtsp`]: an origin and its players, with RTP over UDP. [`live_origin`]: one with RTP in
//!   the RTSP connection.
//! - [`quic`]: a QUIC origin, and its client.
//! - [`relay`]: a UDP path between the two that delays, swallows or records.
//! - [`proxy`]: a client or server in a network namespace.
//! - [`admin`]: `/metrics`, `/flows` and `/healthz` read back.
//!
//! Helpers panic with the reason, which the test reports. Everything waits for a bounded time only.
//! [`test_lock`] keeps tests that measure apart from all others.

pub mod admin;
pub mod binaries;
pub mod camera;
pub mod certificates;
pub mod data;
pub mod dns;
pub mod listeners;
pub mod live_origin;
pub mod origin;
pub mod pair;
pub mod priority;
pub mod program;
pub mod proxy;
pub mod quic;
pub mod relay;
pub mod rtsp;
pub mod settings;
pub mod tcp;
pub mod test_lock;
pub mod udp;
pub mod wait;
