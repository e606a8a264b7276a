//! `millrace-reference`: writes `docs/reference/`.

use std::fs;

use anyhow::{Context, Result};
use millrace_reference::{files, repository};

fn main() -> Result<()> {
    let directory = repository().join("docs/reference");
    for file in files()? {
        let path = directory.join(file.name);
        fs::write(&path, file.text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}
