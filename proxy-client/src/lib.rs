//! Accepts TCP flows and carries them through the tunnel.

mod accept_queue;
pub mod accepted;
mod backoff;
pub mod cli;
pub mod connection_group;
pub mod direct;
pub mod doctor;
mod group_demand;
pub mod intercept;
pub mod listener;
mod listeners;
pub mod nginx;
pub mod pool;
mod probing;
pub mod recognition;
pub mod reload;
pub mod reloadable;
mod requests;
pub mod role;
pub mod rtsp_check;
pub mod run;
pub mod server;
mod settings;
mod tunnel_connection;
mod tunnel_connections;
pub mod udp;
