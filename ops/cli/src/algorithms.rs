//! `algorithms`: the congestion controllers that a configuration can name.

use std::process::ExitCode;

use millrace_cc::registry;
use millrace_config::Mcc;

use crate::output::print;

/// Prints a line for each algorithm.
///
/// # Errors
/// Standard output can't be written.
pub(crate) fn run() -> anyhow::Result<ExitCode> {
    print(list().as_bytes())
}

fn list() -> String {
    let entry = |it: &millrace_cc::AlgorithmEntry| (it.names.join(", "), it.summary, it.source);
    let mut entries: Vec<_> = registry::entries().map(entry).collect();
    entries.sort_unstable();
    let selection = "rules in Lua select one of the others while a flow runs";
    entries.push((Mcc::NAME.to_owned(), selection, "[mcc] in the configuration"));
    let width = entries.iter().map(|(names, ..)| names.len()).max().unwrap_or_default();
    let line = |(names, summary, source)| format!("{names:width$}  {summary} ({source})\n");
    entries.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_algorithm_of_the_registry_is_in_one_line() {
        let list = list();
        let mut names: Vec<_> = list
            .lines()
            .flat_map(|line| line.split("  ").next().unwrap_or_default().split(", "))
            .collect();
        assert_eq!(names.pop(), Some(Mcc::NAME));
        names.sort_unstable();
        assert_eq!(names, registry::names());
        assert!(list.lines().any(|it| it.starts_with("cubic ") && it.contains("(RFC 9438")));
    }
}
