use std::sync::Arc;
use std::time::Duration;

use millrace_cc::Bandwidth;

use crate::PlayerSetup;
use crate::setup_checks::{SetupError, check, check_rate};

/// The data of a flow.
#[derive(Clone, Debug, PartialEq)]
pub enum DataSource {
    /// Unlimited data.
    Bulk,
    /// A video: this much UDP payload per period. The next segments wait while one is being sent;
    /// overdue ones follow one after the other.
    Segments {
        /// Size of a segment.
        bytes: u64,
        /// Time from one request to the next.
        period: Duration,
    },
    /// Full packets at a constant rate in UDP payload. Data that can't leave waits.
    Constant {
        /// The rate.
        rate: Bandwidth,
    },
    /// What a player at the receiver asks for, one response after the other.
    Player(Arc<PlayerSetup>),
    /// Frames of a live encoder, which takes the rate that the congestion controller allows.
    Encoder(EncoderSetup),
}

/// A live encoder. It takes a share of the pacing rate or of a window in a smoothed round trip, whichever is less, when a
/// frame is captured. While frames wait to be sent, it skips frames.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EncoderSetup {
    /// Time from one frame to the next.
    pub frame_time: Duration,
    /// Share of the rate that it takes, above 0 to 1. The rest is for lost data and for a frame's burst.
    pub rate_share: f64,
    /// Least rate that it encodes at, in UDP payload; also before there is a round trip.
    pub min_rate: Bandwidth,
    /// Highest rate that it encodes at.
    pub max_rate: Bandwidth,
    /// Frames from one key frame to the next, 1 or more: with 1 all are alike.
    pub key_frame_every: u64,
    /// Size of a key frame, as a multiple of the others', 1 or more.
    pub key_frame_ratio: f64,
}

impl DataSource {
    pub(crate) fn validate(&self, what: &str) -> Result<(), SetupError> {
        match self {
            Self::Bulk => Ok(()),
            Self::Constant { rate } => check_rate(what, *rate),
            Self::Encoder(encoder) => encoder.validate(what),
            Self::Segments { bytes, period } => {
                check(*bytes > 0 && *period >= Duration::from_millis(1), || {
                    format!("{what}: segments of {bytes} bytes each {period:?}")
                })
            }
            Self::Player(player) => player.validate(what),
        }
    }
}

impl EncoderSetup {
    fn validate(&self, what: &str) -> Result<(), SetupError> {
        check_rate(what, self.min_rate)?;
        check_rate(what, self.max_rate)?;
        check(self.min_rate <= self.max_rate, || {
            format!("{what}: the encoder's least rate is above its highest")
        })?;
        let is_possible = self.rate_share > 0.0 && self.rate_share <= 1.0;
        check(is_possible && self.frame_time >= Duration::from_millis(1), || {
            format!("{what}: {self:?}; allowed are shares up to 1, frames from 1 ms on")
        })?;
        let (every, ratio) = (self.key_frame_every, self.key_frame_ratio);
        check(every >= 1 && ratio >= 1.0, || {
            format!(
                "{what}: key frames each {every} frames, {ratio} times as large; allowed are 1 and more of both"
            )
        })
    }
}
