//! What is read of a report.

use std::fmt;

/// Longest query argument or header field that is read, in bytes. Players send a few hundred; lists of next objects
/// (`nor`) may be longer.
pub const MAX_DATA_BYTES: usize = 4096;

/// Most keys that are read of one query argument or header field: twice what version 2 has for requests.
pub const MAX_KEYS: usize = 80;

/// Highest version that is read.
pub const MAX_VERSION: u64 = 2;

/// Longest session ID, in bytes (CTA-5004, `sid`).
pub const MAX_SESSION_BYTES: usize = 64;

/// What a player said of itself. What it did not say is `None`. Of a list with a figure for each object type, the one
/// of the requested object's type (`ot`) counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlayerReport {
    /// `bl`: media that it has and has not shown, in ms.
    pub buffer_ms: Option<u64>,
    /// `br`, or `ab` without it: encoded bitrate of what it asks for, in kbit/s.
    pub bitrate_kbps: Option<u64>,
    /// `tb`, or `tab` without it: highest bitrate that it may ask for, in kbit/s.
    pub top_bitrate_kbps: Option<u64>,
    /// `mtp`: throughput that it has measured, in kbit/s.
    pub throughput_kbps: Option<u64>,
    /// `rtp`: the most throughput that is of use to it, in kbit/s.
    pub requested_kbps: Option<u64>,
    /// `bs`: its buffer was empty at some time since its last request.
    pub starved: bool,
    /// `su`: it starts, seeks or recovers, and needs this at once.
    pub urgent: bool,
    /// `st`: it plays a live stream (`l`, `ll`).
    pub live: bool,
    /// `sid`: its playback session, the same with all its connections.
    pub session: Option<SessionId>,
}

/// Name that a player has given its session: ASCII, at least one byte and at most
/// [`MAX_SESSION_BYTES`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SessionId {
    bytes: [u8; MAX_SESSION_BYTES],
    length: u8,
}

impl SessionId {
    pub(super) fn new(text: &str) -> Option<Self> {
        let length = u8::try_from(text.len()).ok().filter(|length| *length > 0)?;
        let mut bytes = [0; MAX_SESSION_BYTES];
        bytes.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        text.is_ascii().then_some(Self { bytes, length })
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        // ASCII by construction.
        str::from_utf8(&self.bytes[..usize::from(self.length)]).unwrap_or_default()
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

/// A key, or a whole report, that was not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ignored {
    /// The key. Empty if there is none.
    pub key: &'static str,
    /// Why.
    pub reason: IgnoredReason,
}

/// Why a key or a report was not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IgnoredReason {
    /// No key, or a malformed string.
    Syntax,
    /// The key's value is not one that the key may have.
    Value,
    /// The key comes again. The last one counts (RFC 8941, Section 3.2).
    Duplicate,
    /// The data is longer than [`MAX_DATA_BYTES`] and not read, or has more than [`MAX_KEYS`] keys, of which the others
    /// are not read.
    TooLong,
    /// The report has a higher version than [`MAX_VERSION`], and is ignored whole (CTA-5004-B, Section 6).
    Version,
}

impl IgnoredReason {
    /// All reasons.
    pub const ALL: [Self; 5] =
        [Self::Syntax, Self::Value, Self::Duplicate, Self::TooLong, Self::Version];

    /// The reason in logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Syntax => "syntax",
            Self::Value => "value",
            Self::Duplicate => "duplicate",
            Self::TooLong => "too_long",
            Self::Version => "version",
        }
    }
}
