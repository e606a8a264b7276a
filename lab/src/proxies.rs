//! The two proxies: where they were built, their certificates, and how they are started.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::netns::Namespace;
use crate::process::{Running, output_of, tail};
use crate::{http, interrupt};

/// Name of the server's certificate.
pub const SERVER_NAME: &str = "millrace-server";

/// Name of the client's certificate.
pub const CLIENT_NAME: &str = "lab";

/// Time in which a proxy must be ready.
const READY_TIMEOUT: Duration = Duration::from_secs(20);

/// The built proxies.
#[derive(Debug, Clone)]
pub struct Binaries {
    /// millrace-client.
    pub client: PathBuf,
    /// millrace-server.
    pub server: PathBuf,
}

impl Binaries {
    /// The proxies in the directory that the environment variable `MILLRACE_BIN_DIR` names, or beside this program.
    ///
    /// # Errors
    /// When they have not been built.
    pub fn locate() -> Result<Self> {
        match std::env::var_os("MILLRACE_BIN_DIR") {
            Some(directory) => Self::within(Path::new(&directory)),
            None => Self::beside(&std::env::current_exe()?),
        }
    }

    /// The proxies beside another program.
    ///
    /// # Errors
    /// When they have not been built.
    pub fn beside(program: &Path) -> Result<Self> {
        Self::within(program.parent().context("this program lies in no directory")?)
    }

    fn within(directory: &Path) -> Result<Self> {
        let find = |name: &str| {
            let path = directory.join(name);
            if !path.is_file() {
                bail!(
                    "{} is missing: `make programs` in the repository builds it; MILLRACE_BIN_DIR names another directory",
                    path.display()
                );
            }
            Ok(path)
        };
        Ok(Self { client: find("millrace-client")?, server: find("millrace-server")? })
    }

    /// Makes a CA and both ends' certificates in `directory`, which is made too.
    ///
    /// # Errors
    /// When they can't be written.
    pub fn certify(&self, directory: &Path) -> Result<()> {
        fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        output_of(
            Command::new(&self.server)
                .args(["certificates", "--server-name", SERVER_NAME, "--client", CLIENT_NAME])
                .arg("--dir")
                .arg(directory),
        )?;
        Ok(())
    }
}

/// A proxy to be started.
#[derive(Debug)]
pub struct Proxy<'a> {
    /// Its name in errors.
    pub name: &'a str,
    /// The program.
    pub binary: &'a Path,
    /// Its network namespace.
    pub namespace: &'a Namespace,
    /// File for its configuration; relative paths in it start there.
    pub config: &'a Path,
    /// The configuration.
    pub text: String,
    /// Its admin listener.
    pub admin: SocketAddr,
    /// File for its output.
    pub log: &'a Path,
}

impl Proxy<'_> {
    /// Starts it.
    ///
    /// # Errors
    /// When the configuration can't be written or the program can't be started.
    pub fn start(&self) -> Result<Running> {
        fs::write(self.config, &self.text).with_context(|| self.config.display().to_string())?;
        let binary = self.binary.to_str().context("a path that is not UTF-8")?;
        let mut command = self.namespace.command(binary);
        command.arg("run").arg("--config").arg(self.config);
        Running::start(self.name, &mut command, self.log)
    }

    /// Waits until it is ready; a client is when it has its tunnel.
    ///
    /// # Errors
    /// When it ended, with its log, or is not ready in time.
    pub fn ready(&self, running: &mut Running) -> Result<()> {
        let ready = interrupt::wait_for(READY_TIMEOUT, || {
            running.must_run(self.log)?;
            http::get(self.namespace, self.admin, "/healthz")
        })?;
        let seconds = READY_TIMEOUT.as_secs();
        ready.with_context(|| {
            format!("{} not ready within {seconds} s\n{}", self.name, tail(self.log))
        })?;
        Ok(())
    }
}
