//! Operation of both programs, apart from the data path: the admin API, certificates, logging, host checks, privileges,
//! and process control.

#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod admin;
pub mod affinity;
pub mod certificates;
pub mod cli;
pub mod doctor;
pub mod inherited_sockets;
pub mod logging;
pub mod output;
pub mod privileges;
pub mod process;
pub mod published;
pub mod reload;
pub mod selection;
mod sync;
pub mod system_limits;
pub mod terminal_text;
mod watchdog;
