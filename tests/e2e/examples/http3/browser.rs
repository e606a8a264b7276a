//! Sessions of a browser.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use millrace_lab::process::output_of;
use millrace_lab::topology::{ORIGIN, ORIGIN_6};
use serde::{Deserialize, Serialize};

use crate::site::{ORIGIN_NAME, Site};
use crate::variant::{Family, Variant};
use crate::{SEGMENT_BYTES, SEGMENTS};

/// Sessions until the browser has used what the first of them announced.
const ANNOUNCEMENT_ATTEMPTS: usize = 4;

/// What the page measured.
#[derive(Debug, Deserialize, Serialize)]
pub struct Session {
    /// Of the browser.
    pub version: String,
    /// The protocol of the page.
    protocol: String,
    /// From the start of the navigation.
    pub first_byte_ms: f64,
    segments: Vec<Segment>,
}

#[derive(Debug, Deserialize, Serialize)]
struct Segment {
    protocol: String,
    bytes: u64,
    /// From the start of the navigation.
    done_ms: f64,
}

impl Session {
    /// The page may come by TCP where HTTP/3 is possible: browsers have both race.
    pub fn segment_protocols(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().map(|it| it.protocol.as_str())
    }

    pub fn video_bytes(&self) -> u64 {
        self.segments.iter().map(|it| it.bytes).sum()
    }

    pub fn first_segment_ms(&self) -> f64 {
        self.segments.first().map_or(f64::NAN, |it| it.done_ms)
    }

    pub fn all_segments_ms(&self) -> f64 {
        self.segments.last().map_or(f64::NAN, |it| it.done_ms)
    }
}

/// A browser whose profile has the origin's announcement of HTTP/3.
pub struct Browser {
    program: PathBuf,
    profile: PathBuf,
    family: Family,
}

impl Browser {
    /// Makes the profile: the first session gets the announcement over TCP, a later one uses it.
    pub fn with_announcement(site: &Site, program: &Path, family: Family) -> Result<Self> {
        let profile = site.scratch().join(match family {
            Family::V4 => "profile-v4",
            Family::V6 => "profile-v6",
        });
        let program = program.canonicalize().with_context(|| program.display().to_string())?;
        let browser = Self { program, profile, family };
        site.set(Variant::Direct)?;
        for _ in 0..ANNOUNCEMENT_ATTEMPTS {
            let session = browser.run(site, &["--keep"])?;
            if session.segment_protocols().all(|it| it == "h3") {
                return Ok(browser);
            }
        }
        bail!("the browser has not used HTTP/3 in {ANNOUNCEMENT_ATTEMPTS} sessions")
    }

    /// A session with a copy of the profile.
    pub fn session(&self, site: &Site, variant: Variant) -> Result<Session> {
        let more: &[&str] = if variant == Variant::TcpOnly { &["--disable-quic"] } else { &[] };
        let session = self.run(site, more)?;
        ensure!(session.segments.len() == SEGMENTS, "segments are missing: {session:?}");
        Ok(session)
    }

    fn run(&self, site: &Site, flags: &[&str]) -> Result<Session> {
        let to = match self.family {
            Family::V4 => ORIGIN.to_owned(),
            Family::V6 => format!("[{ORIGIN_6}]"),
        };
        let mut command = site.at_player("node");
        command.arg(&self.program).arg(&self.profile);
        command.arg(format!("https://{ORIGIN_NAME}/?segments={SEGMENTS}&bytes={SEGMENT_BYTES}"));
        command.arg(format!("--host-resolver-rules=MAP {ORIGIN_NAME} {to}"));
        command.arg(format!("--ignore-certificate-errors-spki-list={}", site.public_key_hash()));
        // HTTP/3 with an authority that Chromium does not come with is allowed for hosts in this list; its ports
        // alone are forced to use it, and this one nothing uses.
        command.arg(format!("--origin-to-force-quic-on={ORIGIN_NAME}:1"));
        command.args(flags);
        let text = output_of(&mut command)?;
        serde_json::from_str(&text).with_context(|| format!("the page's record: {text}"))
    }
}
