//! A program that runs, its log, and what the kernel says about it.

use std::fs;
use std::io::{BufRead, BufReader, PipeReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use crate::{tcp, wait};

/// Lines of a log that are kept; a program that writes more is not waited for any longer.
const MAX_LOG_LINES: usize = 200_000;

/// A running program, in a process group of its own. Dropping it kills the group; when a test fails, its log is printed
/// then.
#[derive(Debug)]
pub struct Program {
    name: String,
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
    reader: JoinHandle<()>,
}

/// How a program ended that ran to its end.
#[derive(Debug)]
pub struct Ended {
    /// Exit code; `None` after a signal.
    pub code: Option<i32>,
    /// Everything that it wrote, to standard output and error.
    pub output: String,
}

/// Returns once the child executes its program.
fn spawn(command: &mut Command) -> std::io::Result<Child> {
    let _no_port = tcp::NO_CHILD_STARTS.lock().unwrap_or_else(PoisonError::into_inner);
    command.process_group(0).spawn()
}

impl Program {
    /// Starts `command`. It dies with this process.
    ///
    /// # Panics
    /// When it can't be started.
    pub fn start(name: &str, mut command: Command) -> Self {
        let (read, write) = std::io::pipe().expect("a pipe");
        let errors = write.try_clone().expect("a second descriptor of a pipe");
        command.stdin(Stdio::null()).stdout(write).stderr(errors);
        // SAFETY: prctl is async-signal-safe and touches no memory of the parent.
        unsafe {
            command.pre_exec(|| Ok(prctl::set_pdeathsig(Signal::SIGKILL)?));
        }
        let child = spawn(&mut command).unwrap_or_else(|error| panic!("{name}: {error}"));
        // The parent's ends of the pipe, so that the reader sees the end.
        drop(command);
        let log = Arc::new(Mutex::new(Vec::new()));
        let lines = log.clone();
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(read).lines().map_while(Result::ok) {
                let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
                if lines.len() < MAX_LOG_LINES {
                    lines.push(line);
                }
            }
        });
        Self { name: name.to_owned(), child, log, reader }
    }

    /// Starts `command` with standard output and error in a pipe that nothing reads, and that holds one
    /// page. The pipe's other end has to be kept for as long as the program runs.
    ///
    /// # Panics
    /// When it can't be started.
    #[must_use]
    pub fn start_unread(name: &str, mut command: Command) -> (Self, PipeReader) {
        let (read, write) = std::io::pipe().expect("a pipe");
        fcntl(&write, FcntlArg::F_SETPIPE_SZ(4096)).expect("a pipe of one page");
        let errors = write.try_clone().expect("a second descriptor of a pipe");
        command.stdin(Stdio::null()).stdout(write).stderr(errors);
        // SAFETY: prctl is async-signal-safe and touches no memory of the parent.
        unsafe {
            command.pre_exec(|| Ok(prctl::set_pdeathsig(Signal::SIGKILL)?));
        }
        let child = spawn(&mut command).unwrap_or_else(|error| panic!("{name}: {error}"));
        let reader = std::thread::spawn(|| {});
        (Self { name: name.to_owned(), child, log: Arc::default(), reader }, read)
    }

    /// Runs `command` to its end.
    ///
    /// # Panics
    /// When that takes longer than `at_most`.
    pub fn run(name: &str, command: Command, at_most: Duration) -> Ended {
        let mut program = Self::start(name, command);
        let status = program.wait(at_most);
        Ended { code: status.code(), output: program.log_text() }
    }

    /// Its process identifier.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// Sends it a signal. After SIGSTOP it stands still: on a busy machine its threads go on for a while
    /// else.
    ///
    /// # Panics
    /// When it has been waited for already.
    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap_or_else(|error| panic!("{}: {error}", self.name));
        if signal == Signal::SIGSTOP {
            let stopped = waitid(Id::Pid(self.pid()), WaitPidFlag::WSTOPPED);
            stopped.unwrap_or_else(|error| panic!("{}: {error}", self.name));
        }
    }

    /// Kills it without a chance to say anything.
    pub fn kill(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }

    /// Whether it is still there.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for its end, and for all that it has written.
    ///
    /// # Panics
    /// When it does not come within `at_most`.
    #[track_caller]
    pub fn wait(&mut self, at_most: Duration) -> ExitStatus {
        let status = wait::until(at_most, || self.child.try_wait().ok().flatten())
            .unwrap_or_else(|| panic!("{} has not ended within {at_most:?}", self.name));
        self.finish_log();
        status
    }

    /// What it has written until now.
    #[must_use]
    pub fn log_text(&self) -> String {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).join("\n")
    }

    /// Waits until all that it wrote has been read. A child that it left behind may hold the other
    /// end of the pipe for ever, and is not waited for.
    fn finish_log(&self) {
        wait::until(Duration::from_secs(5), || self.reader.is_finished().then_some(()));
    }

    /// Waits for the first line of the log for which `wanted` returns a value.
    ///
    /// # Panics
    /// When no such line comes within `at_most`.
    #[track_caller]
    pub fn expect_log<T>(
        &self,
        what: &str,
        at_most: Duration,
        wanted: impl Fn(&str) -> Option<T>,
    ) -> T {
        let found = wait::until(at_most, || {
            let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
            log.iter().find_map(|line| wanted(line))
        });
        found.unwrap_or_else(|| panic!("{} logged nothing about {what}", self.name))
    }

    /// Resident memory in bytes (`VmRSS`).
    ///
    /// # Panics
    /// When it is gone.
    #[must_use]
    pub fn rss_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()))
            .unwrap_or_else(|error| panic!("{} is gone: {error}", self.name));
        let kib = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
        kib.unwrap_or_else(|| panic!("{} has no VmRSS", self.name)) * 1024
    }

    /// For how long its threads, each on its own, have waited for a processor while they had work:
    /// the longest of them.
    ///
    /// # Panics
    /// When it is gone.
    #[must_use]
    pub fn run_delay(&self) -> Duration {
        run_delay(&self.pid().to_string())
    }

    /// Processor time that it has used, in both modes.
    ///
    /// # Panics
    /// When it is gone.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        /// `USER_HZ` of all architectures that are built for.
        const TICK: Duration = Duration::from_millis(10);
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid()))
            .unwrap_or_else(|error| panic!("{} is gone: {error}", self.name));
        // The name before may have spaces and parentheses; utime and stime are fields 14 and 15 (proc(5)).
        let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
        let ticks = fields.split(' ').skip(11).take(2).filter_map(|it| it.parse::<u32>().ok());
        TICK * ticks.sum::<u32>()
    }

    /// Number of open file descriptors.
    ///
    /// # Panics
    /// When it is gone.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid()))
            .unwrap_or_else(|error| panic!("{} is gone: {error}", self.name))
            .count()
    }
}

/// [`Program::run_delay`] of the tests' own threads: relays, origins, readers.
///
/// # Panics
/// Without `/proc`.
#[must_use]
pub fn own_run_delay() -> Duration {
    run_delay("self")
}

fn run_delay(process: &str) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{process}/task"))
        .unwrap_or_else(|error| panic!("process {process} is gone: {error}"));
    let waited_ns = |task: fs::DirEntry| {
        let times = fs::read_to_string(task.path().join("schedstat")).ok()?;
        times.split(' ').nth(1)?.parse::<u64>().ok()
    };
    Duration::from_nanos(tasks.flatten().filter_map(waited_ns).max().unwrap_or(0))
}

impl Drop for Program {
    fn drop(&mut self) {
        let ended = self.child.try_wait().ok().flatten();
        let group = self.pid();
        self.kill();
        // Its children: a master of nginx that dies leaves its workers.
        killpg(group, Signal::SIGKILL).ok();
        self.finish_log();
        if std::thread::panicking() {
            let state = ended.map_or("was running".to_owned(), |status| status.to_string());
            eprintln!("-- {} ({state}) --\n{}", self.name, self.log_text());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_exit_code_are_told() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo err >&2; exit 3"]);
        let ended = Program::run("sh", command, wait::DEFAULT_TIMEOUT);
        assert_eq!((ended.code, ended.output.as_str()), (Some(3), "out\nerr"));
    }

    #[test]
    fn a_running_program_is_watched_and_killed() {
        let mut command = Command::new("sh");
        command.args(["-c", "exec 9</dev/null; echo ready; sleep 1000"]);
        let mut program = Program::start("sh", command);
        program.expect_log("ready", wait::DEFAULT_TIMEOUT, |line| (line == "ready").then_some(()));
        assert!(program.is_running() && program.rss_bytes() > 0);
        // Standard input, output and error, and the one above.
        assert!(program.descriptors() >= 4);
        program.kill();
        assert!(!program.is_running());
    }
}
