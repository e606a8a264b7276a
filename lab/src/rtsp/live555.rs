//! live555's server and openRTSP, the players' load.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::interrupt;
use crate::netns::Namespace;
use crate::process::{Running, tail};

/// Where live555MediaServer listens when it is root.
pub const PORT: u16 = 554;

/// Time in which the server must listen.
const READY_TIMEOUT: Duration = Duration::from_secs(10);

/// The two programs.
#[derive(Debug, Clone)]
pub struct Live555 {
    server: PathBuf,
    client: PathBuf,
}

impl Live555 {
    /// The programs in `directory`.
    ///
    /// # Errors
    /// When they are missing: how to get them.
    pub fn locate(directory: &Path) -> Result<Self> {
        let find = |name: &str| {
            let path = directory.join(name);
            if !path.is_file() {
                bail!("{} is missing: run tests/scripts/live555.sh first", path.display());
            }
            path.canonicalize().with_context(|| path.display().to_string())
        };
        Ok(Self { server: find("live555MediaServer")?, client: find("openRTSP")? })
    }

    /// Serves the files in `directory` from `namespace` until it is dropped. Returns when it answers at `address`.
    ///
    /// # Errors
    /// When it does not listen in time; with its log.
    pub fn serve(
        &self,
        namespace: &Namespace,
        directory: &Path,
        address: SocketAddr,
        log: &Path,
    ) -> Result<Running> {
        let mut command = namespace.command(text(&self.server)?);
        command.current_dir(directory);
        let mut running = Running::start("live555MediaServer", &mut command, log)?;
        let open = interrupt::wait_for(READY_TIMEOUT, || {
            running.must_run(log)?;
            Ok(namespace.listens(address)?.then_some(()))
        })?;
        open.with_context(|| {
            format!("live555MediaServer: nothing listens at {address}\n{}", tail(log))
        })?;
        Ok(running)
    }

    /// Starts openRTSP, which fetches `file` from `server`, with RTP in the RTSP connection or to this UDP
    /// port and RTCP to the next. What it would write into `directory` goes nowhere.
    ///
    /// # Errors
    /// When it can't be started.
    pub fn fetch(
        &self,
        namespace: &Namespace,
        server: SocketAddr,
        file: &str,
        udp_port: Option<u16>,
        directory: &Path,
        log: &Path,
    ) -> Result<Running> {
        // The name that it gives to the first video of a session.
        let sink = directory.join("video-H264-1");
        if !sink.is_symlink() {
            std::os::unix::fs::symlink("/dev/null", &sink)
                .with_context(|| sink.display().to_string())?;
        }
        let mut command = namespace.command(text(&self.client)?);
        command.current_dir(directory).arg("-V");
        match udp_port {
            None => command.arg("-t"),
            Some(port) => command.args(["-p", &port.to_string()]),
        };
        command.arg(format!("rtsp://{server}/{file}"));
        Running::start("openRTSP", &mut command, log)
    }
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{}: not UTF-8", path.display()))
}
