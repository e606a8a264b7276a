//! Starts nginx with listening sockets that are `IP_TRANSPARENT`, which it has no directive for.
//!
//! A new nginx takes listening sockets over from the one it replaces: the environment variable
//! `NGINX` lists their descriptors, each followed by a semicolon, and a `listen` directive with the
//! address of one of them gets it instead of a socket of its own ("Upgrading Executable on the Fly",
//! nginx.org/en/docs/control.html). Reloads and upgrades then pass them on. This program opens them,
//! and becomes nginx. For nginx that means to stay in the foreground, whatever `daemon` says.

use std::convert::Infallible;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::str::FromStr;

use anyhow::Context;
use clap::Args;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};

use crate::intercept::{UnixSocket, listen_tcp_alone};
use crate::nginx_rtsp;

/// The environment variable that lists inherited listening sockets for nginx.
const INHERITED_SOCKETS: &str = "NGINX";

/// Permissions of Unix sockets: those that nginx gives its own. The permissions of their directory
/// restrict access.
const UNIX_PERMISSIONS: u32 = 0o666;

/// How nginx is started.
#[derive(Args, Clone, Debug)]
pub struct NginxArgs {
    /// What to listen on, written as in nginx's `listen`: 0.0.0.0:PORT, [::]:PORT or unix:PATH.
    /// Once for each
    #[arg(long, required = true, value_name = "ADDRESS")]
    pub listen: Vec<NginxListen>,
    /// The program
    #[arg(long, default_value = "/usr/sbin/nginx")]
    pub nginx: PathBuf,
    /// Arguments for nginx, as `-c /etc/millrace/nginx/client-edge/nginx.conf`
    #[arg(last = true)]
    pub arguments: Vec<OsString>,
}

/// One of nginx's `listen` directives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NginxListen {
    /// Transparent. Always all addresses, for nginx asks a connection which address it was made to
    /// only then, and otherwise takes its listener's.
    Tcp(SocketAddr),
    /// A Unix socket. Unlike nginx this program replaces the file of one that died.
    Unix(PathBuf),
}

impl FromStr for NginxListen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.starts_with('/') {
                true => Ok(Self::Unix(path.into())),
                false => {
                    Err("expected an absolute path, as unix:/run/millrace-nginx/direct.sock".into())
                }
            };
        }
        let expected = "expected 0.0.0.0:PORT, [::]:PORT or unix:PATH";
        let address: SocketAddr = text.parse().map_err(|_| expected.to_owned())?;
        if !address.ip().is_unspecified() {
            return Err(format!(
                "{expected}: on one address nginx would take that for every flow's destination"
            ));
        }
        if address.port() == 0 {
            return Err(format!("{expected}, with the port of nginx's `listen`"));
        }
        Ok(Self::Tcp(address))
    }
}

enum EdgeSocket {
    Tcp(std::net::TcpListener),
    Unix(UnixSocket),
}

impl EdgeSocket {
    fn open(listen: &NginxListen) -> anyhow::Result<Self> {
        Ok(match listen {
            NginxListen::Tcp(address) => Self::Tcp(listen_tcp_alone(*address)?),
            NginxListen::Unix(path) => {
                Self::Unix(UnixSocket::listen(path, Some(UNIX_PERMISSIONS))?)
            }
        })
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(socket) => socket.listener().as_fd(),
        }
    }
}

/// Opens the sockets and becomes nginx.
///
/// # Errors
/// When a socket can't be opened, or the program can't be started.
pub fn run(arguments: &NginxArgs) -> anyhow::Result<ExitCode> {
    match start(arguments)? {}
}

fn start(arguments: &NginxArgs) -> anyhow::Result<Infallible> {
    let sockets = arguments
        .listen
        .iter()
        .map(EdgeSocket::open)
        .collect::<anyhow::Result<Vec<EdgeSocket>>>()?;
    for socket in &sockets {
        fcntl(socket.descriptor(), FcntlArg::F_SETFD(FdFlag::empty()))
            .context("can't keep a socket open for nginx")?;
    }
    nginx_rtsp::warn(&arguments.arguments);
    let mut command = Command::new(&arguments.nginx);
    command.args(&arguments.arguments).env(INHERITED_SOCKETS, inherited_sockets(&sockets));
    // Returns only on failure; the sockets are then closed and their files removed.
    let error = command.exec();
    Err(error).with_context(|| format!("can't start {}", arguments.nginx.display()))
}

/// The variable's value: `3;4;`.
fn inherited_sockets(sockets: &[EdgeSocket]) -> String {
    let mut list = String::new();
    for socket in sockets {
        // Writing to a string can't fail.
        let _ = write!(list, "{};", socket.descriptor().as_raw_fd());
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_that_nginx_can_use() {
        let all = |text: &str| NginxListen::Tcp(text.parse().unwrap());
        assert_eq!("0.0.0.0:15001".parse(), Ok(all("0.0.0.0:15001")));
        assert_eq!("[::]:15001".parse(), Ok(all("[::]:15001")));
        assert_eq!("unix:/run/a.sock".parse(), Ok(NginxListen::Unix("/run/a.sock".into())));
        for (text, word) in [
            ("127.0.0.1:15001", "destination"),
            ("0.0.0.0:0", "port"),
            ("15001", "expected"),
            ("unix:a.sock", "absolute"),
        ] {
            let error = text.parse::<NginxListen>().unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn a_program_that_is_not_there_leaves_no_socket_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("direct.sock");
        let arguments = NginxArgs {
            listen: vec![NginxListen::Unix(path.clone())],
            nginx: dir.path().join("nginx"),
            arguments: Vec::new(),
        };
        let error = run(&arguments).unwrap_err();
        assert!(format!("{error:#}").contains("can't start"), "{error:#}");
        assert!(!path.exists());
    }
}
