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

/// How long a proxy may take until it is up.
const READY_WITHIN: Duration = Duration::from_secs(20);

/// The built proxies.
#[derive(Debug, Clone)]
pub struct Binaries {
    /// millrace-client.
    pub client: PathBuf,
    /// millrace-server.
    pub server: PathBuf,
}

impl Binaries {
    /// The proxies beside this program.
    ///
    /// # Errors
    /// When they have not been built.
    pub fn locate() -> Result<Self> {
        Self::beside(&std::env::current_exe()?)
    }

    /// The proxies beside another program.
    ///
    /// # Errors
    /// When they have not been built.
    pub fn beside(program: &Path) -> Result<Self> {
        let directory = program.parent().context("this program lies in no directory")?;
        let find = |name: &str| {
            let path = directory.join(name);
            if !path.is_file() {
                bail!("{} is missing: run `make build` first", path.display());
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

/// One of them, to be started.
#[derive(Debug)]
pub struct Proxy<'a> {
    /// As errors call it.
    pub name: &'a str,
    /// The program.
    pub binary: &'a Path,
    /// Where it runs.
    pub namespace: &'a Namespace,
    /// Where its configuration is written; relative paths in it start there.
    pub config: &'a Path,
    /// The configuration.
    pub text: String,
    /// Where it answers about itself.
    pub admin: SocketAddr,
    /// Where its output goes.
    pub log: &'a Path,
}

impl Proxy<'_> {
    /// Starts it.
    ///
    /// # Errors
    /// When that can't be done.
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
        let ready = interrupt::wait_for(READY_WITHIN, || {
            running.must_run(self.log)?;
            http::get(self.namespace, self.admin, "/healthz")
        })?;
        let seconds = READY_WITHIN.as_secs();
        ready.with_context(|| {
            format!("{} not ready within {seconds} s\n{}", self.name, tail(self.log))
        })?;
        Ok(())
    }
}
