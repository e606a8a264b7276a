//! Accepts TCP flows and carries them through the tunnel.

#![warn(clippy::print_stdout, clippy::print_stderr)]

mod accept_queue;
pub mod accepted;
pub mod cli;
pub mod connection_group;
pub mod direct;
pub mod doctor;
mod flow_context;
mod host_command;
pub mod intercept;
mod join;
pub mod listener;
mod listeners;
pub mod nginx;
mod nginx_rtsp;
pub mod pool;
pub mod proxy_credentials;
pub mod recognition;
pub mod reload;
pub mod reloadable;
pub mod role;
pub mod rtsp_check;
pub mod run;
mod server_set;
mod settings;
mod source_translation;
mod tcp;
pub mod udp;
