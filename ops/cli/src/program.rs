//! The program that a command belongs to.

use std::path::Path;

use clap::Command;
use millrace_config::{Admin, ConfigError};

/// What differs between the programs.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// The whole command line.
    pub command: fn() -> Command,
    /// Reads `[admin]` of a configuration.
    pub load_admin: fn(&Path) -> Result<Admin, ConfigError>,
}
