//! Sets `MILLRACE_VERSION`. The script runs again after a commit or a checkout, and not after other changes.

use std::env;
use std::path::Path;

#[path = "src/commit.rs"]
mod commit;

/// A commit for builds without a repository, as in an image.
const VARIABLE: &str = "MILLRACE_COMMIT";

fn main() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/commit.rs");
    let given = env::var(VARIABLE).ok().filter(|text| commit::is_commit(text));
    let found = commit::of_repository(&top);
    for file in found.iter().flat_map(|it| &it.changes_with) {
        println!("cargo::rerun-if-changed={}", file.display());
    }
    let package = env!("CARGO_PKG_VERSION");
    let version = match given.or(found.map(|it| it.commit)) {
        Some(commit) => format!("{package} ({})", commit::abbreviate(&commit)),
        None => package.to_owned(),
    };
    println!("cargo::rustc-env=MILLRACE_VERSION={version}");
}
