//! Network namespaces that remove themselves.

use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::process::{ip, output_of};
use crate::run::{PREFIX, Run};

/// Where `ip netns` mounts named namespaces.
const MOUNTS: &str = "/run/netns";

/// How long processes get to end before they are killed.
const GRACE: Duration = Duration::from_secs(2);

/// A named network namespace. Dropping it ends the processes inside and removes it with all of its
/// interfaces.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

/// The right to enter a namespace from another thread.
#[derive(Debug)]
pub struct NamespaceHandle(File, String);

impl NamespaceHandle {
    /// Moves the calling thread, and only it, into the namespace for good.
    ///
    /// # Errors
    /// Without the privilege (`CAP_SYS_ADMIN`).
    pub fn enter(&self) -> Result<()> {
        setns(&self.0, CloneFlags::CLONE_NEWNET).with_context(|| format!("enter {}", self.1))
    }
}

impl Namespace {
    /// Makes the namespace `mr-<id>-<role>` with its loopback up and without IPv6 autoconfiguration,
    /// whose packets would add to the configured load.
    ///
    /// # Errors
    /// When `ip` fails.
    pub fn create(run: &Run, role: &str) -> Result<Self> {
        let name = format!("{PREFIX}{}-{role}", run.id());
        ip(&format!("netns add {name}"))?;
        let namespace = Self { name };
        namespace.ip("link set lo up")?;
        namespace.sysctl("net.ipv6.conf.default.autoconf", "0")?;
        namespace.sysctl("net.ipv6.conf.default.accept_ra", "0")?;
        namespace.sysctl("net.ipv6.conf.default.addr_gen_mode", "1")?;
        Ok(namespace)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `program`, to be run inside.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// Runs `ip` inside with arguments split at spaces.
    ///
    /// # Errors
    /// When it fails.
    pub fn ip(&self, arguments: &str) -> Result<String> {
        ip(&format!("-n {} {arguments}", self.name))
    }

    /// Sets a kernel parameter of this namespace: `("net.ipv4.ip_forward", "1")`.
    ///
    /// # Errors
    /// When the parameter is unknown or not of a namespace.
    pub fn sysctl(&self, name: &str, value: &str) -> Result<()> {
        let assignment = format!("{name}={value}");
        output_of(self.command("sysctl").args(["-q", "-w", &assignment]))?;
        Ok(())
    }

    /// The right for a thread to enter.
    ///
    /// # Errors
    /// When the namespace is gone.
    pub fn handle(&self) -> Result<NamespaceHandle> {
        let path = format!("{MOUNTS}/{}", self.name);
        let file = File::open(&path).with_context(|| path)?;
        Ok(NamespaceHandle(file, self.name.clone()))
    }

    /// Runs `action` on a thread inside the namespace and waits for it. Sockets that it opens stay
    /// in the namespace wherever they are used.
    ///
    /// # Errors
    /// When the namespace can't be entered, or the error of `action`.
    pub fn inside<T: Send>(&self, action: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let handle = self.handle()?;
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                handle.enter()?;
                action()
            });
            thread.join().map_err(|_| anyhow!("a thread in {} panicked", self.name))?
        })
    }

    /// Whether something at `address` takes connections from inside.
    ///
    /// # Errors
    /// When the namespace can't be entered.
    pub fn listens(&self, address: SocketAddr) -> Result<bool> {
        const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
        self.inside(|| Ok(TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).is_ok()))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        remove(&self.name);
    }
}

/// Names of the namespaces that the run `id` made.
#[must_use]
pub fn of_run(id: &str) -> Vec<String> {
    let start = format!("{PREFIX}{id}-");
    let Ok(entries) = std::fs::read_dir(MOUNTS) else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with(&start))
        .collect()
}

/// Ends all processes in the namespace and removes it. Errors are not reported: `clean` finds what remains.
pub fn remove(name: &str) {
    let end = Instant::now() + GRACE;
    let mut signal = Signal::SIGTERM;
    loop {
        let pids = pids(name);
        if pids.is_empty() {
            break;
        }
        for pid in pids {
            kill(pid, signal).ok();
        }
        if Instant::now() >= end + GRACE {
            break;
        }
        if Instant::now() >= end {
            signal = Signal::SIGKILL;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    ip(&format!("netns del {name}")).ok();
}

fn pids(name: &str) -> Vec<Pid> {
    let own = Pid::this();
    let listed = ip(&format!("netns pids {name}")).unwrap_or_default();
    listed
        .split_ascii_whitespace()
        .filter_map(|pid| pid.parse().ok().map(Pid::from_raw))
        .filter(|pid| *pid != own)
        .collect()
}
