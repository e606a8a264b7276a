//! Programs that are run to their end, and programs that run until a value is dropped.

use std::fs::File;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::interrupt;

/// How long a program gets between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(3);

/// Runs `command` to its end and answers its standard output.
///
/// # Errors
/// When it can't be started or fails; then with the command and what it wrote to standard error.
pub fn output_of(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{shown}: not found or not executable"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{shown}: {}: {}", output.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a program with arguments split at spaces: `ip("link set lo up")`.
///
/// # Errors
/// As [`output_of`].
pub fn ip(arguments: &str) -> Result<String> {
    output_of(Command::new("ip").args(arguments.split_ascii_whitespace()))
}

/// The command line.
#[must_use]
pub fn show(command: &Command) -> String {
    let mut shown = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        shown.push(' ');
        shown.push_str(&argument.to_string_lossy());
    }
    shown
}

/// A program in a process group of its own, which is ended when this is dropped. A Ctrl-C in the
/// terminal does not reach it directly, so it is ended in order.
#[derive(Debug)]
pub struct Running {
    child: Child,
    name: String,
    ended: bool,
}

impl Running {
    /// Starts `command`, its output going to the file `log`.
    ///
    /// # Errors
    /// When the log can't be written or the program can't be started.
    pub fn start(name: &str, command: &mut Command, log: &Path) -> Result<Self> {
        let out = File::create(log).with_context(|| format!("{}", log.display()))?;
        command.stdin(Stdio::null()).stdout(out.try_clone()?);
        Self::spawn(name, command, out)
    }

    /// Starts `command` with the standard input and output that it has, its standard error going to the file `log`.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_connected(name: &str, command: &mut Command, log: &Path) -> Result<Self> {
        let out = File::create(log).with_context(|| format!("{}", log.display()))?;
        Self::spawn(name, command, out)
    }

    fn spawn(name: &str, command: &mut Command, stderr: File) -> Result<Self> {
        command.stderr(stderr).process_group(0);
        let child = command.spawn().with_context(|| format!("{name}: {}", show(command)))?;
        Ok(Self { child, name: name.to_owned(), ended: false })
    }

    /// The program's process identifier.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The exit status if the program has ended.
    ///
    /// # Errors
    /// When the status can't be read.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        let status = self.child.try_wait().with_context(|| self.name.clone())?;
        self.ended |= status.is_some();
        Ok(status)
    }

    /// # Errors
    /// When the program has ended although it should run on; with the end of its `log`.
    pub fn must_run(&mut self, log: &Path) -> Result<()> {
        match self.ended()? {
            None => Ok(()),
            Some(status) => bail!("{} ended: {status}\n{}", self.name, tail(log)),
        }
    }

    /// Sends SIGTERM and does not wait. Programs that are all signalled first end in parallel when they are
    /// dropped.
    pub fn ask_to_end(&self) {
        if !self.ended {
            self.signal(Signal::SIGTERM);
        }
    }

    /// Sends SIGHUP, at which openRTSP sends TEARDOWN.
    pub fn hang_up(&self) {
        if !self.ended {
            self.signal(Signal::SIGHUP);
        }
    }

    fn signal(&self, signal: Signal) {
        if let Ok(pid) = i32::try_from(self.child.id()) {
            // Gone already is fine.
            killpg(Pid::from_raw(pid), signal).ok();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The group outlives its leader when that has left children behind.
        self.signal(Signal::SIGTERM);
        let end = Instant::now() + GRACE;
        while !self.ended && Instant::now() < end {
            if self.ended().is_err() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.signal(Signal::SIGKILL);
        self.child.wait().ok();
    }
}

/// Runs `command` to its end with its output going to `log`, calling `tick` with the elapsed time
/// about every 20 ms. Answers its exit status, whatever it is.
///
/// # Errors
/// When it can't be started or takes longer than `at_most` (with the end of its log), on Ctrl-C, or
/// the first error of `tick`; the program has then been ended.
pub fn run_logged(
    name: &str,
    command: &mut Command,
    log: &Path,
    at_most: Duration,
    mut tick: impl FnMut(Duration) -> Result<()>,
) -> Result<ExitStatus> {
    let started = Instant::now();
    let mut running = Running::start(name, command, log)?;
    let status = interrupt::wait_for(at_most, || {
        tick(started.elapsed())?;
        running.ended()
    })?;
    status
        .with_context(|| format!("{name} took longer than {} s\n{}", at_most.as_secs(), tail(log)))
}

/// # Errors
/// When `status` is not success; with the name and the end of the log.
pub fn must_succeed(name: &str, status: ExitStatus, log: &Path) -> Result<()> {
    if status.success() {
        return Ok(());
    }
    bail!("{name} failed ({status})\n{}", tail(log))
}

/// The last lines of a log with its path, to be shown with an error.
#[must_use]
pub fn tail(log: &Path) -> String {
    format!("-- {}:\n{}", log.display(), last_lines(log))
}

/// The last lines of a log.
#[must_use]
pub fn last_lines(log: &Path) -> String {
    let mut text = Vec::new();
    if let Ok(mut file) = File::open(log) {
        file.read_to_end(&mut text).ok();
    }
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}

/// # Errors
/// Names the first of `programs` (with the Debian package that has it) that is not in PATH.
pub fn require(programs: &[(&str, &str)]) -> Result<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    for (program, package) in programs {
        if !std::env::split_paths(&path).any(|dir| dir.join(program).is_file()) {
            bail!("{program} is not installed: apt-get install {package} (or `make setup`)");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_command_says_what_and_why() {
        let error = output_of(Command::new("ls").arg("/does/not/exist")).unwrap_err().to_string();
        assert!(error.contains("ls /does/not/exist") && error.contains("No such file"), "{error}");
    }

    #[test]
    fn a_missing_program_names_its_package() {
        require(&[("sh", "dash")]).unwrap();
        let error = require(&[("no-such-program", "its-package")]).unwrap_err().to_string();
        assert!(error.contains("apt-get install its-package"), "{error}");
    }

    #[test]
    fn a_dropped_program_and_its_children_end() {
        let dir = std::env::temp_dir().join(format!("millrace-lab-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let log = dir.join("log");
        let script = "sleep 1000 & echo $!; wait";
        let running = Running::start("sh", Command::new("sh").args(["-c", script]), &log).unwrap();
        let child = interrupt::wait_for(Duration::from_secs(5), || {
            let text = std::fs::read_to_string(&log)?;
            Ok(text.ends_with('\n').then(|| text.trim().to_owned()))
        });
        let proc = Path::new("/proc").join(child.unwrap().unwrap());
        assert!(proc.exists());
        drop(running);
        // The grandchild is reaped by init or stays a zombie of a container's first process.
        let gone = interrupt::wait_for(Duration::from_secs(5), || {
            let stat = std::fs::read_to_string(proc.join("stat")).unwrap_or_default();
            Ok((stat.is_empty() || stat.contains(") Z ")).then_some(()))
        });
        assert!(gone.unwrap().is_some());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
