//! The committed reference pages.

use std::collections::BTreeSet;
use std::fs;

use millrace_reference::{files, repository};

/// Pages that are written by hand.
const BY_HAND: [&str; 1] = ["README.md"];

#[test]
fn committed_reference_pages_are_what_the_code_says() {
    let directory = repository().join("docs/reference");
    let mut outdated = Vec::new();
    let mut names: BTreeSet<String> = BY_HAND.map(str::to_owned).into();
    for file in files().unwrap() {
        let committed = fs::read_to_string(directory.join(file.name)).unwrap_or_default();
        let different = committed.lines().zip(file.text.lines()).find(|(old, new)| old != new);
        if committed != file.text {
            outdated.push(format!("docs/reference/{}: {different:?}", file.name));
        }
        names.insert(file.name.to_owned());
    }
    assert!(outdated.is_empty(), "run `make reference` and commit:\n{}", outdated.join("\n"));
    let entries = fs::read_dir(&directory).unwrap();
    let found = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(names, found, "files of docs/reference/");
}

#[test]
fn reference_pages_have_nothing_of_this_machine() {
    let here = repository().canonicalize().unwrap().display().to_string();
    for file in files().unwrap() {
        assert!(!file.text.contains(&here), "{} has {here}", file.name);
        assert!(!file.text.contains("/root/"), "{} has a home directory", file.name);
    }
}
