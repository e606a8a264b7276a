//! The frames on the players' screens, drawn after the runs: each is decoded from the media that were played, so
//! that no measurement pays for it. `docs/research/qoe.md` says how the frame is known.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use serde::Deserialize;

use crate::output;
use crate::player::{BuiltPlayer, Played};
use crate::report::summary::{self, StoredSummary};
use crate::report::viewers::{ReportedPlayer, viewers};
use crate::results::read_json;
use crate::step::ProgressStep;

/// Default instants, as parts of the session: near the beginning, in the middle, near the end.
const DEFAULT_INSTANTS: [f64; 3] = [1.0 / 6.0, 0.5, 5.0 / 6.0];

/// Options of `millrace-lab frames`.
#[derive(Debug, Clone, Args)]
pub struct FramesOptions {
    /// Directory with results of scenarios with players
    #[arg(required = true)]
    results: PathBuf,
    /// Seconds of each session at which to draw [default: the scenario's pictures_s, or three instants]
    #[arg(long, value_name = "SECONDS")]
    at: Vec<f64>,
    #[command(flatten)]
    material: MaterialOptions,
}

/// Default directory of the encoded video.
const MEDIA_DIRECTORY: &str = "target/media";
/// Default directory of the RTSP streams.
const STREAMS_DIRECTORY: &str = "target/streams";
/// Default directory of the built player.
const PLAYER_DIRECTORY: &str = "player";

/// What players play, and the players.
#[derive(Debug, Clone, Args)]
pub struct MaterialOptions {
    /// Video for players instead of Big Buck Bunny (any format that ffmpeg reads)
    #[arg(long)]
    pub media: Option<PathBuf>,
    /// Directory of the encoded video [default: target/media]
    #[arg(long)]
    media_dir: Option<PathBuf>,
    /// Directory of the RTSP streams [default: target/streams]
    #[arg(long)]
    streams_dir: Option<PathBuf>,
    /// Directory of the built player [default: player]
    #[arg(long)]
    player_dir: Option<PathBuf>,
}

impl MaterialOptions {
    /// The encoded video.
    #[must_use]
    pub fn media_dir(&self) -> &Path {
        self.media_dir.as_deref().unwrap_or(Path::new(MEDIA_DIRECTORY))
    }

    /// The RTSP streams.
    #[must_use]
    pub fn streams_dir(&self) -> &Path {
        self.streams_dir.as_deref().unwrap_or(Path::new(STREAMS_DIRECTORY))
    }

    /// The built player.
    #[must_use]
    pub fn player_dir(&self) -> &Path {
        self.player_dir.as_deref().unwrap_or(Path::new(PLAYER_DIRECTORY))
    }

    /// The first option of these that is given.
    #[must_use]
    pub fn first_given(&self) -> Option<&'static str> {
        let given = [
            ("--media", self.media.is_some()),
            ("--media-dir", self.media_dir.is_some()),
            ("--streams-dir", self.streams_dir.is_some()),
            ("--player-dir", self.player_dir.is_some()),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(name, _)| name)
    }
}

/// What is read of `run.json`.
#[derive(Debug, Deserialize)]
struct PlayedRunFile {
    settings: PlayedSettings,
}

#[derive(Debug, Deserialize)]
struct PlayedSettings {
    flow: Vec<PlayedFlow>,
}

#[derive(Debug, Deserialize)]
struct PlayedFlow {
    start_s: f64,
    stop_s: f64,
    /// Only for RTSP.
    #[serde(default)]
    media_mbps: Option<u64>,
}

/// Draws the frames of all results below a directory.
///
/// # Errors
/// When there are no results, the media that were played are missing, or on Ctrl-C.
pub fn run(options: &FramesOptions) -> Result<()> {
    for summary in summary::read_all(&options.results)? {
        let drawn = draw(&summary, &options.at, &options.material)?;
        output::line(format_args!("{}: frames of {drawn} sessions", summary.scenario.name))?;
    }
    Ok(())
}

/// Draws the frames of the results in `directory`, if they have players.
///
/// # Errors
/// As [`run`].
pub fn draw_in(directory: &Path, from: &MaterialOptions) -> Result<()> {
    for summary in summary::read_all(directory)? {
        draw(&summary, &[], from)?;
    }
    Ok(())
}

/// Draws the frames of a scenario. Answers the number of its sessions.
fn draw(summary: &StoredSummary, at_s: &[f64], from: &MaterialOptions) -> Result<usize> {
    let mut all = viewers(summary);
    // Archived results do not have what frames are drawn from.
    all.retain(|viewer| viewer.directory.join("record.json").is_file());
    // By media: the presentation, or the stream of this rate in Mbit/s.
    let mut played: BTreeMap<Option<u64>, Vec<PathBuf>> = BTreeMap::new();
    let mut shortest_s = f64::INFINITY;
    for viewer in &all {
        let of = settings(viewer)?;
        shortest_s = shortest_s.min(of.stop_s - of.start_s);
        played.entry(of.media_mbps).or_default().push(viewer.directory.clone());
    }
    if all.is_empty() {
        return Ok(0);
    }
    let default = DEFAULT_INSTANTS.map(|part| (part * shortest_s).round());
    let at_s = [at_s, &summary.scenario.pictures_s, &default].into_iter().find(|it| !it.is_empty());
    let player = BuiltPlayer::locate(from.player_dir())?;
    let step = ProgressStep::begin("drawing the frames on the screens", None)?;
    let log = summary.directory.join("frames.log");
    for (stream, sessions) in &played {
        let description = stream.map(|mbps| from.streams_dir().join(format!("stream-{mbps}.json")));
        let played = match &description {
            Some(description) => Played::Stream(description),
            None => Played::Presentation(from.media_dir()),
        };
        let at_s = at_s.unwrap_or_default();
        player.draw_frames(sessions, at_s, played, from.media.as_deref(), &log, |elapsed| {
            step.at(elapsed);
            Ok(())
        })?;
    }
    fs::remove_file(&log).with_context(|| log.display().to_string())?;
    Ok(all.len())
}

/// The settings of a viewer's flow.
fn settings(viewer: &ReportedPlayer<'_>) -> Result<PlayedFlow> {
    let run = viewer.directory.parent().context("a player's directory is in its run's")?;
    let path = run.join("run.json");
    let file: PlayedRunFile = read_json(&path)?;
    let group = usize::try_from(viewer.part.group)?;
    let found = file.settings.flow.into_iter().nth(group);
    found.with_context(|| format!("{}: no settings of group {group}", path.display()))
}
