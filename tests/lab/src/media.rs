//! `millrace-lab media`: what players play, made beforehand.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use millrace_lab::player::Player;
use millrace_lab::scenario::STREAM_MBPS;
use millrace_lab::step::Step;

#[derive(Debug, Args)]
pub struct Options {
    /// Any video that ffmpeg reads [default: Big Buck Bunny, of its npm package]
    file: Option<PathBuf>,
    /// Where the DASH presentation goes
    #[arg(long, default_value = "target/media")]
    media_dir: PathBuf,
    /// How long the presentation is to be at least, in seconds [default: 90]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=36_000))]
    length_s: Option<u64>,
    /// Where the streams for RTSP go
    #[arg(long, default_value = "target/streams")]
    streams_dir: PathBuf,
    /// Only these streams, by their rates in Mbit/s; 0 for none [default: all]
    #[arg(long = "stream", value_name = "MBPS")]
    streams: Vec<u64>,
    /// An ffmpeg that has libvmaf, for SSIM and VMAF of each rung (tests/scripts/vmaf.sh fetches one)
    #[arg(long, value_name = "PROGRAM")]
    vmaf: Option<PathBuf>,
    /// The built player
    #[arg(long, default_value = "player")]
    player_dir: PathBuf,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let player = Player::locate(&options.player_dir)?;
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

/// One step, whose program says the figures of what it made in its log; they are printed.
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
    let step = Step::begin(what, None)?;
    action(&log, &mut |elapsed| {
        step.at(elapsed);
        Ok(())
    })?;
    drop(step);
    println!("{what}: {}", directory.display());
    let said = std::fs::read_to_string(&log).unwrap_or_default();
    // Not its progress, nor what it says to programs.
    for line in said.lines().filter(|line| !line.ends_with(" %") && !line.starts_with('{')) {
        println!("    {line}");
    }
    Ok(())
}
