//! The commit that is checked out. The build script has this file too.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Digits of a commit in a version; git's own abbreviations are unique with 12 in repositories of the kernel's size.
const ABBREVIATED_DIGITS: usize = 12;

/// What is checked out.
#[derive(Debug)]
pub struct Checkout {
    /// The commit, in hexadecimal.
    pub commit: String,
    /// Files that change when another commit is checked out.
    pub changes_with: Vec<PathBuf>,
}

/// The commit that is checked out in the repository with the top directory `top`. `None` without git, without a
/// repository, and where `top` is a directory within another repository, as an archive that was unpacked there.
pub fn of_repository(top: &Path) -> Option<Checkout> {
    let own = top.canonicalize().ok()?;
    let found = PathBuf::from(git(&own, &["rev-parse", "--show-toplevel"])?).canonicalize().ok()?;
    if found != own {
        return None;
    }
    let commit = git(&own, &["rev-parse", "HEAD"]).filter(|text| is_commit(text))?;
    // The reflog has a line for each commit and checkout. Cargo runs a build script each time if a file that it names is
    // missing.
    let log = file(&own, "logs/HEAD");
    let changes_with = match log {
        Some(log) => vec![log],
        None => {
            let branch = git(&own, &["symbolic-ref", "HEAD"]);
            let names = ["HEAD", "packed-refs"].into_iter().chain(branch.as_deref());
            names.filter_map(|name| file(&own, name)).collect()
        }
    };
    Some(Checkout { commit, changes_with })
}

/// A file of the repository, if it is there; a work tree has its own directory for some of them.
fn file(top: &Path, name: &str) -> Option<PathBuf> {
    let path = top.join(git(top, &["rev-parse", "--git-path", name])?);
    path.is_file().then_some(path)
}

fn git(directory: &Path, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    // A hook of git sets these, for another repository perhaps.
    for variable in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        command.env_remove(variable);
    }
    let output = command.arg("-C").arg(directory).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim_end().to_owned())
}

/// Whether it can be a commit: 7 to 64 hexadecimal digits.
pub fn is_commit(text: &str) -> bool {
    (7..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The first digits of a commit.
pub fn abbreviate(commit: &str) -> &str {
    commit.get(..ABBREVIATED_DIGITS).unwrap_or(commit)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn run(directory: &Path, arguments: &[&str]) {
        let identity = ["-c", "user.name=test", "-c", "user.email=test@example.com"];
        let all: Vec<_> = identity.iter().chain(arguments).copied().collect();
        assert!(git(directory, &all).is_some(), "git {arguments:?}");
    }

    #[test]
    fn a_repository_has_a_commit_and_a_file_that_changes_with_it() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path();
        run(top, &["init", "--quiet"]);
        assert!(of_repository(top).is_none(), "without a commit");
        run(top, &["commit", "--quiet", "--allow-empty", "--message", "one"]);
        let first = of_repository(top).unwrap();
        let contents = || -> Vec<_> {
            first.changes_with.iter().map(|file| fs::read_to_string(file).unwrap()).collect()
        };
        let before = contents();
        run(top, &["commit", "--quiet", "--allow-empty", "--message", "two"]);
        assert_ne!(of_repository(top).unwrap().commit, first.commit);
        assert_ne!(contents(), before);
    }

    #[test]
    fn files_are_named_without_a_reflog_too() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path();
        run(top, &["init", "--quiet"]);
        run(top, &["config", "core.logAllRefUpdates", "false"]);
        run(top, &["commit", "--quiet", "--allow-empty", "--message", "one"]);
        let found = of_repository(top).unwrap();
        assert_eq!(found.changes_with.len(), 2, "{found:?}");
        assert!(found.changes_with.iter().all(|file| file.is_file()), "{found:?}");
    }

    #[test]
    fn an_archive_has_no_commit_even_within_another_repository() {
        let directory = tempfile::tempdir().unwrap();
        let archive = directory.path().join("archive");
        fs::create_dir(&archive).unwrap();
        assert!(of_repository(&archive).is_none());
        run(directory.path(), &["init", "--quiet"]);
        run(directory.path(), &["commit", "--quiet", "--allow-empty", "--message", "one"]);
        assert!(of_repository(&archive).is_none());
    }

    #[test]
    fn commits_are_hexadecimal_and_shortened() {
        let commit = "0123456789abcdef0123456789abcdef01234567";
        assert!(is_commit(commit) && !is_commit("main") && !is_commit("0123456 x"));
        assert_eq!(abbreviate(commit), "0123456789ab");
        assert_eq!(abbreviate("0123456"), "0123456");
    }
}
