//! The two binaries as a person would use them: started, configured, talked to and killed from
//! outside. What is here serves the tests in `tests/`; it knows nothing of the programs' insides.
//!
//! - [`pair`]: a server and a client with temporary certificates, on loopback.
//! - [`doors`]: the client side of each interception mode. [`origin`]: what is behind the tunnel.
//! - [`udp`]: the same for UDP. [`rtsp`]: an origin and its players, with RTP over UDP.
//! - [`relay`]: a UDP path between the two that delays, swallows or records.
//! - [`admin`]: `/metrics`, `/flows` and `/healthz` read back.
//!
//! Helpers panic with what went wrong: in a test that is the report. Everything waits for a bounded
//! time only. [`turn`] keeps tests that measure apart from all others.

pub mod admin;
pub mod binaries;
pub mod certificates;
pub mod data;
pub mod dns;
pub mod doors;
pub mod origin;
pub mod pair;
pub mod priority;
pub mod program;
pub mod relay;
pub mod rtsp;
pub mod settings;
pub mod tcp;
pub mod turn;
pub mod udp;
pub mod wait;
