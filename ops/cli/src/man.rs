//! `man`: a page for the program, and one for each of its commands.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Command};

/// Arguments of the command `man`.
#[derive(Args, Clone, Debug)]
pub struct ManArgs {
    /// Directory for the pages, as /usr/local/share/man/man1; it is made if it is missing
    pub directory: PathBuf,
}

/// Writes the pages of `command`.
///
/// # Errors
/// The directory or a page can't be written.
pub fn run(arguments: &ManArgs, command: Command) -> anyhow::Result<ExitCode> {
    write(&arguments.directory, command)?;
    Ok(ExitCode::SUCCESS)
}

fn write(directory: &Path, command: Command) -> anyhow::Result<()> {
    let context = || format!("can't write man pages to {}", directory.display());
    fs::create_dir_all(directory).with_context(context)?;
    clap_mangen::generate_to(command, directory).with_context(context)
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    fn command() -> Command {
        let run = Command::new("run").about("Run it").arg(Arg::new("config").long("config"));
        Command::new("millrace-test").version("1.2.3").about("A test").subcommand(run)
    }

    #[test]
    fn the_program_and_each_command_have_a_page() {
        let directory = tempfile::tempdir().unwrap();
        let pages = directory.path().join("share/man1");
        write(&pages, command()).unwrap();
        let page = |name: &str| fs::read_to_string(pages.join(name)).unwrap();
        assert!(page("millrace-test.1").contains("1.2.3"));
        assert!(page("millrace-test-run.1").contains("config"));
        assert!(!pages.join("millrace-test-help.1").exists());
    }

    #[test]
    fn a_directory_that_can_not_be_made_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = write(&file.path().join("man1"), command()).unwrap_err();
        assert!(format!("{error:#}").contains(&file.path().display().to_string()), "{error:#}");
    }
}
