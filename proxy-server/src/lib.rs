//! The far end of the tunnel: takes flows from it to their destinations.

pub mod doctor;
pub mod reload;
pub mod role;
pub mod rules;
pub mod run;
pub mod shared;
mod tunnel_ports;
