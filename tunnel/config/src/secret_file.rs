//! Files with secrets: not every user of this host may read them.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What such a file has.
pub(crate) struct SecretFile {
    pub text: String,
    /// ID of the user that owns it.
    pub owner: u32,
    /// ID of the group whose members can read it, if they can.
    pub group: Option<u32>,
}

/// Reads a file with a secret, of at most `max_bytes`.
///
/// # Errors
/// What is wrong with the file, and what would be right.
pub(crate) fn read(path: &Path, max_bytes: u64) -> io::Result<SecretFile> {
    let opened = fs::File::open(path);
    let file = opened.map_err(|error| wrong(path, format!("can't be read: {error}")))?;
    let metadata = file.metadata()?;
    let mode = metadata.mode() & 0o777;
    if mode & 0o007 != 0 {
        let problem = format!("mode {mode:04o} lets every user of this host use it: chmod 600");
        return Err(wrong(path, problem));
    }
    let mut text = String::new();
    let read = file.take(max_bytes + 1).read_to_string(&mut text);
    read.map_err(|error| wrong(path, format!("can't be read: {error}")))?;
    match text.len() as u64 > max_bytes {
        true => Err(wrong(path, format!("has more than {max_bytes} bytes"))),
        false => Ok(SecretFile {
            text,
            owner: metadata.uid(),
            group: (mode & 0o040 != 0).then(|| metadata.gid()),
        }),
    }
}

/// An error of a file.
pub(crate) fn wrong(path: &Path, problem: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("{}: {problem}", path.display()))
}
