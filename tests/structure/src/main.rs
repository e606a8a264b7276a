//! Checks the structure of the source, as `docs/design/layout.md` wants it:
//!
//! - no import cycle between the modules of a crate;
//! - crates depend on crates of a lower layer only (`structure.toml`);
//! - no type has more methods or fields than the limits, except those that `structure.toml` lists with a reason;
//! - no two types have the same name, whatever their modules and crates.
//!
//!     cargo run --release -p millrace-structure        # in the top directory of the repository

mod cycles;
mod modules;
mod rules;
mod type_names;
mod types;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};

use modules::Crate;
use rules::StructureRules;
use type_names::TypeNames;

/// Layers, limits and exceptions; paths in it begin in the current directory.
const RULES: &str = "tests/structure/structure.toml";

fn main() -> ExitCode {
    let file = std::env::args().nth(1).unwrap_or_else(|| RULES.to_owned());
    match check(Path::new(&file)) {
        Ok(problems) if problems.is_empty() => ExitCode::SUCCESS,
        Ok(problems) => {
            for problem in &problems {
                eprintln!("{problem}");
            }
            eprintln!("{} problems", problems.len());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("millrace-structure: {error:#}");
            ExitCode::from(64)
        }
    }
}

/// Checks all crates that `file` lists. Returns what is wrong, one line each.
fn check(file: &Path) -> Result<Vec<String>> {
    let rules = StructureRules::read(file)?;
    let mut problems = Vec::new();
    let mut measured = Vec::new();
    let mut type_names = TypeNames::default();
    for (name, listed) in &rules.crates {
        let source = listed.path.join("src");
        let parsed = Crate::read(name, &source).with_context(|| format!("crate {name}"))?;
        problems.extend(cycles::find(&parsed));
        problems.extend(rules.wrong_arrows(name, &parsed));
        measured.extend(types::measure(&parsed));
        if !listed.is_test_support {
            type_names.add(&parsed);
        }
        println!("{name}: {} modules, {} lines", parsed.modules.len(), parsed.lines());
    }
    problems.extend(rules.too_large(&measured));
    problems.extend(rules.shared_names(&type_names));
    Ok(problems)
}
