//! The reference pages in `docs/reference/`, generated from the code.
//!
//! `make reference` writes them; a test compares them with those that are committed. Nothing in them depends on the
//! machine, the time or the commit.

mod admin;
mod command_line;
mod configuration;
mod example;
mod markdown;
mod metrics;
mod results;
mod scenarios;
mod source;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A file in `docs/reference/`.
pub struct ReferenceFile {
    /// Its name.
    pub name: &'static str,
    /// Its content.
    pub text: String,
}

/// The top directory of the repository.
#[must_use]
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All files, as they are to be.
///
/// # Errors
/// The code lacks something that a page needs, such as the description of a key.
pub fn files() -> Result<Vec<ReferenceFile>> {
    let client = configuration::client().context("configuration of millrace-client")?;
    let server = configuration::server().context("configuration of millrace-server")?;
    let page = |name, text| ReferenceFile { name, text };
    Ok(vec![
        page("configuration-client.md", client.page),
        page("client.schema.json", client.schema),
        page("configuration-server.md", server.page),
        page("server.schema.json", server.schema),
        page("command-line.md", command_line::page()),
        page("metrics.md", metrics::page().context("metrics")?),
        page("admin-api.md", admin::page().context("admin API")?),
        page("scenarios.md", scenarios::page().context("scenarios")?),
        page("results.md", results::page().context("results")?),
    ])
}
