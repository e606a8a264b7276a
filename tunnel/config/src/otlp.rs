//! `[otlp]`: export of metrics and of traces of the set-up of flows, to an OpenTelemetry Collector.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer};

use crate::secret_file;
use crate::value::{HostPort, Int, from_string};
use crate::{ConfigError, Source};

/// Most fields of a file with header fields.
const MAX_HEADER_FIELDS: usize = 32;
/// Longest name and longest value, in bytes.
const MAX_HEADER_BYTES: usize = 4096;
/// A larger file holds more fields than there may be.
const MAX_HEADERS_FILE_BYTES: u64 = (MAX_HEADER_FIELDS * (2 * MAX_HEADER_BYTES + 4)) as u64;

/// `[otlp]`: where metrics and traces go, over OTLP/HTTP with Protobuf.
#[derive(Clone, Debug, PartialEq)]
pub struct Otlp {
    /// The collector.
    pub endpoint: CollectorUrl,
    /// Time between two exports of the metrics, and the longest that a trace waits, 1 s to 1 h; default 15 s.
    pub interval: Duration,
    /// The part of flows whose set-up is traced, 0 to 1; default 0.01.
    pub sampling_ratio: f64,
    /// A file with fields that requests have, such as `Authorization`.
    pub headers_file: Option<PathBuf>,
}

/// Address of a collector, written `http://HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorUrl(HostPort);

/// Not written `http://HOST:PORT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected the address of a collector, as \"http://127.0.0.1:4318\"")]
pub struct InvalidCollectorUrl;

/// Fields of HTTP requests. Their values are never printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct HeaderFields(Vec<(String, String)>);

#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawOtlp {
    endpoint: Option<CollectorUrl>,
    interval_s: Int<15, 1, 3600>,
    sampling_ratio: f64,
    headers_file: Option<PathBuf>,
}

impl Default for RawOtlp {
    fn default() -> Self {
        Self {
            endpoint: None,
            interval_s: Int::default(),
            sampling_ratio: 0.01,
            headers_file: None,
        }
    }
}

impl RawOtlp {
    /// `None` without `endpoint`.
    pub(crate) fn check(self, source: &Source) -> Result<Option<Otlp>, ConfigError> {
        if !(0.0..=1.0).contains(&self.sampling_ratio) {
            let problem =
                format!("{} must be from 0, no flow, to 1, every flow", self.sampling_ratio);
            return Err(source.error("otlp.sampling_ratio", problem));
        }
        let Some(endpoint) = self.endpoint else {
            return match self.headers_file {
                None => Ok(None),
                Some(_) => Err(source.error("otlp.headers_file", "only goes with otlp.endpoint")),
            };
        };
        Ok(Some(Otlp {
            endpoint,
            interval: self.interval_s.seconds(),
            sampling_ratio: self.sampling_ratio,
            headers_file: self.headers_file.as_deref().map(|file| source.resolve(file)),
        }))
    }
}

impl Otlp {
    /// The fields that requests have.
    ///
    /// # Errors
    /// What is wrong with their file, and what would be right.
    pub fn headers(&self) -> io::Result<HeaderFields> {
        self.headers_file.as_deref().map_or_else(|| Ok(HeaderFields::default()), HeaderFields::read)
    }

    /// Checks the file with the fields.
    pub(crate) fn check_files(&self, source: &Source) -> Result<(), ConfigError> {
        let checked = self.headers().map(drop);
        checked.map_err(|error| source.error("otlp.headers_file", error.to_string()))
    }
}

impl CollectorUrl {
    /// Host and port.
    pub fn authority(&self) -> &HostPort {
        &self.0
    }
}

impl fmt::Display for CollectorUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.0)
    }
}

impl FromStr for CollectorUrl {
    type Err = InvalidCollectorUrl;

    fn from_str(text: &str) -> Result<Self, InvalidCollectorUrl> {
        let rest = text.strip_prefix("http://").ok_or(InvalidCollectorUrl)?;
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        Ok(Self(authority.parse().map_err(|_| InvalidCollectorUrl)?))
    }
}

impl<'de> Deserialize<'de> for CollectorUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "the OTLP/HTTP address of a collector, http:// with host and port and without a path, as \
                        \"http://127.0.0.1:4318\"; for https:// run a collector on this host";
        from_string(deserializer, expected)
    }
}

impl HeaderFields {
    /// Reads `NAME: VALUE` lines from a file that not every user of this host can read.
    ///
    /// # Errors
    /// What is wrong with the file, and what would be right.
    pub fn read(path: &Path) -> io::Result<Self> {
        let text = secret_file::read(path, MAX_HEADERS_FILE_BYTES)?.text;
        let mut fields = Self::default();
        for (index, line) in text.lines().enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            // The line itself is not shown: it is a secret.
            let is_added =
                line.split_once(':').is_some_and(|(name, value)| fields.add(name, value));
            if !is_added {
                let expected = format!(
                    "expected NAME: VALUE, at most {MAX_HEADER_FIELDS} of them and {MAX_HEADER_BYTES} bytes each"
                );
                return Err(secret_file::wrong(path, format!("line {}: {expected}", index + 1)));
            }
        }
        Ok(fields)
    }

    /// Adds a field, with space around its value removed. `false` if it is no field of HTTP (RFC 9110, Section 5), or
    /// one field too many.
    pub fn add(&mut self, name: &str, value: &str) -> bool {
        let value = value.trim_matches([' ', '\t']);
        let is_token =
            |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        let is_good = (1..=MAX_HEADER_BYTES).contains(&name.len())
            && name.bytes().all(is_token)
            && value.len() <= MAX_HEADER_BYTES
            && value.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t'))
            && self.0.len() < MAX_HEADER_FIELDS;
        if is_good {
            self.0.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        is_good
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl fmt::Debug for HeaderFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|(name, _)| name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn read(text: &str, mode: u32) -> io::Result<HeaderFields> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
        HeaderFields::read(file.path())
    }

    #[test]
    fn collector_has_host_and_port_only() {
        for text in ["http://127.0.0.1:4318", "http://[::1]:4318", "http://otel.example:80"] {
            assert_eq!(text.parse::<CollectorUrl>().unwrap().to_string(), text);
        }
        let with_slash = "http://a:4318/".parse::<CollectorUrl>().unwrap();
        assert_eq!(with_slash.to_string(), "http://a:4318");
        for text in [
            "",
            "127.0.0.1:4318",
            "https://a:4318",
            "http://a",
            "http://a:4318/v1/traces",
            "http://user:word@a:4318",
            "http://a:4318?x",
            "http://a:0",
        ] {
            assert_eq!(text.parse::<CollectorUrl>(), Err(InvalidCollectorUrl), "{text}");
        }
    }

    #[test]
    fn fields_are_read_from_a_private_file_and_values_are_not_shown() {
        let fields = read("# for the collector\nAuthorization: Bearer abc\n\nX-Tenant:7\n", 0o600);
        let fields = fields.unwrap();
        let expected = [("authorization", "Bearer abc"), ("x-tenant", "7")];
        assert_eq!(fields.iter().collect::<Vec<_>>(), expected);
        assert!(!format!("{fields:?}").contains("abc"));
        let problem = |text: &str, mode| read(text, mode).unwrap_err().to_string();
        assert!(problem("a: b", 0o644).contains("chmod 600"));
        for wrong in ["a", "a b: c", ": c", "a: b\u{1}c", "a: \u{e4}", &"a: b\n".repeat(33)] {
            let text = problem(wrong, 0o600);
            assert!(text.contains("NAME: VALUE") && text.contains("line "), "{wrong:?}: {text}");
        }
    }
}
