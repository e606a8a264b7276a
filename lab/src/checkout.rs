//! Files of the repository that commands need from any directory: scenarios, built pages, the player.

use std::path::{Path, PathBuf};

/// A directory that every checkout has, and few others.
const MARKER: &str = "lab/scenarios";

/// `path`; where a relative one leads nowhere from the current directory, the same path in the checkout.
#[must_use]
pub fn existing(path: &Path) -> PathBuf {
    if path.exists() {
        return path.to_owned();
    }
    match directory() {
        Some(checkout) if checkout.join(path).exists() => checkout.join(path),
        _ => path.to_owned(),
    }
}

/// The checkout that holds this program, else the one that holds the current directory.
#[must_use]
pub fn directory() -> Option<PathBuf> {
    let program = std::env::current_exe().and_then(|path| path.canonicalize()).ok();
    let current = std::env::current_dir().ok();
    program.iter().chain(&current).find_map(|start| above(start))
}

/// A file beside this program.
#[must_use]
pub fn beside_program(name: &str) -> Option<PathBuf> {
    let program = std::env::current_exe().and_then(|path| path.canonicalize()).ok()?;
    Some(program.with_file_name(name)).filter(|path| path.is_file())
}

fn above(start: &Path) -> Option<PathBuf> {
    start.ancestors().find(|it| it.join(MARKER).is_dir()).map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkout_is_found_above_a_path() {
        let top = tempfile::tempdir().unwrap();
        let program = top.path().join("target/release/millrace-lab");
        assert_eq!(above(&program), None);
        std::fs::create_dir_all(top.path().join(MARKER)).unwrap();
        assert_eq!(above(&program).as_deref(), Some(top.path()));
    }

    #[test]
    fn paths_that_lead_nowhere_are_those_of_the_checkout() {
        // The tests run in `lab/`, which has no directory of this name.
        let found = existing(Path::new("lab/scenarios/papers"));
        assert!(found.is_absolute() && found.is_dir(), "{}", found.display());
        assert_eq!(existing(Path::new("src")), Path::new("src"));
        assert_eq!(existing(Path::new("no/such/file")), Path::new("no/such/file"));
    }
}
