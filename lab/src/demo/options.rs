//! Options of the demo.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};

use super::report::PROGRAM;
use crate::emulator::{LinkConfig, PipeConfig};
use crate::topology::KernelCc;

/// The emulated link, as on the command line.
#[derive(Debug, Clone, Args)]
pub struct LinkOptions {
    /// Rate of the link, both ways, in Mbit/s
    #[arg(long, default_value_t = 12.0)]
    pub rate_mbps: f64,
    /// Round trip of the empty link, in milliseconds
    #[arg(long, default_value_t = 100.0)]
    pub rtt_ms: f64,
    /// Probability that a packet towards the player is lost (0.01 is 1 %)
    #[arg(long, default_value_t = 0.01)]
    pub loss: f64,
    /// Probability that a packet towards the origin is lost
    #[arg(long, default_value_t = 0.0)]
    pub loss_reverse: f64,
    /// Drop-tail buffer in bytes [default: rate x round trip]
    #[arg(long)]
    pub buffer_bytes: Option<u64>,
    /// Seed of the losses
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl LinkOptions {
    /// The link that they describe.
    ///
    /// # Errors
    /// Says which value is out of range, and the range.
    pub fn config(&self) -> Result<LinkConfig> {
        if !(0.001..=10_000.0).contains(&self.rate_mbps) {
            bail!("--rate-mbps {}: allowed are 0.001 to 10000", self.rate_mbps);
        }
        if !(0.0..=20_000.0).contains(&self.rtt_ms) {
            bail!("--rtt-ms {}: allowed are 0 to 20000", self.rtt_ms);
        }
        // In range by the checks above.
        let rate_bps = (self.rate_mbps * 1e6).round() as u64;
        let rtt_ns = (self.rtt_ms * 1e6).round() as u64;
        let buffer = self.buffer_bytes.unwrap_or_else(|| {
            // Room for a few packets where the path holds hardly any.
            PipeConfig::bdp_bytes(rate_bps, rtt_ns).max(15_000)
        });
        let link =
            LinkConfig::new(rate_bps, rtt_ns, buffer, self.loss, self.loss_reverse, self.seed);
        link.validate()?;
        Ok(link)
    }
}

/// A way to carry the video.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DemoVariant {
    /// Plain TCP with CUBIC at the origin
    Cubic,
    /// Plain TCP with BBR at the origin
    Bbr,
    /// Through the tunnel with vivace-latency
    Millrace,
}

impl DemoVariant {
    /// Its directory and its key in the results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
            Self::Millrace => "millrace",
        }
    }

    /// Its name for people.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Cubic => "plain TCP, CUBIC",
            Self::Bbr => "plain TCP, BBR",
            Self::Millrace => "Millrace, vivace-latency",
        }
    }

    /// What the kernels of player and origin use. With Millrace their connections end at the edges
    /// and never cross the link.
    #[must_use]
    pub fn kernel_cc(self) -> KernelCc {
        match self {
            Self::Bbr => KernelCc::Bbr,
            Self::Cubic | Self::Millrace => KernelCc::Cubic,
        }
    }
}

/// Options of `millrace-lab demo`.
#[derive(Debug, Clone, Args)]
pub struct DemoOptions {
    /// Video to play instead of Big Buck Bunny (any format that ffmpeg reads)
    #[arg(long)]
    pub media: Option<PathBuf>,
    /// Length of each session in seconds
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(5..=3600))]
    pub duration_s: u64,
    /// What to compare, in this order
    #[arg(long, value_enum, value_delimiter = ',', default_value = "cubic,bbr,millrace")]
    pub variants: Vec<DemoVariant>,
    /// Attempts per session until neither the link nor the machine falls behind
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub attempts: u32,
    /// The link
    #[command(flatten)]
    pub link: LinkOptions,
    /// Output directory of report.html, results.json and the logs
    #[arg(long, default_value = "target/demo")]
    pub out: PathBuf,
    /// Directory of the encoded video, which is kept
    #[arg(long, default_value = "target/media")]
    pub media_dir: PathBuf,
    /// Directory of the built player
    #[arg(long, default_value = "player")]
    pub player_dir: PathBuf,
    /// The program that draws the report, as `make build` makes it
    #[arg(long, default_value = PROGRAM, hide = true)]
    pub report_program: PathBuf,
    /// The interception rules shipped with millrace-client
    #[arg(long, default_value = "deploy/nftables/tproxy.nft")]
    pub tproxy_rules: PathBuf,
}
