//! The player's programs: media, a measured session in a browser, the report.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::netns::Namespace;
use crate::process::{must_succeed, run_logged, tail};
use crate::topology;

/// Longest time for encoding the ladder and measuring its PSNR.
const MEDIA_AT_MOST: Duration = Duration::from_secs(1800);

/// What a session may take beyond its length: the browser's start, the page over a bad link, the
/// end.
const SESSION_MARGIN: Duration = Duration::from_secs(90);

/// `measure.js` exits so when the video never began; the session is then still described.
const NEVER_PLAYED: i32 = 3;

/// What a viewer saw.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Qoe {
    /// From the load of the page to the first frame, in seconds; none when it never came.
    pub startup_s: Option<f64>,
    /// Interruptions after that.
    pub stalls: u32,
    /// Time in interruptions over the session's time.
    pub rebuffer_ratio: f64,
    /// Mean bitrate of what was shown, in kbit/s.
    pub bitrate_kbps: Option<f64>,
    /// Changes of quality.
    pub switches: u32,
    /// Mean PSNR of what was shown, in dB.
    pub psnr_db: Option<f64>,
    /// What went wrong in the player.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Where a browser runs.
#[derive(Debug, Clone, Copy)]
pub struct Seat<'a> {
    /// Its network.
    pub namespace: &'a Namespace,
    /// Its temporary files, so that they go with the run even after a crash.
    pub scratch: &'a Path,
}

/// The built player.
#[derive(Debug, Clone)]
pub struct Player {
    dist: PathBuf,
}

impl Player {
    /// # Errors
    /// When it has not been built.
    pub fn locate(directory: &Path) -> Result<Self> {
        let dist = directory.join("dist");
        for file in ["media.js", "measure.js", "report.js", "page/index.html"] {
            if !dist.join(file).is_file() {
                bail!("{} is missing: run `make build` first", dist.join(file).display());
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

    /// Encodes the ladder into `directory` unless it is there already.
    ///
    /// # Errors
    /// When the encoder fails, or on Ctrl-C.
    pub fn media(
        &self,
        directory: &Path,
        source: Option<&Path>,
        log: &Path,
        tick: impl FnMut(Duration) -> Result<()>,
    ) -> Result<()> {
        let mut command = self.node("media.js");
        command.arg("--out").arg(directory);
        if let Some(source) = source {
            command.arg("--media").arg(source);
        }
        let status = run_logged("media", &mut command, log, MEDIA_AT_MOST, tick)?;
        must_succeed("media", status, log)
    }

    /// Plays for `duration` at `seat`; session.json and screenshots go to `directory`.
    ///
    /// # Errors
    /// When nothing could be measured, or on Ctrl-C. A video that never began is a result.
    pub fn measure(
        &self,
        seat: Seat<'_>,
        duration: Duration,
        directory: &Path,
        media: &Path,
        tick: impl FnMut(Duration) -> Result<()>,
    ) -> Result<Qoe> {
        let session = directory.join("session.json");
        let mut command = seat.namespace.command("node");
        command
            .env("TMPDIR", seat.scratch)
            .arg(self.dist.join("measure.js"))
            .args(["--url", &format!("http://{}/", topology::ORIGIN)])
            .args(["--duration-s", &duration.as_secs().to_string()])
            .arg("--out")
            .arg(&session)
            .arg("--screenshots")
            .arg(directory)
            .arg("--psnr")
            .arg(media.join("psnr.json"));
        let log = directory.join("measure.log");
        let at_most = duration + SESSION_MARGIN;
        let status = run_logged("the player", &mut command, &log, at_most, tick)?;
        if status.code() != Some(NEVER_PLAYED) {
            must_succeed("the player", status, &log)?;
        }
        let text = fs::read_to_string(&session)
            .with_context(|| format!("{}\n{}", session.display(), tail(&log)))?;
        serde_json::from_str(&text).with_context(|| session.display().to_string())
    }

    /// Draws the report of all sessions in `directory`.
    ///
    /// # Errors
    /// When it can't be drawn, or on Ctrl-C.
    pub fn report(&self, directory: &Path, out: &Path) -> Result<()> {
        let mut command = self.node("report.js");
        command.arg("--in").arg(directory).arg("--out").arg(out);
        let log = directory.join("report.log");
        let at_most = Duration::from_secs(120);
        let status = run_logged("the report", &mut command, &log, at_most, |_| Ok(()))?;
        must_succeed("the report", status, &log)
    }

    fn node(&self, script: &str) -> Command {
        let mut command = Command::new("node");
        command.arg(self.dist.join(script));
        command
    }
}
