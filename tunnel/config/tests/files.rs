//! Every file under `valid/` loads; every file under `invalid/` is refused with the message that
//! its first line expects (`# expect: LINE:COLUMN: KEY: PROBLEM`, or a part of that).

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use millrace_config::{ConfigError, load_client, load_server};
use support::known;

fn files(kind: &str, side: &str) -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(kind).join(side);
    let entries = fs::read_dir(&directory).expect("the directory of these tests");
    let files: Vec<_> = entries.map(|entry| entry.expect("a directory entry").path()).collect();
    assert!(!files.is_empty(), "{} is empty", directory.display());
    files
}

fn load(side: &str, path: &Path) -> Result<(), ConfigError> {
    match side {
        "client" => load_client(path, &known).map(drop),
        _ => load_server(path, &known).map(drop),
    }
}

#[test]
fn valid_files_load() {
    for side in ["client", "server"] {
        for path in files("valid", side) {
            load(side, &path).unwrap_or_else(|error| panic!("{error}"));
        }
    }
}

#[test]
fn invalid_files_are_refused_with_place_key_and_what_is_allowed() {
    let mut wrong = Vec::new();
    for side in ["client", "server"] {
        for path in files("invalid", side) {
            let text = fs::read_to_string(&path).unwrap();
            let expected = text.lines().next().and_then(|line| line.strip_prefix("# expect: "));
            let expected = expected.unwrap_or_else(|| panic!("{} expects nothing", path.display()));
            let message = match load(side, &path) {
                Ok(()) => "loaded".to_owned(),
                Err(error) => error.to_string(),
            };
            if !message.starts_with(path.to_str().unwrap()) || !message.contains(expected) {
                wrong.push(format!("expected {expected}\n     got {message}"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
