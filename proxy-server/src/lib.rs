//! The tunnel server: connects flows of the tunnel to their destinations.

#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod cli;
pub mod doctor;
mod init;
mod invite;
pub mod reload;
pub mod role;
pub mod rules;
pub mod run;
mod settings;
pub mod shared;
mod trust;
mod tunnel_ports;
