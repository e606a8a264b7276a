//! The player's programs: media, measured sessions in a browser, the report.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::netns::Namespace;
use crate::process::{Running, must_succeed, run_logged, tail};
use crate::{checkout, interrupt};

/// Longest time for encoding the ladder and measuring its PSNR.
const MEDIA_TIMEOUT: Duration = Duration::from_secs(1800);

/// Longest time for encoding the RTSP streams: up to four, two of them with four times the pixels.
const STREAMS_TIMEOUT: Duration = Duration::from_secs(4 * 1800);

/// Time that a session may take beyond its length: the browser's start, the page over a bad link, the end.
const SESSION_MARGIN: Duration = Duration::from_secs(90);

/// Time in which a browser must start and load the page from its own host.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// Time that a session may take after its end: to write its results, and to close the browser.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);

/// Exit code of `measure.js` when the video never began; the session is then still described.
const NEVER_PLAYED: i32 = 3;

/// The line that `measure.js` prints when it waits for the play request.
const READY: &str = "ready";

/// Quality of experience of a session. `docs/research/qoe.md` defines each figure.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Qoe {
    /// From the play request to the first frame, in seconds; `None` when it never came.
    pub startup_s: Option<f64>,
    /// Interruptions after that.
    pub stalls: u32,
    /// Time in interruptions over the session's time.
    pub rebuffer_ratio: f64,
    /// Mean bitrate of what was shown, in kbit/s.
    pub bitrate_kbps: Option<f64>,
    /// Changes of quality.
    pub switches: u32,
    /// QoE_lin, in Mbit/s.
    #[serde(default)]
    pub qoe_lin: Option<f64>,
    /// The same without the term for changes of quality.
    #[serde(default)]
    pub qoe_lin_without_switches: Option<f64>,
    /// Mean PSNR of what was shown, in dB.
    pub psnr_db: Option<f64>,
    /// Mean SSIM of what played; `None` where the rungs' has not been measured.
    #[serde(default)]
    pub ssim: Option<f64>,
    /// Mean VMAF of what played; the same.
    #[serde(default)]
    pub vmaf: Option<f64>,
    /// The player's error, if it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A session, second by second.
#[derive(Debug, Clone, Deserialize)]
pub struct DashSession {
    /// Its figures.
    #[serde(flatten)]
    pub qoe: Qoe,
    /// Frames that were decoded and not shown.
    pub dropped_frames: u64,
    /// Of these, while it played and had played for a second.
    pub dropped_undisturbed: u64,
    /// Time in which the picture stood still although the player said that it played.
    pub frozen_outside_stalls_s: f64,
    /// How long it lasted; less than asked for when the presentation ended.
    pub session_s: f64,
    /// One for each second.
    pub seconds: Vec<DashSecond>,
    /// What came over the network.
    pub downloads: Vec<Download>,
}

/// One second of a session.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct DashSecond {
    /// The rung shown longest; `None` before the first frame.
    pub rung_kbps: Option<f64>,
    /// Mean of what was shown.
    pub psnr_db: Option<f64>,
    /// At the second's end.
    pub buffer_s: Option<f64>,
}

/// A segment that came over the network; times in seconds since the play request.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct Download {
    /// When its first byte came.
    pub first_byte_s: f64,
    /// When its last byte came.
    pub end_s: f64,
    /// Its size.
    pub bytes: u64,
}

/// A session to play, and where its results go.
#[derive(Debug, Clone, Copy)]
pub struct PlayRequest<'a> {
    /// The page.
    pub url: &'a str,
    /// Query string of the page.
    pub query: &'a str,
    /// Length of the session.
    pub duration: Duration,
    /// For session.json and screenshots.
    pub directory: &'a Path,
    /// The presentation's directory.
    pub media: &'a Path,
}

impl PlayRequest<'_> {
    fn session(&self) -> PathBuf {
        self.directory.join("session.json")
    }

    fn log(&self) -> PathBuf {
        self.directory.join("measure.log")
    }
}

/// What was played in a session.
#[derive(Debug, Clone, Copy)]
pub enum Played<'a> {
    /// DASH: the presentation's directory.
    Presentation(&'a Path),
    /// RTSP: the stream's description, `stream-RATE.json`.
    Stream(&'a Path),
}

/// Where a browser runs.
#[derive(Debug, Clone, Copy)]
pub struct BrowserHost<'a> {
    /// Its network.
    pub namespace: &'a Namespace,
    /// Its temporary files, so that they go with the run even after a crash.
    pub scratch: &'a Path,
}

/// The built player.
#[derive(Debug, Clone)]
pub struct BuiltPlayer {
    dist: PathBuf,
}

impl BuiltPlayer {
    /// # Errors
    /// When it has not been built.
    pub fn locate(directory: &Path) -> Result<Self> {
        let dist = checkout::existing(directory).join("dist");
        for file in
            ["media.js", "streams.js", "quality.js", "pictures.js", "measure.js", "page/index.html"]
        {
            if !dist.join(file).is_file() {
                let file = dist.join(file);
                bail!("{} is missing: `make pages` in the repository builds it", file.display());
            }
        }
        let dist = dist.canonicalize().with_context(|| dist.display().to_string())?;
        Ok(Self { dist })
    }

    /// The page's directory.
    #[must_use]
    pub fn page(&self) -> PathBuf {
        self.dist.join("page")
    }

    /// Encodes the ladder into `directory` unless it is there already; a presentation of `length`, or of
    /// the usual one.
    ///
    /// # Errors
    /// When the encoder fails, or on Ctrl-C.
    pub fn media(
        &self,
        directory: &Path,
        source: Option<&Path>,
        length: Option<Duration>,
        log: &Path,
        tick: impl FnMut(Duration) -> Result<()>,
    ) -> Result<()> {
        let mut command = self.node("media.js");
        command.arg(option("--out", directory)?);
        if let Some(length) = length {
            command.args(["--length-s", &length.as_secs_f64().ceil().to_string()]);
        }
        add_source(&mut command, source)?;
        encode("media", command, log, MEDIA_TIMEOUT, tick)
    }

    /// Measures SSIM and VMAF of the rungs in `directory`, made of `source`, with an ffmpeg that can.
    ///
    /// # Errors
    /// When it can't, or on Ctrl-C.
    pub fn quality(
        &self,
        directory: &Path,
        source: Option<&Path>,
        program: &Path,
        log: &Path,
        tick: impl FnMut(Duration) -> Result<()>,
    ) -> Result<()> {
        let mut command = self.node("quality.js");
        command.arg(option("--dir", directory)?).arg(option("--ffmpeg", program)?);
        add_source(&mut command, source)?;
        encode("quality", command, log, MEDIA_TIMEOUT, tick)
    }

    /// Encodes the streams of these rates for RTSP into `directory` unless they are there already.
    ///
    /// # Errors
    /// When the encoder fails, or on Ctrl-C.
    pub fn streams(
        &self,
        directory: &Path,
        source: Option<&Path>,
        rates: &BTreeSet<u64>,
        log: &Path,
        tick: impl FnMut(Duration) -> Result<()>,
    ) -> Result<()> {
        let mut command = self.node("streams.js");
        command.arg(option("--out", directory)?);
        for mbps in rates {
            command.args(["--mbps", &mbps.to_string()]);
        }
        add_source(&mut command, source)?;
        encode("streams", command, log, STREAMS_TIMEOUT, tick)
    }

    /// Draws the frames on the screen at these instants of sessions, each in a directory of its own, from what
    /// they `played`, encoded from `source`.
    ///
    /// # Errors
    /// When what they played is missing or was not encoded from the source, or on Ctrl-C.
    pub fn draw_frames(
        &self,
        sessions: &[PathBuf],
        at_s: &[f64],
        played: Played<'_>,
        source: Option<&Path>,
        log: &Path,
        tick: impl FnMut(Duration) -> Result<()>,
    ) -> Result<()> {
        let mut command = self.node("pictures.js");
        command.arg(match played {
            Played::Presentation(directory) => option("--media-dir", directory)?,
            Played::Stream(description) => option("--stream", description)?,
        });
        for at_s in at_s {
            command.args(["--at", &at_s.to_string()]);
        }
        add_source(&mut command, source)?;
        command.arg("--").args(sessions);
        encode("frames", command, log, MEDIA_TIMEOUT, tick)
    }

    /// Plays it at `host`, from the moment at which the page is loaded.
    ///
    /// # Errors
    /// When nothing could be measured, or on Ctrl-C. A video that never began is a result.
    pub fn measure(
        &self,
        host: BrowserHost<'_>,
        request: PlayRequest<'_>,
        tick: impl FnMut(Duration) -> Result<()>,
    ) -> Result<DashSession> {
        let mut command = self.measuring(host, request)?;
        command.arg(option("--screenshots", request.directory)?);
        let log = request.log();
        let at_most = request.duration + SESSION_MARGIN;
        let status = run_logged("the player", &mut command, &log, at_most, tick)?;
        session(status, &request.session(), &log)
    }

    /// Opens the page at `host`. [`BrowserSession::play`] starts it.
    ///
    /// # Errors
    /// When the program can't be started.
    pub fn open(&self, host: BrowserHost<'_>, request: PlayRequest<'_>) -> Result<BrowserSession> {
        let (session, log) = (request.session(), request.log());
        let mut command = self.measuring(host, request)?;
        command.arg("--wait").arg(option("--record", &request.directory.join("record.json"))?);
        let running = Running::start("the player", &mut command, &log)?;
        Ok(BrowserSession { running, session, log })
    }

    fn measuring(&self, host: BrowserHost<'_>, request: PlayRequest<'_>) -> Result<Command> {
        let mut command = host.namespace.command("node");
        command
            .env("TMPDIR", host.scratch)
            .arg(self.dist.join("measure.js"))
            .args(["--url", request.url, "--query", request.query])
            .args(["--duration-s", &request.duration.as_secs_f64().to_string()])
            .arg(option("--out", &request.session())?)
            .arg(option("--psnr", &request.media.join("psnr.json"))?);
        let quality = request.media.join("quality.json");
        if quality.is_file() {
            command.arg(option("--quality", &quality)?);
        }
        Ok(command)
    }

    fn node(&self, script: &str) -> Command {
        let mut command = Command::new("node");
        command.arg(self.dist.join(script));
        command
    }
}

/// An option of a Node.js program. As one argument, so that a path may begin with a dash.
fn option(name: &str, path: &Path) -> Result<String> {
    let text = path.to_str().with_context(|| {
        format!("{} is not UTF-8, and Node.js can't open it: give it another name", path.display())
    })?;
    Ok(format!("{name}={text}"))
}

/// The video to make something of; without one it is the bundled one.
fn add_source(command: &mut Command, source: Option<&Path>) -> Result<()> {
    if let Some(source) = source {
        command.arg(option("--media", source)?);
    }
    Ok(())
}

/// Runs a program that makes something of a video.
fn encode(
    name: &str,
    mut command: Command,
    log: &Path,
    at_most: Duration,
    tick: impl FnMut(Duration) -> Result<()>,
) -> Result<()> {
    let status = run_logged(name, &mut command, log, at_most, tick)?;
    must_succeed(name, status, log)
}

/// A browser with the page loaded. Dropping it closes the browser.
#[derive(Debug)]
pub struct BrowserSession {
    running: Running,
    session: PathBuf,
    log: PathBuf,
}

impl BrowserSession {
    /// Waits until the page is loaded.
    ///
    /// # Errors
    /// When the browser ended, with its log, or takes too long.
    pub fn ready(&mut self) -> Result<()> {
        let ready = interrupt::wait_for(READY_TIMEOUT, || {
            self.running.must_run(&self.log)?;
            let said = fs::read_to_string(&self.log).unwrap_or_default();
            Ok(said.lines().any(|line| line == READY).then_some(()))
        })?;
        ready.with_context(|| {
            let seconds = READY_TIMEOUT.as_secs();
            format!("the page was not loaded within {seconds} s\n{}", tail(&self.log))
        })
    }

    /// Sends the play request.
    ///
    /// # Errors
    /// When the player has gone.
    pub fn play(&self) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.running.pid())?);
        kill(pid, Signal::SIGUSR2).context("the player")
    }

    /// Waits for the result: `left` is the remaining time of the session. `tick` is called periodically.
    ///
    /// # Errors
    /// When nothing was measured, or not in time; or the first error of `tick`.
    pub fn finish(
        mut self,
        left: Duration,
        mut tick: impl FnMut() -> Result<()>,
    ) -> Result<DashSession> {
        let status = interrupt::wait_for(left + CLOSE_TIMEOUT, || {
            tick()?;
            self.running.ended()
        })?;
        let status =
            status.with_context(|| format!("the player did not end\n{}", tail(&self.log)))?;
        session(status, &self.session, &self.log)
    }
}

/// Reads the session of a player that ended with `status`.
fn session(status: ExitStatus, session: &Path, log: &Path) -> Result<DashSession> {
    if status.code() != Some(NEVER_PLAYED) {
        must_succeed("the player", status, log)?;
    }
    let text = fs::read_to_string(session)
        .with_context(|| format!("{}\n{}", session.display(), tail(log)))?;
    serde_json::from_str(&text).with_context(|| session.display().to_string())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn paths_are_one_argument_with_their_option_and_utf_8() {
        assert_eq!(option("--media", Path::new("-a:b %03d.mp4")).unwrap(), "--media=-a:b %03d.mp4");
        let error = option("--media", Path::new(OsStr::from_bytes(b"K\xf6ln.mp4"))).unwrap_err();
        assert!(error.to_string().contains("ln.mp4 is not UTF-8"), "{error}");
    }
}
