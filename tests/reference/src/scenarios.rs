//! The keys of scenario files.

use anyhow::Result;
use millrace_lab::scenario::scenario_keys;

use crate::markdown::{code, escape, head, table};
use crate::source::TypeBook;

pub(crate) fn page() -> Result<String> {
    let from = "the reader in `lab/src/scenario` and the types in `lab/src/report/plot.rs`";
    let mut page = head("Keys of scenario files", from);
    page.push_str(
        "\nTOML files for `millrace-lab`; `millrace-lab check` checks them. Unknown keys are errors. \
         [Scenario files](../research/scenarios.md) has an example, sweeps and the rules of claims; \
         [Trace formats](../research/traces.md) describes recorded links. `[]` stands for each table of a list.\n",
    );
    let keys = scenario_keys()?;
    let mut tables: Vec<&str> = Vec::new();
    for key in &keys {
        let table = parent(&key.path);
        if !tables.contains(&table) {
            tables.push(table);
        }
    }
    for of in tables {
        page.push_str(&format!("\n## {}\n", if of.is_empty() { "The file" } else { of }));
        let inside = keys.iter().filter(|key| parent(&key.path) == of);
        let rows: Vec<_> = inside
            .map(|key| {
                let name = key.path.strip_prefix(of).unwrap_or(&key.path).trim_start_matches('.');
                let default = match (&key.default, key.is_required) {
                    (Some(default), _) => code(default),
                    (None, true) => "required".to_owned(),
                    (None, false) => String::new(),
                };
                [code(name), key.kind.clone(), default, escape(key.meaning)]
            })
            .collect();
        page.push_str(&table(["key", "value", "default", "meaning"], &rows));
    }
    page.push_str("\n## Plots\n\n`[[plot]]`; [Report](../research/report.md) has examples.\n");
    let book = TypeBook::read(&["lab/src/report/plot.rs"])?;
    page.push_str(&book.tables(&["Plot"], 3)?);
    Ok(page)
}

/// The table that a key is in: `link.change[]` of `link.change[].at_s`.
fn parent(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(table, _)| table)
}
