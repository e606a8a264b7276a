//! `[external.NAME]`: a congestion controller that is a program of its own.

use std::collections::BTreeMap;
use std::path::Path;

use super::model::FlowGroup;
use super::programs::ExternalProgram;
use super::reader::{self, TableReader};
use super::tree::{ScenarioResult, ScenarioText};

/// Each flow has a process of its own.
const MAX_EXTERNAL_FLOWS: u64 = 64;

/// All of them, by name.
pub(super) fn read(
    reader: &mut TableReader<'_>,
    text: &ScenarioText<'_>,
) -> ScenarioResult<BTreeMap<String, ExternalProgram>> {
    let mut programs = BTreeMap::new();
    for (name, node) in reader.entries("external")? {
        // Logs have its name.
        if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') {
            let problem = format!("{name:?}: allowed are letters, digits, hyphens and underscores");
            return Err(reader.error("external", problem));
        }
        let mut table = TableReader::new(text, &format!("external.{name}"), node)?;
        let program = ExternalProgram {
            command: reader::words(&mut table, "command")?,
            timeout_s: table.number("timeout_s", 0.01..=600.0, 10.0)?,
            directory: text.file.parent().unwrap_or(Path::new("")).to_owned(),
        };
        if program.command.is_empty() {
            return Err(
                table.error("command", "is missing: the program and its arguments, as a list")
            );
        }
        table.finish()?;
        programs.insert(name.to_owned(), program);
    }
    Ok(programs)
}

/// # Errors
/// The flows would need too many processes.
pub(super) fn check(reader: &TableReader<'_>, groups: &[FlowGroup]) -> ScenarioResult<()> {
    let external = groups.iter().filter(|group| group.external().is_some());
    let flows: u64 = external.map(|group| group.count).sum();
    if flows <= MAX_EXTERNAL_FLOWS {
        return Ok(());
    }
    let problem = format!(
        "{flows} flows of external controllers, a process for each; allowed are {MAX_EXTERNAL_FLOWS}"
    );
    Err(reader.error("flow", problem))
}
