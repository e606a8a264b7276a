//! The commands.

use std::path::Path;

use std::process::ExitCode;

use clap::{Command, Subcommand};

use crate::algorithms;
use crate::completions::{self, CompletionsArgs};
use crate::congestion_control::{self, CcArgs};
use crate::flows::{self, FlowsArgs};
use crate::man::{self, ManArgs};
use crate::program::Program;
use crate::qlog::{self, QlogArgs};
use crate::top::{self, TopArgs};

/// Name of the argument for the configuration file.
const CONFIG_ARGUMENT: &str = "config";

/// A command that both programs have.
#[derive(Debug, Subcommand)]
pub enum SharedCommand {
    /// List the congestion controllers that a configuration can name
    Algorithms,
    /// List the flows of a running program
    Flows(FlowsArgs),
    /// Change the congestion control of a connection of a running program
    Cc(CcArgs),
    /// Trace a connection of a running program (qlog)
    Qlog(QlogArgs),
    /// Show the flows of a running program, live in the terminal
    Top(TopArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
    /// Write man pages, one for each command
    Man(ManArgs),
}

impl SharedCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// The error of the command.
    pub fn run(&self, program: Program) -> anyhow::Result<ExitCode> {
        match self {
            Self::Algorithms => algorithms::run(),
            Self::Flows(arguments) => flows::run(arguments, program),
            Self::Cc(arguments) => congestion_control::run(arguments, program),
            Self::Qlog(arguments) => qlog::run(arguments, program),
            Self::Top(arguments) => top::run(arguments, program),
            Self::Completions(arguments) => completions::run(arguments, (program.command)()),
            Self::Man(arguments) => man::run(arguments, (program.command)()),
        }
    }
}

/// `command` with `path` as the default of `--config`, wherever one of its commands has that argument.
#[must_use]
pub fn with_default_config(command: Command, path: &'static str) -> Command {
    command.mut_subcommands(|command| {
        let has_it = command.get_arguments().any(|argument| argument.get_id() == CONFIG_ARGUMENT);
        let command = match has_it {
            true => command
                .mut_arg(CONFIG_ARGUMENT, |argument| argument.required(false).default_value(path)),
            false => command,
        };
        with_default_config(command, path)
    })
}

/// What follows the name of a command in advice, so that it reads the configuration at `path`: nothing for the `default`.
pub fn config_argument(path: &Path, default: &str) -> String {
    match path == Path::new(default) {
        true => String::new(),
        false => format!(" --config {}", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use clap::{Arg, value_parser};

    use super::*;

    fn command() -> Command {
        let config = || {
            let parser = value_parser!(PathBuf);
            Arg::new(CONFIG_ARGUMENT).long("config").required(true).value_parser(parser)
        };
        let inner = Command::new("set").arg(config());
        let command = Command::new("test")
            .subcommand(Command::new("run").arg(config()))
            .subcommand(Command::new("cc").subcommand(inner))
            .subcommand(Command::new("algorithms"));
        with_default_config(command, "/etc/millrace/test.toml")
    }

    #[test]
    fn the_default_configuration_is_that_of_all_commands_at_any_depth() {
        let path_of = |arguments: &[&str]| {
            let matches = command().try_get_matches_from(arguments).unwrap();
            let mut inner = &matches;
            while let Some((_, next)) = inner.subcommand() {
                inner = next;
            }
            inner.try_get_one::<PathBuf>(CONFIG_ARGUMENT).ok().flatten().cloned()
        };
        let default = Some(PathBuf::from("/etc/millrace/test.toml"));
        assert_eq!(path_of(&["test", "run"]), default);
        assert_eq!(path_of(&["test", "cc", "set"]), default);
        assert_eq!(path_of(&["test", "run", "--config", "a.toml"]), Some("a.toml".into()));
        assert_eq!(path_of(&["test", "algorithms"]), None);
        command().debug_assert();
    }

    #[test]
    fn advice_names_a_configuration_at_another_path() {
        let default = "/etc/millrace/server.toml";
        assert_eq!(config_argument(Path::new(default), default), "");
        assert_eq!(config_argument(Path::new("s.toml"), default), " --config s.toml");
    }
}
