//! Listening Unix sockets, for flows from nginx on the same host.

use std::{
    fs, io,
    os::unix::{
        fs::{FileTypeExt, MetadataExt, PermissionsExt},
        net::UnixListener,
    },
    path::{Path, PathBuf},
};

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use socket2::{Domain, SockAddr, Socket, Type};

use super::mode::BACKLOG;

/// A listening Unix socket could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum UnixListenError {
    /// Another process listens on the path.
    #[error("cannot listen on {0}: another process listens there")]
    InUse(PathBuf),
    /// The path exists and is not a socket. It is not removed.
    #[error(
        "cannot listen on {0}: the path exists and is not a socket; remove it or choose another"
    )]
    NotASocket(PathBuf),
    /// A system call failed.
    #[error("cannot listen on {path}: {step}: {error}")]
    Io {
        /// Path of the socket.
        path: PathBuf,
        /// The system call that failed.
        step: &'static str,
        /// The error.
        error: io::Error,
    },
}

/// A nonblocking listening Unix socket and its file. Dropping it closes the socket and removes the
/// file, unless another process has replaced it; nginx then fails over at once.
#[derive(Debug)]
pub struct UnixSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the file.
    identity: (u64, u64),
}

impl UnixSocket {
    /// Binds a socket file at `path` and listens. A file left over by a process that died is
    /// replaced; one on which a process listens is not. `permissions` are the file's mode bits
    /// (`0o660`); without, the umask decides. They hold before the first connection can be made.
    ///
    /// # Errors
    /// See [`UnixListenError`].
    pub fn listen(path: &Path, permissions: Option<u32>) -> Result<Self, UnixListenError> {
        let step = |step: &'static str| {
            move |error: io::Error| UnixListenError::Io { path: path.into(), step, error }
        };
        remove_stale(path)?;
        remove_stale(&withdrawn_path(path))?;
        let socket = new_socket().map_err(step("socket"))?;
        let address = SockAddr::unix(path).map_err(step("path"))?;
        socket.bind(&address).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => UnixListenError::InUse(path.into()),
            _ => step("bind")(error),
        })?;
        let metadata = fs::symlink_metadata(path).map_err(step("stat"))?;
        // From here on dropping `bound` removes the file.
        let bound = Self {
            listener: std::os::fd::OwnedFd::from(socket).into(),
            path: path.into(),
            identity: (metadata.dev(), metadata.ino()),
        };
        if let Some(mode) = permissions {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(step("chmod"))?;
        }
        socket2::SockRef::from(&bound.listener).listen(BACKLOG).map_err(step("listen"))?;
        Ok(bound)
    }

    /// The listening socket.
    pub fn listener(&self) -> &UnixListener {
        &self.listener
    }

    /// Another handle of the same listening socket, for a further event loop: Unix sockets know no
    /// `SO_REUSEPORT`. The socket closes with its last handle, the file goes with this one.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn try_clone_listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }

    /// The socket file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Renames the file to a name that ends in `.withdrawn`, so that connecting fails at once.
    ///
    /// # Errors
    /// When the directory may not be changed.
    pub fn withdraw(&self) -> io::Result<()> {
        rename(&self.path, &withdrawn_path(&self.path))
    }

    /// Renames the file back.
    ///
    /// # Errors
    /// When the directory may not be changed, or another file has the name.
    pub fn publish(&self) -> io::Result<()> {
        rename(&withdrawn_path(&self.path), &self.path)
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        for path in [&self.path, &withdrawn_path(&self.path)] {
            let ours =
                fs::symlink_metadata(path).is_ok_and(|now| (now.dev(), now.ino()) == self.identity);
            if ours && let Err(error) = fs::remove_file(path) {
                tracing::warn!(path = %path.display(), %error, "cannot remove the socket file");
            }
        }
    }
}

fn withdrawn_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".withdrawn");
    name.into()
}

/// Renames without replacing an existing file.
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    Ok(renameat2(AT_FDCWD, from, AT_FDCWD, to, RenameFlags::RENAME_NOREPLACE)?)
}

fn new_socket() -> io::Result<Socket> {
    Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None)
}

/// Removes a socket file on which no process listens.
fn remove_stale(path: &Path) -> Result<(), UnixListenError> {
    let step = |step: &'static str| {
        move |error: io::Error| UnixListenError::Io { path: path.into(), step, error }
    };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(step("stat")(error)),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(UnixListenError::NotASocket(path.into()));
        }
        Ok(_) => {}
    }
    let address = SockAddr::unix(path).map_err(step("path"))?;
    // The probe does not block: where the backlog is full it gets EAGAIN, so a process listens.
    match new_socket().map_err(step("socket"))?.connect(&address) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(step("unlink"))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(step("connect")(error))
        }
        _ => Err(UnixListenError::InUse(path.into())),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_file_has_its_permissions_and_goes_with_the_socket() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("flows.sock");
        let socket = UnixSocket::listen(&path, Some(0o620)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o620);
        let error = socket.listener().accept().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        let clone = socket.try_clone_listener().unwrap();
        let _client = UnixStream::connect(&path).unwrap();
        clone.accept().unwrap();
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn a_stale_file_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("flows.sock");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "std leaves the file behind");
        let socket = UnixSocket::listen(&path, None).unwrap();
        let error = UnixSocket::listen(&path, None).unwrap_err();
        assert!(matches!(error, UnixListenError::InUse(_)), "{error}");
        UnixStream::connect(&path).unwrap();
        drop(socket);
    }

    #[test]
    fn a_withdrawn_socket_is_away_until_it_is_published_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("flows.sock");
        let socket = UnixSocket::listen(&path, None).unwrap();
        socket.withdraw().unwrap();
        let error = UnixStream::connect(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        // Still ours, though its name is free.
        let error = UnixSocket::listen(&path, None).unwrap_err();
        assert!(matches!(error, UnixListenError::InUse(_)), "{error}");
        socket.publish().unwrap();
        UnixStream::connect(&path).unwrap();
        socket.withdraw().unwrap();
        drop(socket);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn publish_does_not_replace_an_existing_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("flows.sock");
        let socket = UnixSocket::listen(&path, None).unwrap();
        socket.withdraw().unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        assert_eq!(socket.publish().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("precious");
        fs::write(&path, "data").unwrap();
        let error = UnixSocket::listen(&path, None).unwrap_err();
        assert!(matches!(error, UnixListenError::NotASocket(_)), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "data");
    }

    #[test]
    fn a_successors_file_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("flows.sock");
        let first = UnixSocket::listen(&path, None).unwrap();
        fs::remove_file(&path).unwrap();
        let second = UnixSocket::listen(&path, None).unwrap();
        drop(first);
        assert!(path.exists());
        UnixStream::connect(&path).unwrap();
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn a_path_too_long_is_an_error() {
        let path = PathBuf::from(format!("/tmp/{}", "x".repeat(200)));
        assert!(matches!(UnixSocket::listen(&path, None), Err(UnixListenError::Io { .. })));
    }
}
