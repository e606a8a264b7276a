//! Configurations that commands write.

use std::fmt::Display;
use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use millrace_ops::certificates;

/// Name of a file that is written to see whether that is possible.
const PROBE: &str = ".millrace-probe";

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

/// Makes the directory of a configuration if it is missing, and checks that a file can be written there.
///
/// # Errors
/// It can't.
pub fn prepare_directory(path: &Path) -> anyhow::Result<()> {
    let Some(directory) = path.parent().filter(|it| !it.as_os_str().is_empty()) else {
        return Ok(());
    };
    // Not closed to others: the user that the program runs as reads the file.
    fs::create_dir_all(directory)
        .with_context(|| format!("can't make the directory {}", directory.display()))?;
    let probe = directory.join(PROBE);
    certificates::write_file(&probe, "", 0o600, true)?;
    fs::remove_file(&probe).with_context(|| format!("can't remove {}", probe.display()))
}

/// Writes a configuration, and makes its directory if that is missing.
///
/// # Errors
/// It can't be written, or it exists and is not to be replaced.
pub fn write_config(path: &Path, text: &str, replace: bool) -> anyhow::Result<()> {
    prepare_directory(path)?;
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
        prepare_directory(&path).unwrap();
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 0);
        assert!(prepare_directory(Path::new("/dev/null/server.toml")).is_err());
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
