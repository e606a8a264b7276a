//! Configurations that commands write.

use std::fmt::Display;
use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use millrace_ops::certificates;

/// Checks that none of `paths` exists, unless they may be replaced.
///
/// # Errors
/// One exists.
pub fn ensure_absent(paths: &[&Path], replace: bool) -> anyhow::Result<()> {
    match paths.iter().find(|path| !replace && path.symlink_metadata().is_ok()) {
        None => Ok(()),
        Some(path) => {
            bail!("{} exists; --replace replaces it, or choose other paths", path.display())
        }
    }
}

/// Writes a configuration, and makes its directory if that is missing.
///
/// # Errors
/// It can't be written, or it exists and is not to be replaced.
pub fn write_config(path: &Path, text: &str, replace: bool) -> anyhow::Result<()> {
    if let Some(directory) = path.parent().filter(|it| !it.as_os_str().is_empty()) {
        // Not closed to others: the user that the program runs as reads the file.
        fs::create_dir_all(directory)
            .with_context(|| format!("can't make the directory {}", directory.display()))?;
    }
    certificates::write_file(path, text, 0o644, replace)?;
    Ok(())
}

/// A TOML string; JSON strings are such.
pub fn toml_string(text: impl Display) -> String {
    serde_json::Value::String(text.to_string()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn existing_file_is_replaced_on_demand_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/server.toml");
        ensure_absent(&[&path], false).unwrap();
        write_config(&path, "a", false).unwrap();
        assert!(ensure_absent(&[&path], false).unwrap_err().to_string().contains("--replace"));
        assert!(write_config(&path, "b", false).is_err());
        ensure_absent(&[&path], true).unwrap();
        write_config(&path, "b", true).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "b");
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(toml_string("/a \"b\"\\c\n"), r#""/a \"b\"\\c\n""#);
    }
}
