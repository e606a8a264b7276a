//! What keys say together.

use std::collections::BTreeMap;

use super::members::{Member, members};
use super::report::{Ignored, IgnoredReason, MAX_DATA_BYTES, MAX_KEYS, MAX_VERSION, PlayerReport};
use super::value::{KeyValue, Kind, OBJECT_TYPES, figure_for};

/// The keys whose values are checked: those that [`PlayerReport`] is made of, and those that the origin uses as well
/// (`nginx-conf/lua/cmcd.lua`), so that both ignore the same.
const KEYS: [(&str, Kind); 16] = [
    ("ab", Kind::Figures),
    ("bl", Kind::Figures),
    ("br", Kind::Figures),
    ("bs", Kind::Flag),
    ("cid", Kind::Content),
    ("d", Kind::Integer),
    ("mtp", Kind::Figures),
    ("ot", Kind::Token(OBJECT_TYPES)),
    ("rtp", Kind::Integer),
    ("sf", Kind::Token(&["d", "h", "e", "s", "o"])),
    ("sid", Kind::Session),
    ("st", Kind::Token(&["v", "l", "ll"])),
    ("su", Kind::Flag),
    ("tab", Kind::Figures),
    ("tb", Kind::Figures),
    ("v", Kind::Integer),
];

/// What has been read of a request.
#[derive(Debug, Default)]
pub(super) struct Data {
    /// `None` for a key without a value that it may have.
    values: BTreeMap<&'static str, Option<KeyValue>>,
    ignored: Vec<Ignored>,
}

impl Data {
    /// Reads a query argument, which is encoded as those of forms: spaces in lists may be `+` (CTA-5004-B, Section 4.1,
    /// item 11).
    pub(super) fn read_encoded(&mut self, value: &str) {
        if value.len() > 3 * MAX_DATA_BYTES {
            return self.ignore("", IgnoredReason::TooLong);
        }
        let value = value.replace('+', " ");
        let data: Vec<u8> = percent_encoding::percent_decode_str(&value).collect();
        self.read(&data);
    }

    /// Reads a header field, or a query argument that was decoded.
    pub(super) fn read(&mut self, data: &[u8]) {
        if data.len() > MAX_DATA_BYTES {
            return self.ignore("", IgnoredReason::TooLong);
        }
        for (index, member) in members(data).enumerate() {
            if index == MAX_KEYS {
                return self.ignore("", IgnoredReason::TooLong);
            }
            match member {
                Member::Pair { key, rest } => self.read_pair(key, rest),
                Member::Malformed => self.ignore("", IgnoredReason::Syntax),
            }
        }
    }

    fn read_pair(&mut self, key: &str, rest: &[u8]) {
        // Others are of no use here (CTA-5004-B, Section 6: unknown keys are ignored).
        let Some((key, kind)) = KEYS.into_iter().find(|(known, _)| *known == key) else { return };
        let value = kind.value(rest);
        if value.is_none() {
            self.ignore(key, IgnoredReason::Value);
        }
        if self.values.insert(key, value).is_some() {
            self.ignore(key, IgnoredReason::Duplicate);
        }
    }

    fn ignore(&mut self, key: &'static str, reason: IgnoredReason) {
        self.ignored.push(Ignored { key, reason });
    }

    /// The report, and what is not in it.
    pub(super) fn finish(mut self) -> (Option<PlayerReport>, Vec<Ignored>) {
        if let Some(KeyValue::Integer(version)) = self.get("v")
            && *version > MAX_VERSION
        {
            self.ignore("v", IgnoredReason::Version);
            return (None, self.ignored);
        }
        (self.report(), self.ignored)
    }

    fn report(&self) -> Option<PlayerReport> {
        let session = match self.get("sid") {
            Some(KeyValue::Session(session)) => Some(*session),
            _ => None,
        };
        let requested_kbps = match self.get("rtp") {
            Some(KeyValue::Integer(kbps)) => Some(*kbps),
            _ => None,
        };
        let live = matches!(self.get("st"), Some(KeyValue::Token("l" | "ll")));
        let is_set = |key| self.get(key) == Some(&KeyValue::Flag(true));
        let report = PlayerReport {
            buffer_ms: self.figure("bl"),
            bitrate_kbps: self.figure("br").or_else(|| self.figure("ab")),
            top_bitrate_kbps: self.figure("tb").or_else(|| self.figure("tab")),
            throughput_kbps: self.figure("mtp"),
            requested_kbps,
            starved: is_set("bs"),
            urgent: is_set("su"),
            live,
            session,
        };
        (report != PlayerReport::default()).then_some(report)
    }

    fn figure(&self, key: &str) -> Option<u64> {
        let object_type = match self.get("ot") {
            Some(KeyValue::Token(object_type)) => Some(*object_type),
            _ => None,
        };
        match self.get(key)? {
            KeyValue::Figures(figures) => figure_for(object_type, figures),
            _ => None,
        }
    }

    fn get(&self, key: &str) -> Option<&KeyValue> {
        self.values.get(key)?.as_ref()
    }
}
