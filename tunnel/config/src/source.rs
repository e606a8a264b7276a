//! The text of a configuration file, and where in it each key is.

use std::fmt;
use std::fs;
use std::io::{ErrorKind, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::ConfigError;

/// A larger file is not a configuration; it bounds what a wrong path can make us read.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// What the parser says of a table, `[listen]`, where a list of them is right, `[[listen]]`.
const TABLE_FOR_LIST: &str = "invalid type: map, expected a sequence";

/// The text that a configuration came from.
///
/// It stays with the parsed configuration, so that what turns out wrong later (an address that
/// can't be bound, a certificate that can't be read) is reported with its line too.
#[derive(Clone)]
pub struct Source {
    file: PathBuf,
    text: Arc<str>,
}

/// Shows the file name only: the text may contain secrets.
impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Source").field(&self.file).finish()
    }
}

impl Source {
    /// Text already in memory, which errors call `file`.
    pub fn new(text: &str, file: &Path) -> Self {
        Self { file: file.to_owned(), text: text.into() }
    }

    /// Reads the file at `path`, at most 1 MiB.
    ///
    /// # Errors
    /// The file can't be opened or read, is too large, or isn't UTF-8.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let whole_file = |problem: String| ConfigError {
            file: path.to_owned(),
            line: None,
            column: None,
            key: None,
            problem,
        };
        let file = fs::File::open(path).map_err(|error| {
            whole_file(match error.kind() {
                ErrorKind::NotFound => {
                    "there is no such file; --config FILE names another configuration".to_owned()
                }
                _ => format!("can't open the configuration: {error}"),
            })
        })?;
        let mut bytes = Vec::new();
        file.take(MAX_FILE_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| whole_file(format!("can't read the configuration: {error}")))?;
        if u64::try_from(bytes.len()).is_ok_and(|length| length > MAX_FILE_BYTES) {
            return Err(whole_file(format!("longer than {MAX_FILE_BYTES} bytes")));
        }
        let text =
            String::from_utf8(bytes).map_err(|_| whole_file("not a UTF-8 text".to_owned()))?;
        Ok(Self { file: path.to_owned(), text: text.into() })
    }

    /// The file as it was named to us.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// An error about `key`, which is written as `tunnel.ca` or `listen[1].address`.
    ///
    /// Where the file doesn't set the key, the place is that of the nearest table that it does
    /// have.
    pub fn error(&self, key: &str, problem: impl Into<String>) -> ConfigError {
        self.error_at(self.span_of(key), Some(key.to_owned()), problem.into())
    }

    /// A path from the file, made absolute or relative to the working directory.
    pub(crate) fn resolve(&self, path: &Path) -> PathBuf {
        self.file.parent().unwrap_or(Path::new("")).join(path)
    }

    /// Deserializes the whole file.
    pub(crate) fn deserialize<T: DeserializeOwned>(&self) -> Result<T, ConfigError> {
        toml::from_str(&self.text).map_err(|error| {
            let span = error.span().filter(|span| !span.is_empty() || span.start > 0);
            let problem = error.message().trim_end().replace('\n', ", ");
            let key = span.clone().and_then(|span| match problem.as_str() {
                // The file doesn't parse then, and has no keys that could be searched.
                "duplicate key" => self.text.get(span).map(str::to_owned),
                _ => self.key_at(span.start),
            });
            let problem = match (&key, &span) {
                (Some(key), Some(span)) if problem == TABLE_FOR_LIST && self.is_header(span) => {
                    format!("several are possible, so write [[{key}]] instead of [{key}]")
                }
                _ => problem,
            };
            self.error_at(span, key, problem)
        })
    }

    /// Whether the line of `span` is the header of a table.
    fn is_header(&self, span: &Range<usize>) -> bool {
        let line = self.text.get(..span.start).map_or(0, |before| before.matches('\n').count());
        self.text.lines().nth(line).is_some_and(|line| line.trim_start().starts_with('['))
    }

    fn error_at(
        &self,
        span: Option<Range<usize>>,
        key: Option<String>,
        problem: String,
    ) -> ConfigError {
        let position = span.map(|span| self.position(span.start));
        ConfigError {
            file: self.file.clone(),
            line: position.map(|(line, _)| line),
            column: position.map(|(_, column)| column),
            key,
            problem,
        }
    }

    /// Line and column, both from 1, of a byte offset.
    fn position(&self, offset: usize) -> (usize, usize) {
        let before = self.text.get(..offset).unwrap_or(&self.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }

    /// The place of a key's value, or of the nearest enclosing value that exists.
    fn span_of(&self, key: &str) -> Option<Range<usize>> {
        let table = DeTable::parse(&self.text).ok()?;
        let mut found = None;
        let mut value: Option<&Spanned<DeValue<'_>>> = None;
        for step in key.split(['.', '[']) {
            let next = match (step.strip_suffix(']'), value) {
                (Some(index), Some(array)) => {
                    array.get_ref().as_array().and_then(|a| a.get(index.parse::<usize>().ok()?))
                }
                (_, None) => table.get_ref().get(step),
                (None, Some(inner)) => inner.get_ref().as_table().and_then(|t| t.get(step)),
            };
            let Some(next) = next else { break };
            found = Some(next.span());
            value = Some(next);
        }
        found
    }

    /// The key whose name or value covers a byte offset; the innermost one.
    fn key_at(&self, offset: usize) -> Option<String> {
        let table = DeTable::parse(&self.text).ok()?;
        let mut best = None;
        search_table(table.get_ref(), "", offset, &mut best);
        best.map(|(_, key)| key)
    }
}

/// The narrowest span found so far, and its key.
type Best = Option<(usize, String)>;

// A `[table]`'s span is its header only, so that all of its entries must be looked at.
fn search_table(table: &DeTable<'_>, prefix: &str, offset: usize, best: &mut Best) {
    for (key, value) in table {
        let name = match prefix {
            "" => key.get_ref().to_string(),
            _ => format!("{prefix}.{}", key.get_ref()),
        };
        consider(key.span(), &name, offset, best);
        search_value(value, &name, offset, best);
    }
}

fn search_value(value: &Spanned<DeValue<'_>>, name: &str, offset: usize, best: &mut Best) {
    consider(value.span(), name, offset, best);
    match value.get_ref() {
        DeValue::Table(table) => search_table(table, name, offset, best),
        DeValue::Array(array) => {
            for (index, item) in array.iter().enumerate() {
                search_value(item, &format!("{name}[{index}]"), offset, best);
            }
        }
        _ => {}
    }
}

fn consider(span: Range<usize>, name: &str, offset: usize, best: &mut Best) {
    if span.contains(&offset) && best.as_ref().is_none_or(|(length, _)| span.len() <= *length) {
        *best = Some((span.len(), name.to_owned()));
    }
}
