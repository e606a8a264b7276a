//! Commands that both programs have, beside those that start and check them: what a running program does, by its admin
//! API, and shell completions, man pages and the list of algorithms.

#![warn(clippy::print_stdout, clippy::print_stderr)]

mod admin;
mod algorithms;
mod command;
mod completions;
mod congestion_control;
mod flow_row;
mod flows;
mod man;
mod output;
mod program;
mod qlog;
mod top;
mod units;

pub use command::{SharedCommand, config_argument, with_default_config};
pub use program::Program;
