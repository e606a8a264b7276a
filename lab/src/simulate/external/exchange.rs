//! A running program, and the exchange of lines with it.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::protocol::{self, EXPECTED, ExternalDecision, ExternalMessage};
use crate::interrupt;
use crate::process::{Running, last_lines};

/// Maximum size of an answer.
const MAX_ANSWER_BYTES: usize = 4096;
/// How long the exit status of a program is waited for that has closed its output.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// A program whose standard input and output are one UNIX socket. It is ended when this is dropped.
#[derive(Debug)]
pub(super) struct ExternalProcess {
    running: Running,
    log: PathBuf,
    stream: UnixStream,
    timeout: Duration,
    line: Vec<u8>,
}

impl ExternalProcess {
    /// Starts `command` in `directory`; its standard error goes to `log`.
    ///
    /// # Errors
    /// The program can't be started.
    pub(super) fn start(
        command: &[String],
        directory: &Path,
        log: PathBuf,
        timeout: Duration,
    ) -> Result<Self, String> {
        let run = || -> anyhow::Result<Self> {
            if let Some(logs) = log.parent() {
                fs::create_dir_all(logs)?;
            }
            let (stream, other) = UnixStream::pair()?;
            stream.set_read_timeout(Some(timeout))?;
            stream.set_write_timeout(Some(timeout))?;
            let (program, arguments) =
                command.split_first().ok_or_else(|| anyhow::anyhow!("no command"))?;
            let mut command = Command::new(program);
            command.args(arguments);
            if !directory.as_os_str().is_empty() {
                command.current_dir(directory);
            }
            let other = OwnedFd::from(other);
            command.stdin(Stdio::from(other.try_clone()?)).stdout(Stdio::from(other));
            let running = Running::start_connected("can't start", &mut command, &log)?;
            Ok(Self { running, log, stream, timeout, line: Vec::new() })
        };
        run().map_err(|error| format!("{error:#}"))
    }

    /// Sends a message and waits for the decision.
    ///
    /// # Errors
    /// The program ended, took too long, or wrote something else than one line with a decision.
    pub(super) fn ask(
        &mut self,
        message: &ExternalMessage<'_>,
    ) -> Result<ExternalDecision, String> {
        // A run of a slow program ends on Ctrl-C as others do between runs.
        interrupt::check().map_err(|error| error.to_string())?;
        let deadline = Instant::now() + self.timeout;
        self.line.clear();
        serde_json::to_writer(&mut self.line, message).map_err(|error| error.to_string())?;
        self.line.push(b'\n');
        self.write(deadline)?;
        self.read(deadline)?;
        let line = std::str::from_utf8(&self.line)
            .map_err(|_| format!("an answer that is no UTF-8 text; {EXPECTED}"))?;
        if matches!(message, ExternalMessage::Start { .. }) {
            protocol::check_version(line)?;
        }
        protocol::read_answer(line)
    }

    /// Writes the line. A program that does not read is given up at the deadline, or a time-out later.
    fn write(&mut self, deadline: Instant) -> Result<(), String> {
        let mut written = 0;
        while written < self.line.len() {
            match self.stream.write(&self.line[written..]) {
                Ok(bytes) => written += bytes,
                Err(error) => return Err(self.broken(&error)),
            }
            if written < self.line.len() && Instant::now() >= deadline {
                return Err(self.silent());
            }
        }
        Ok(())
    }

    /// Reads one line, without its end.
    fn read(&mut self, deadline: Instant) -> Result<(), String> {
        self.line.clear();
        let mut part = [0; MAX_ANSWER_BYTES];
        loop {
            match self.stream.read(&mut part) {
                Ok(0) => return Err(self.ended()),
                Ok(bytes) => self.line.extend_from_slice(&part[..bytes]),
                Err(error) => return Err(self.broken(&error)),
            }
            let end = self.line.iter().position(|byte| *byte == b'\n');
            if end.is_some_and(|end| end + 1 < self.line.len()) {
                let line = String::from_utf8_lossy(&self.line);
                return Err(format!("more than one line as an answer: {line:?}; {EXPECTED}"));
            }
            if let Some(end) = end {
                self.line.truncate(end);
                return Ok(());
            }
            if self.line.len() >= MAX_ANSWER_BYTES {
                let problem =
                    format!("an answer of more than {MAX_ANSWER_BYTES} bytes; {EXPECTED}");
                return Err(problem);
            }
            if Instant::now() >= deadline {
                return Err(self.silent());
            }
        }
    }

    fn broken(&mut self, error: &std::io::Error) -> String {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => self.silent(),
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => self.ended(),
            _ => error.to_string(),
        }
    }

    fn silent(&self) -> String {
        let seconds = self.timeout.as_secs_f64();
        let problem = format!("no answer within {seconds} s");
        let right = "answer each line with one line and flush it, or set a longer timeout_s";
        format!("{problem}; {right}{}", self.said())
    }

    fn ended(&mut self) -> String {
        let status = interrupt::wait_for(EXIT_TIMEOUT, || self.running.ended());
        let what = match status {
            Ok(Some(status)) => format!("the program ended: {status}"),
            _ => "the program closed its output".to_owned(),
        };
        format!("{what}{}", self.said())
    }

    /// The end of its standard error.
    fn said(&self) -> String {
        match last_lines(&self.log) {
            nothing if nothing.is_empty() => "; its standard error is empty".to_owned(),
            lines => format!("; its standard error ends with\n{lines}"),
        }
    }
}
