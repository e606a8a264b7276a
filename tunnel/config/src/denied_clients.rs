//! The file that `tunnel.denied_clients` names: clients that are refused although their certificate is valid.
//!
//! One entry a line: `serial HEX`, as `openssl x509 -serial` prints it, or `name TEXT`, the common name or a
//! subject alternative name. `#` begins a comment.

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::io::Read;
use std::path::Path;

use crate::ConfigError;

/// A larger file is not a deny-list; it bounds what a wrong path can make us read.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// RFC 5280, Section 4.1.2.2.
const MAX_SERIAL_BYTES: usize = 20;

/// Serial numbers and names of certificates that are refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeniedClients {
    /// Upper-case hexadecimal digits without leading zeros.
    serials: HashSet<String>,
    /// In lower case: DNS names have no case, and a denied client must not get in by another spelling.
    names: HashSet<String>,
}

/// The entry that a certificate matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeniedEntry {
    /// By its serial number.
    Serial(String),
    /// By one of its names.
    Name(String),
}

impl fmt::Display for DeniedEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Serial(serial) => write!(f, "serial {serial}"),
            Self::Name(name) => write!(f, "name {name}"),
        }
    }
}

impl DeniedClients {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// It can't be read, is longer than 4 MiB, or has a line that is no entry.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let whole_file = |problem: String| error(path, None, problem);
        let file = fs::File::open(path)
            .map_err(|error| whole_file(format!("can't open the deny-list: {error}")))?;
        let mut text = String::new();
        file.take(MAX_FILE_BYTES + 1)
            .read_to_string(&mut text)
            .map_err(|error| whole_file(format!("can't read the deny-list: {error}")))?;
        if text.len() as u64 > MAX_FILE_BYTES {
            return Err(whole_file(format!("longer than {MAX_FILE_BYTES} bytes")));
        }
        Self::parse(&text).map_err(|(line, problem)| error(path, Some(line), problem))
    }

    /// Parses the text of such a file.
    ///
    /// # Errors
    /// The number of the first wrong line, from 1, and what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, (usize, String)> {
        let mut denied = Self::default();
        for (index, line) in text.lines().enumerate() {
            let line = without_comment(line).trim();
            if !line.is_empty() {
                denied.add(line).map_err(|problem| (index + 1, problem))?;
            }
        }
        Ok(denied)
    }

    fn add(&mut self, line: &str) -> Result<(), String> {
        match line.split_once(char::is_whitespace) {
            Some(("serial", serial)) => {
                let serial = normal_serial(serial.trim()).ok_or(
                    "a serial number is 1 to 40 hexadecimal digits, as 01:AB:CD or 01abcd",
                )?;
                self.serials.insert(serial);
            }
            Some(("name", name)) => {
                self.names.insert(name.trim().to_lowercase());
            }
            _ => return Err("must be \"serial HEX\" or \"name TEXT\"".to_owned()),
        }
        Ok(())
    }

    /// Whether no client is denied.
    pub fn is_empty(&self) -> bool {
        self.serials.is_empty() && self.names.is_empty()
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.serials.len() + self.names.len()
    }

    /// The entry that the certificate with this serial number and these names matches.
    pub fn entry(&self, serial: &[u8], names: &[String]) -> Option<DeniedEntry> {
        let digits: String = serial.iter().map(|byte| format!("{byte:02X}")).collect();
        let serial = without_leading_zeros(&digits);
        if self.serials.contains(serial) {
            return Some(DeniedEntry::Serial(serial.to_owned()));
        }
        let name = names.iter().find(|name| self.names.contains(&name.to_lowercase()))?;
        Some(DeniedEntry::Name(name.clone()))
    }
}

/// A `#` inside a word belongs to a name.
fn without_comment(line: &str) -> &str {
    let begins =
        |(at, _): &(usize, &str)| line[..*at].chars().last().is_none_or(char::is_whitespace);
    line.match_indices('#').find(begins).map_or(line, |(at, _)| &line[..at])
}

fn error(path: &Path, line: Option<usize>, problem: String) -> ConfigError {
    ConfigError { file: path.to_owned(), line, column: None, key: None, problem }
}

fn normal_serial(text: &str) -> Option<String> {
    let digits: String = text.split(':').collect::<String>().to_ascii_uppercase();
    let is_serial = (1..=2 * MAX_SERIAL_BYTES).contains(&digits.len())
        && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_serial.then(|| without_leading_zeros(&digits).to_owned())
}

fn without_leading_zeros(digits: &str) -> &str {
    let trimmed = digits.trim_start_matches('0');
    if trimmed.is_empty() { "0" } else { trimmed }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str =
        "# stolen in March\nserial 0a:1B:2c\n\nname Edge-7  # retired\nname a b#1\nserial 00\n";

    #[test]
    fn serial_matches_in_every_spelling() {
        for text in ["serial 0a:1B:2c", "serial 0A1B2C", "serial a1b2c", "serial\t000a1b2c "] {
            let denied = DeniedClients::parse(text).unwrap();
            let serial = DeniedEntry::Serial("A1B2C".to_owned());
            assert_eq!(denied.entry(&[0x0a, 0x1b, 0x2c], &[]), Some(serial.clone()), "{text}");
            assert_eq!(denied.entry(&[0, 0x0a, 0x1b, 0x2c], &[]), Some(serial), "{text}");
            assert_eq!(denied.entry(&[0xa1, 0xb2, 0xc0], &[]), None, "{text}");
        }
    }

    #[test]
    fn name_matches_without_regard_to_case() {
        let denied = DeniedClients::parse(LIST).unwrap();
        assert_eq!(denied.len(), 4);
        let entry = |name: &str| denied.entry(&[1], &["x".to_owned(), name.to_owned()]);
        assert_eq!(entry("EDGE-7"), Some(DeniedEntry::Name("EDGE-7".to_owned())));
        assert!(entry("a b#1").is_some() && entry("edge-77").is_none() && entry("a").is_none());
        assert!(denied.entry(&[0], &[]).is_some() && denied.entry(&[], &[]).is_some());
    }

    #[test]
    fn empty_list_denies_nothing() {
        let denied = DeniedClients::parse("# nobody\n\n").unwrap();
        assert!(denied.is_empty() && denied.entry(&[0], &["".to_owned()]).is_none());
    }

    #[test]
    fn wrong_line_is_reported_with_its_number() {
        for (text, line, problem) in [
            ("edge-7", 1, "must be \"serial HEX\""),
            ("\nserial", 2, "must be \"serial HEX\""),
            ("name a\nserials 1", 2, "must be \"serial HEX\""),
            ("serial xyz", 1, "hexadecimal"),
            ("serial 0123456789012345678901234567890123456789a", 1, "1 to 40"),
            ("serial :", 1, "1 to 40"),
        ] {
            let (at, said) = DeniedClients::parse(text).unwrap_err();
            assert!(at == line && said.contains(problem), "{text:?}: {at}: {said}");
        }
        let directory = std::env::temp_dir();
        let said = DeniedClients::read(&directory.join("no-such-deny-list")).unwrap_err();
        assert!(said.to_string().contains("can't open the deny-list"), "{said}");
    }
}
