//! System calls of ports.

use std::io;

/// Frames that are read or written at a time.
pub(crate) const BATCH: usize = 64;

pub(super) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
