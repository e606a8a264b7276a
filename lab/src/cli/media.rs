//! `millrace-lab media`: encodes what players play, before any run.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;

use crate::output;
use crate::player::BuiltPlayer;
use crate::scenario::STREAM_MBPS;
use crate::step::ProgressStep;

/// Options of `millrace-lab media`.
#[derive(Debug, Args)]
pub struct MediaOptions {
    /// Video in any format that ffmpeg reads [default: Big Buck Bunny, of its npm package]
    file: Option<PathBuf>,
    /// Output directory of the DASH presentation
    #[arg(long, default_value = "target/media")]
    media_dir: PathBuf,
    /// Minimum length of the presentation in seconds [default: 90]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=36_000))]
    length_s: Option<u64>,
    /// Output directory of the RTSP streams
    #[arg(long, default_value = "target/streams")]
    streams_dir: PathBuf,
    /// Rates of the streams to encode, in Mbit/s; 0 for no stream [default: all]
    #[arg(long = "stream", value_name = "MBPS")]
    streams: Vec<u64>,
    /// ffmpeg with libvmaf, to measure SSIM and VMAF of each rung (tests/scripts/vmaf.sh fetches it)
    #[arg(long, value_name = "PROGRAM")]
    vmaf: Option<PathBuf>,
    /// Directory of the built player
    #[arg(long, default_value = "player")]
    player_dir: PathBuf,
}

pub fn run(options: &MediaOptions) -> Result<ExitCode> {
    let player = BuiltPlayer::locate(&options.player_dir)?;
    let source = options.file.as_deref();
    let media = options.media_dir.as_path();
    let length = options.length_s.map(Duration::from_secs);
    make("the DASH presentation", media, "", |log, tick| {
        player.media(media, source, length, log, tick)
    })?;
    if let Some(program) = &options.vmaf {
        make("SSIM and VMAF of its rungs", media, "-quality", |log, tick| {
            player.quality(media, source, program, log, tick)
        })?;
    }
    let rates: BTreeSet<u64> = match options.streams.as_slice() {
        [] => STREAM_MBPS.into(),
        some => some.iter().copied().filter(|rate| *rate > 0).collect(),
    };
    for rate in rates {
        let streams = options.streams_dir.as_path();
        let one = BTreeSet::from([rate]);
        make(&format!("the stream of {rate} Mbit/s"), streams, "", |log, tick| {
            player.streams(streams, source, &one, log, tick)
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

type Tick<'a> = &'a mut dyn FnMut(Duration) -> Result<()>;

/// Runs one encoder, and prints the figures that it wrote to its log.
fn make(
    what: &str,
    directory: &Path,
    suffix: &str,
    action: impl FnOnce(&Path, Tick<'_>) -> Result<()>,
) -> Result<()> {
    std::fs::create_dir_all(directory)?;
    let directory = directory.canonicalize()?;
    let mut log = directory.clone().into_os_string();
    log.push(format!("{suffix}.log"));
    let log = PathBuf::from(log);
    let step = ProgressStep::begin(what, None)?;
    action(&log, &mut |elapsed| {
        step.at(elapsed);
        Ok(())
    })?;
    drop(step);
    output::line(format_args!("{what}: {}", directory.display()))?;
    let said = std::fs::read_to_string(&log).unwrap_or_default();
    // Without progress lines and machine-readable lines.
    for line in said.lines().filter(|line| !line.ends_with(" %") && !line.starts_with('{')) {
        output::line(format_args!("    {line}"))?;
    }
    Ok(())
}
