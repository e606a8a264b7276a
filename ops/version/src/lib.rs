//! The version of the programs.

#[cfg(test)]
mod commit;

/// The version of the package, and in parentheses the commit that was built, as `0.1.0 (0123456789ab)`. A build from an
/// archive has no commit. Changes that are not committed do not show.
pub const VERSION: &str = env!("MILLRACE_VERSION");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_package_with_a_commit_or_without() {
        let rest = VERSION.strip_prefix(env!("CARGO_PKG_VERSION")).unwrap();
        let commit = rest.strip_prefix(" (").and_then(|rest| rest.strip_suffix(')'));
        assert!(rest.is_empty() || commit.is_some_and(commit::is_commit), "{VERSION}");
    }
}
