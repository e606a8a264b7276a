//! Accepts TCP flows and carries them through the tunnel.

mod accept_queue;
pub mod accepted;
mod backoff;
pub mod direct;
pub mod doctor;
pub mod doors;
pub mod intercept;
pub mod lane;
mod link;
mod links;
pub mod nginx;
pub mod pool;
mod probing;
pub mod reload;
mod requests;
pub mod role;
pub mod run;
pub mod server;
pub mod udp;
