//! The admin API.

use anyhow::Result;
use millrace_ops::admin::ADMIN_RESOURCES;

use crate::markdown::{code, head, table};
use crate::source::TypeBook;

/// Where the types of the answers are.
const FILES: [&str; 11] = [
    "ops/src/admin/flows_query.rs",
    "ops/src/admin/status.rs",
    "ops/src/admin/qlog.rs",
    "tunnel/src/ended_flows.rs",
    "tunnel/src/flow_info.rs",
    "tunnel/src/qlog.rs",
    "tunnel/src/cc_override.rs",
    "tunnel/config/src/common.rs",
    "tunnel/config/src/allow.rs",
    "cc/mcc/src/rule_input.rs",
    "cc/mcc/src/selector.rs",
];
const CHOICE_FILE: &str = "cc/mcc/src/rules/select.rs";

pub(crate) fn page() -> Result<String> {
    let book = TypeBook::read(&[&FILES[..], &[CHOICE_FILE]].concat())?;
    let mut page = head("Admin API", "`ops/src/admin/resources.rs` and the types of the answers");
    page.push_str(
        "\nHTTP/1.1 at `admin.address`, by default `127.0.0.1:9464` for the client and `127.0.0.1:9465` for the server. \
         Answers are JSON where a type is named below, otherwise text. \
         [Admin listener access](../operate/operations.md#admin-listener-access) has the rules for `Host` and the token, \
         and [Flows](../operate/operations.md#flows) says what the values are good for.\n\n\
         Every resource may answer 400 and 421 (`Host` field), 401 (token), 405 (method, with `Allow`), 431 (fields too \
         large), 500 (see the log) and 503 (too many requests at a time).\n",
    );
    let rows: Vec<_> = ADMIN_RESOURCES
        .iter()
        .flat_map(|resource| {
            resource.uses.iter().map(|(usage, result)| {
                let token = if resource.needs_token { "yes" } else { "no" };
                [code(usage), (*result).to_owned(), token.to_owned()]
            })
        })
        .collect();
    page.push_str(&table(["request", "result", "token"], &rows));
    for resource in &ADMIN_RESOURCES {
        page.push_str(&format!(
            "\n## {}\n\nMethods: {}.",
            resource.path,
            resource.methods.join(", ")
        ));
        let answers = resource.answers.iter();
        let answers: Vec<_> =
            answers.map(|name| format!("[{name}](#{})", name.to_ascii_lowercase())).collect();
        if !answers.is_empty() {
            page.push_str(&format!(" Answer: {}.", answers.join(", ")));
        }
        page.push('\n');
        let errors: Vec<_> = resource
            .errors
            .iter()
            .map(|(status, meaning)| [status.to_string(), (*meaning).to_owned()])
            .collect();
        page.push_str(&table(["status", "meaning"], &errors));
    }
    page.push_str("\n## Types of the answers\n");
    let answers: Vec<_> = ADMIN_RESOURCES.iter().flat_map(|it| it.answers).copied().collect();
    page.push_str(&book.tables(&answers, 3)?);
    Ok(page)
}
