//! The emulator's errors on a machine that it can't run on, and that it leaves nothing behind. Each test needs
//! root to make the machine so.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

use millrace_lab::run::PREFIX;

const LAB: &str = env!("CARGO_BIN_EXE_millrace-lab");

const SCENARIO: &str = "name = \"short\"\ntitle = \"Short\"\nduration_s = 3\n\
    link = { rate_mbps = 10, rtt_ms = 20, buffer_bytes = 50000 }\n[[flow]]\ncc = \"kernel:cubic\"\n";

/// Writes `scenario` to `directory`, which all users may read.
fn file(directory: &Path, scenario: &str) -> std::path::PathBuf {
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
    let path = directory.join("short.toml");
    fs::write(&path, scenario).unwrap();
    path
}

/// The namespaces of all runs.
fn namespaces() -> Vec<String> {
    let Ok(all) = fs::read_dir("/run/netns") else { return Vec::new() };
    let names = all.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with(PREFIX)).collect()
}

/// A run of a scenario with the emulator, with results to `out` beside it.
fn run_emulator(lab: &Path, scenario: &Path) -> Command {
    let mut command = Command::new(lab);
    command.args(["run", "--driver", "emulator"]);
    command.arg(scenario).arg("--out").arg(scenario.with_file_name("out"));
    command
}

/// Serialises the tests: the name of a namespace has its run and not its test.
static ALONE: Mutex<()> = Mutex::new(());

/// Asserts that it fails, names `words`, and leaves no namespace of its own.
fn is_refused(command: &mut Command, words: &[&str]) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let before = namespaces();
    let Output { status, stderr, stdout } = command.output().unwrap();
    // Problems of a run are printed with the results of the others.
    let said = String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned();
    assert!(status.code().is_some_and(|code| code != 0), "{status}: {said}");
    for word in words {
        assert!(said.contains(word), "{word} is not in: {said}");
    }
    assert_eq!(namespaces(), before, "{said}");
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn without_root_the_error_names_what_needs_it() {
    let directory = tempfile::tempdir().unwrap();
    let scenario = file(directory.path(), SCENARIO);
    // Where all users may run it.
    let lab = directory.path().join("millrace-lab");
    fs::copy(LAB, &lab).unwrap();
    for name in ["millrace-client", "millrace-server"] {
        let from = Path::new(LAB).with_file_name(name);
        fs::copy(from, directory.path().join(name)).unwrap();
    }
    let asked = run_emulator(&lab, &scenario);
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.arg(asked.get_program()).args(asked.get_args());
    is_refused(&mut command, &["needs root", "network namespaces", "sudo"]);
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn a_missing_program_is_named_with_its_package() {
    let directory = tempfile::tempdir().unwrap();
    let scenario = file(directory.path(), SCENARIO);
    let mut command = run_emulator(Path::new(LAB), &scenario);
    command.env("PATH", directory.path());
    is_refused(&mut command, &["ip is not installed", "apt-get install iproute2", "make setup"]);
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn a_malformed_trace_is_named() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("bad.up"), "1\nx\n").unwrap();
    let link = "trace = \"bad.up\", trace_format = \"mahimahi\"";
    let scenario = file(directory.path(), &SCENARIO.replace("rate_mbps = 10", link));
    let mut command = run_emulator(Path::new(LAB), &scenario);
    command.arg("--traces").arg(directory.path());
    is_refused(&mut command, &["bad.up:2: \"x\" is no whole number"]);
}

/// A file system of a few pages, gone when this is dropped.
struct Tiny<'a>(&'a Path);

impl<'a> Tiny<'a> {
    fn mount(at: &'a Path) -> Self {
        let size = ["-t", "tmpfs", "-o", "size=16k", "tmpfs"];
        assert!(Command::new("mount").args(size).arg(at).status().unwrap().success());
        Self(at)
    }
}

impl Drop for Tiny<'_> {
    fn drop(&mut self) {
        Command::new("umount").arg(self.0).status().ok();
    }
}

#[test]
#[ignore = "needs root and network namespaces; run by make test"]
fn a_full_disk_is_named_and_nothing_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let scenario = file(directory.path(), SCENARIO);
    let out = directory.path().join("out");
    fs::create_dir(&out).unwrap();
    let _disk = Tiny::mount(&out);
    is_refused(
        &mut run_emulator(Path::new(LAB), &scenario),
        &["No space left on device", out.to_str().unwrap()],
    );
}
