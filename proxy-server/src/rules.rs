//! `millrace-server rules`: the rules of MCC, looked at without a server.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use millrace_mcc::rules::{LuaRules, Rules};
use millrace_mcc::{Config, Facts, RulesText};

/// More is no facts.
const MAX_FACTS_BYTES: u64 = 1 << 20;

/// See the module.
#[derive(Debug, Args)]
pub struct RulesArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Loads rules, and runs their own tests (functions that are called test_...)
    Check {
        /// Files in Lua
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Says what rules choose for a connection, and why
    Explain {
        /// A file in Lua
        file: PathBuf,
        /// What is known of the connection, as JSON: {"loss": 0.05, "smoothed_rtt_ms": 30}; - reads it from
        /// standard input
        #[arg(default_value = "{}")]
        facts: String,
    },
}

/// Runs the command.
///
/// # Errors
/// Rules that can't be used, and facts that are none.
pub fn run(arguments: RulesArgs) -> anyhow::Result<ExitCode> {
    match arguments.command {
        Command::Check { files } => check(&files),
        Command::Explain { file, facts } => {
            println!("{}", explain(&file, &facts)?);
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn check(files: &[PathBuf]) -> anyhow::Result<ExitCode> {
    let mut failed = false;
    for file in files {
        let tests = load(file)?.test();
        for (name, outcome) in &tests {
            if let Err(problem) = outcome {
                failed = true;
                println!("{}: {name}: {problem}", file.display());
            }
        }
        let good = tests.iter().filter(|(_, outcome)| outcome.is_ok()).count();
        println!("{}: {good} of {} tests passed", file.display(), tests.len());
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn explain(file: &Path, facts: &str) -> anyhow::Result<String> {
    let mut text = facts.to_owned();
    if facts == "-" {
        text.clear();
        std::io::stdin().take(MAX_FACTS_BYTES).read_to_string(&mut text)?;
    }
    let facts: Facts = serde_json::from_str(&text).context("what is known of the connection")?;
    let choice = load(file)?.select(&facts).map_err(anyhow::Error::msg)?;
    let Some(choice) = choice else {
        return Ok("nothing: the connection stays as it is".to_owned());
    };
    let (settings, _) = millrace_mcc::resolve(&Config::default())?;
    if !settings.candidates.contains(&choice.algorithm) {
        bail!(
            "{:?}, which is no algorithm; there are {}",
            choice.algorithm,
            settings.candidates.join(", ")
        );
    }
    let reason = choice.reason.map_or_else(String::new, |reason| format!(": {reason}"));
    Ok(format!("{}{reason}", choice.algorithm))
}

fn load(file: &Path) -> anyhow::Result<LuaRules> {
    RulesText::read(Some(file)).and_then(|text| text.load()).map_err(anyhow::Error::msg)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn shipped(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../cc/mcc/rules").join(name)
    }

    #[test]
    fn choices_are_explained() {
        let explain = |facts: &str| explain(&shipped("paper.lua"), facts);
        let lossy = explain(r#"{"loss": 0.05, "smoothed_rtt_ms": 30}"#).unwrap();
        assert_eq!(lossy, "westwood: more than 3 % lost");
        assert_eq!(explain("{}").unwrap(), "nothing: the connection stays as it is");
        let error = format!("{:#}", explain(r#"{"los": 1}"#).unwrap_err());
        assert!(error.contains("los"), "{error}");
    }

    #[test]
    fn what_is_no_algorithm_is_said() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("rules.lua");
        fs::write(&file, "function select() return 'fast' end function test_no() error('no') end")
            .unwrap();
        let error = explain(&file, "{}").unwrap_err().to_string();
        assert!(error.starts_with("\"fast\", which is no algorithm; there are bbr, "), "{error}");
        assert_eq!(check(&[file]).unwrap(), ExitCode::FAILURE);
        assert_eq!(check(&[shipped("qoe.lua")]).unwrap(), ExitCode::SUCCESS);
        assert!(check(&[directory.path().join("none.lua")]).is_err());
    }
}
