//! `completions`: a script for a shell.

use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::output::print;

/// Arguments of the command `completions`.
#[derive(Args, Clone, Debug)]
pub struct CompletionsArgs {
    /// The shell
    pub shell: Shell,
}

/// Prints the script for `command`.
///
/// # Errors
/// Standard output can't be written.
pub fn run(arguments: &CompletionsArgs, command: Command) -> anyhow::Result<ExitCode> {
    print(&script(arguments.shell, command))
}

fn script(shell: Shell, mut command: Command) -> Vec<u8> {
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    script
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    #[test]
    fn each_script_has_the_commands_and_their_options() {
        let run = Command::new("run").arg(Arg::new("config").long("config"));
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let command = Command::new("millrace-test").subcommand(run.clone());
            let script = String::from_utf8(script(shell, command)).unwrap();
            for word in ["millrace-test", "run", "config"] {
                assert!(script.contains(word), "{shell}: {word}: {script}");
            }
        }
    }
}
