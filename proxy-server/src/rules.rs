//! `millrace-server rules`: checks and evaluates the rules of MCC without a server.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use millrace_mcc::rules::{LuaRules, SelectionRules};
use millrace_mcc::{Config, RuleInput, RulesText};
use millrace_ops::output;

/// Maximum size of a rule input on standard input.
const MAX_INPUT_BYTES: u64 = 1 << 20;

/// Arguments of `millrace-server rules`.
#[derive(Debug, Args)]
pub struct RulesArgs {
    #[command(subcommand)]
    command: RulesCommand,
}

#[derive(Debug, Subcommand)]
enum RulesCommand {
    /// Load rules and run their tests (functions whose names begin with test_)
    Check {
        /// Rules files (Lua)
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Print the choice of the rules for a connection, and the reason
    Explain {
        /// Rules file (Lua)
        file: PathBuf,
        /// State of the connection, as JSON: {"loss": 0.05, "smoothed_rtt_ms": 30}; - reads it from standard input
        #[arg(default_value = "{}")]
        input: String,
    },
}

/// Runs the command.
///
/// # Errors
/// Invalid rules, or an invalid rule input.
pub fn run(arguments: RulesArgs) -> anyhow::Result<ExitCode> {
    match arguments.command {
        RulesCommand::Check { files } => check(&files),
        RulesCommand::Explain { file, input } => {
            output::line(explain(&file, &input)?)?;
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
                output::line(format_args!("{}: {name}: {problem}", file.display()))?;
            }
        }
        let passed = tests.iter().filter(|(_, outcome)| outcome.is_ok()).count();
        output::line(format_args!("{}: {passed} of {} tests passed", file.display(), tests.len()))?;
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn explain(file: &Path, input: &str) -> anyhow::Result<String> {
    let mut text = input.to_owned();
    if input == "-" {
        text.clear();
        std::io::stdin().take(MAX_INPUT_BYTES).read_to_string(&mut text)?;
    }
    let input: RuleInput = serde_json::from_str(&text).context("state of the connection")?;
    let choice = load(file)?.select(&input).map_err(anyhow::Error::msg)?;
    let Some(choice) = choice else {
        return Ok("none: the connection keeps its algorithm".to_owned());
    };
    let (settings, _) = millrace_mcc::resolve(&Config::default())?;
    if !settings.algorithms.contains(&choice.algorithm) {
        bail!(
            "{:?}, which is not an available algorithm; available: {}",
            choice.algorithm,
            settings.algorithms.join(", ")
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
    fn explain_prints_choice_and_reason() {
        let explain = |input: &str| explain(&shipped("paper.lua"), input);
        let lossy = explain(r#"{"loss": 0.05, "smoothed_rtt_ms": 30}"#).unwrap();
        assert_eq!(lossy, "westwood: more than 3 % lost");
        assert_eq!(explain("{}").unwrap(), "none: the connection keeps its algorithm");
        let error = format!("{:#}", explain(r#"{"los": 1}"#).unwrap_err());
        assert!(error.contains("los"), "{error}");
    }

    #[test]
    fn explain_rejects_unknown_algorithm() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("rules.lua");
        fs::write(&file, "function select() return 'fast' end function test_no() error('no') end")
            .unwrap();
        let error = explain(&file, "{}").unwrap_err().to_string();
        assert!(
            error.starts_with("\"fast\", which is not an available algorithm; available: bbr, "),
            "{error}"
        );
        assert_eq!(check(&[file]).unwrap(), ExitCode::FAILURE);
        assert_eq!(check(&[shipped("qoe.lua")]).unwrap(), ExitCode::SUCCESS);
        assert!(check(&[directory.path().join("none.lua")]).is_err());
    }
}
