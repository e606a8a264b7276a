//! The command lines of the three programs.

use clap::{Arg, Command};

use crate::markdown::{code, escape, head, table};

pub(crate) fn page() -> String {
    let mut page = head("Command line", "the definitions of the command lines");
    page.push_str(
        "\nEach program and each command has `--help`. `millrace-client man DIRECTORY` and `millrace-server man DIRECTORY` \
         write the same as man pages, and `completions` completes commands and options in a shell. \
         [Operation](../operate/operations.md#command-line) says what the commands are for, and has the exit codes; \
         those of `millrace-lab` are in [Scenario files](../research/scenarios.md).\n",
    );
    for mut program in [
        millrace_client::cli::command(),
        millrace_server::cli::command(),
        millrace_lab::cli::command(),
    ] {
        program.build();
        let name = program.get_name().to_owned();
        command(&mut page, &mut program, &name, 2);
    }
    page
}

/// Options that every command has.
const EVERYWHERE: [&str; 2] = ["help", "version"];

fn command(page: &mut String, of: &mut Command, name: &str, level: usize) {
    let about = of.get_long_about().or_else(|| of.get_about()).map(ToString::to_string);
    page.push_str(&format!("\n{} {name}\n\n", "#".repeat(level)));
    if let Some(about) = about {
        page.push_str(&format!("{}.\n\n", escape(about.trim_end_matches('.'))));
    }
    let usage = of.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").lines().map(str::trim).collect::<Vec<_>>();
    page.push_str(&format!("    {}\n", usage.join("\n    ")));
    let arguments = of.get_arguments();
    let shown =
        arguments.filter(|it| !it.is_hide_set() && !EVERYWHERE.contains(&it.get_id().as_str()));
    let rows: Vec<_> = shown.map(row).collect();
    page.push_str(&table(["argument", "meaning", "default"], &rows));
    for sub in of.get_subcommands_mut().filter(|it| it.get_name() != "help" && !it.is_hide_set()) {
        let name = format!("{name} {}", sub.get_name());
        command(page, sub, &name, level + 1);
    }
}

fn row(argument: &Arg) -> [String; 3] {
    let help = argument.get_long_help().or_else(|| argument.get_help());
    let mut meaning = help.map_or_else(String::new, |help| escape(&help.to_string()));
    let possible = argument.get_possible_values();
    let takes_value = argument.get_action().takes_values();
    if takes_value && !possible.is_empty() {
        let words =
            possible.iter().filter(|it| !it.is_hide_set()).map(|value| match value.get_help() {
                Some(help) => format!("`{}` ({})", value.get_name(), escape(&help.to_string())),
                None => code(value.get_name()),
            });
        meaning.push_str(&format!(": {}", words.collect::<Vec<_>>().join(", ")));
    }
    let defaults = argument.get_default_values().iter();
    let defaults = defaults.map(|value| code(&value.to_string_lossy())).collect::<Vec<_>>();
    let default = match takes_value {
        true if argument.is_required_set() => "required".to_owned(),
        true => defaults.join(", "),
        false => String::new(),
    };
    [code(&argument.to_string()), meaning, default]
}
