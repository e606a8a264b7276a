//! What was on the players' screens, drawn again after the runs: each frame is decoded from what was
//! sent, so that no measurement pays for it. `docs/qoe.md` says how the frame is known.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use serde::Deserialize;

use crate::player::{Played, Player};
use crate::report::summary::{self, Summary};
use crate::report::viewers::{Viewer, viewers};
use crate::results::read_json;
use crate::step::Step;

/// Where a scenario doesn't say: near the beginning, in the middle, near the end of the session.
const PARTS: [f64; 3] = [1.0 / 6.0, 0.5, 5.0 / 6.0];

/// Options of `millrace-lab pictures`.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Directory with results of scenarios with players
    #[arg(required = true)]
    results: PathBuf,
    /// At these seconds of each session [default: the scenario's pictures_s, or three]
    #[arg(long, value_name = "SECONDS")]
    at: Vec<f64>,
    #[command(flatten)]
    material: Material,
}

/// What players play.
#[derive(Debug, Clone, Args)]
pub struct Material {
    /// Video for players instead of Big Buck Bunny (anything ffmpeg reads)
    #[arg(long)]
    pub media: Option<PathBuf>,
    /// Where the encoded video is kept
    #[arg(long, default_value = "target/media")]
    pub media_dir: PathBuf,
    /// The same of the streams for RTSP
    #[arg(long, default_value = "target/streams")]
    pub streams_dir: PathBuf,
    /// The built player
    #[arg(long, default_value = "player")]
    pub player_dir: PathBuf,
}

/// What is read of `run.json`.
#[derive(Debug, Deserialize)]
struct RunFile {
    settings: Settings,
}

#[derive(Debug, Deserialize)]
struct Settings {
    flow: Vec<FlowSettings>,
}

#[derive(Debug, Deserialize)]
struct FlowSettings {
    start_s: f64,
    stop_s: f64,
    /// Only of a stream.
    #[serde(default)]
    media_mbps: Option<u64>,
}

/// Draws the pictures of all results below a directory.
///
/// # Errors
/// There are no results, what was played is not there, or on Ctrl-C.
pub fn run(options: &Options) -> Result<()> {
    for summary in summary::read_all(&options.results)? {
        let drawn = draw(&summary, &options.at, &options.material)?;
        println!("{}: pictures of {drawn} sessions", summary.scenario.name);
    }
    Ok(())
}

/// Draws those of the results in `directory`; none where nobody played.
///
/// # Errors
/// As [`run`].
pub fn draw_in(directory: &Path, from: &Material) -> Result<()> {
    for summary in summary::read_all(directory)? {
        draw(&summary, &[], from)?;
    }
    Ok(())
}

/// How many sessions there were.
fn draw(summary: &Summary, at_s: &[f64], from: &Material) -> Result<usize> {
    let mut all = viewers(summary);
    // Nothing is left to draw those anew from.
    all.retain(|viewer| viewer.directory.join("record.json").is_file());
    // By what they played: the presentation, or the stream of so many Mbit/s.
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
    let usual = PARTS.map(|part| (part * shortest_s).round());
    let at_s = [at_s, &summary.scenario.pictures_s, &usual].into_iter().find(|it| !it.is_empty());
    let player = Player::locate(&from.player_dir)?;
    let step = Step::begin("drawing what was on the screens", None)?;
    let log = summary.directory.join("pictures.log");
    for (stream, sessions) in &played {
        let description = stream.map(|mbps| from.streams_dir.join(format!("stream-{mbps}.json")));
        let played = match &description {
            Some(description) => Played::Stream(description),
            None => Played::Presentation(&from.media_dir),
        };
        let at_s = at_s.unwrap_or_default();
        player.pictures(sessions, at_s, played, from.media.as_deref(), &log, |elapsed| {
            step.at(elapsed);
            Ok(())
        })?;
    }
    fs::remove_file(&log).with_context(|| log.display().to_string())?;
    Ok(all.len())
}

/// What the group of a viewer was asked.
fn settings(viewer: &Viewer<'_>) -> Result<FlowSettings> {
    let run = viewer.directory.parent().context("a player's directory is in its run's")?;
    let path = run.join("run.json");
    let file: RunFile = read_json(&path)?;
    let group = usize::try_from(viewer.part.group)?;
    let found = file.settings.flow.into_iter().nth(group);
    found.with_context(|| format!("{}: no settings of group {group}", path.display()))
}
