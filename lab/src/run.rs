//! The files of a run on the machine, and the lock that distinguishes a running lab from a crashed one.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::fcntl::{Flock, FlockArg};

/// Locks and scratch directories of all runs.
const STATE: &str = "/run/millrace-lab";

/// Random names tried, of 16 million.
const NAMES_TRIED: u32 = 16;

/// The first part of the names of everything that a run makes.
pub const PREFIX: &str = "mr-";

/// One run of the lab: a random name for its namespaces and a scratch directory that only root
/// reads. Both go when it is dropped; a lock held for as long as the process lives keeps
/// [`crate::clean`] away from it.
#[derive(Debug)]
pub struct Run {
    id: String,
    scratch: PathBuf,
    lock: Flock<File>,
}

impl Run {
    /// Starts a run.
    ///
    /// # Errors
    /// Without root, or when the state directory can't be written.
    pub fn start() -> Result<Self> {
        require_root()?;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(STATE).with_context(|| STATE)?;
        let (id, file) = take_name(Path::new(STATE), random_id)?;
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock)
            .map_err(|(_, error)| error)
            .with_context(|| format!("lock {}", lock_path(&id).display()))?;
        let scratch = Path::new(STATE).join(&id);
        fs::DirBuilder::new().mode(0o700).create(&scratch)?;
        Ok(Self { id, scratch, lock })
    }

    /// Six hexadecimal digits.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The start of its namespaces' names: `mr-` and the digits.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{PREFIX}{}", self.id)
    }

    /// A directory for configurations, keys and sockets, removed at the end.
    #[must_use]
    pub fn scratch(&self) -> &Path {
        &self.scratch
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.scratch).ok();
        // Last, while still locked: until then `clean` would find the run.
        fs::remove_file(lock_path(&self.id)).ok();
        let _ = &self.lock;
    }
}

/// A name that no other run has, with its lock file in `state`; `random_id` makes names.
fn take_name(
    state: &Path,
    mut random_id: impl FnMut() -> Result<String>,
) -> Result<(String, File)> {
    for _ in 0..NAMES_TRIED {
        let id = random_id()?;
        let path = lock_in(state, &id);
        match OpenOptions::new().create_new(true).write(true).mode(0o600).open(&path) {
            Ok(file) => return Ok((id, file)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).with_context(|| format!("lock {}", path.display())),
        }
    }
    bail!(
        "{NAMES_TRIED} random names in a row are taken by other runs: `millrace-lab clean` removes \
         crashed ones, {} lists them",
        state.display()
    )
}

/// # Errors
/// Says what needs root and how to get it.
pub fn require_root() -> Result<()> {
    if nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    bail!(
        "this needs root: it makes network namespaces and opens packet sockets (run it with sudo)"
    )
}

/// A run whose process has gone. Holding it keeps others from cleaning the same one.
#[derive(Debug)]
pub struct Crashed {
    /// Its six digits.
    pub id: String,
    _lock: Flock<File>,
}

impl Crashed {
    /// Removes its scratch directory and its lock.
    pub fn forget(self) {
        fs::remove_dir_all(Path::new(STATE).join(&self.id)).ok();
        fs::remove_file(lock_path(&self.id)).ok();
    }
}

/// All runs whose process has gone without cleaning up.
///
/// # Errors
/// When the state directory can't be read.
pub fn crashed() -> Result<Vec<Crashed>> {
    let entries = match fs::read_dir(STATE) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| STATE),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let Some(id) = lock_id(&path) else { continue };
        let Ok(file) = File::open(&path) else { continue };
        if let Ok(lock) = Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            found.push(Crashed { id, _lock: lock });
        }
    }
    Ok(found)
}

fn lock_path(id: &str) -> PathBuf {
    lock_in(Path::new(STATE), id)
}

fn lock_in(state: &Path, id: &str) -> PathBuf {
    state.join(format!("{id}.lock"))
}

fn lock_id(path: &Path) -> Option<String> {
    let id = path.file_name()?.to_str()?.strip_suffix(".lock")?;
    let well_formed = id.len() == 6 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    well_formed.then(|| id.to_owned())
}

fn random_id() -> Result<String> {
    let mut bytes = [0_u8; 3];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lock_files_of_runs_count() {
        assert_eq!(lock_id(Path::new("/run/millrace-lab/0a1b2c.lock")), Some("0a1b2c".into()));
        assert_eq!(lock_id(Path::new("/run/millrace-lab/0a1b2c")), None);
        assert_eq!(lock_id(Path::new("/run/millrace-lab/../x.lock")), None);
        assert_eq!(lock_id(Path::new("/run/millrace-lab/0a1b2g.lock")), None);
    }

    #[test]
    fn a_taken_name_is_not_taken_again() {
        let state = tempfile::tempdir().unwrap();
        let mut names = ["abcdef", "abcdef", "012345"].into_iter().map(|id| Ok(id.to_owned()));
        let mut next = || names.next().unwrap();
        assert_eq!(take_name(state.path(), &mut next).unwrap().0, "abcdef");
        assert_eq!(take_name(state.path(), &mut next).unwrap().0, "012345");

        let error = take_name(state.path(), || Ok("012345".to_owned())).unwrap_err().to_string();
        assert!(error.contains("millrace-lab clean"), "{error}");
    }

    #[test]
    fn ids_differ() {
        assert_ne!(random_id().unwrap(), random_id().unwrap());
    }
}
