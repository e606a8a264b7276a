//! Takes a table apart key by key: types, ranges, defaults, and no key left over.

use std::fmt::Display;
use std::ops::RangeInclusive;

use super::key_list::ScenarioKey;
use super::link::TraceReference;
use super::tree::{Node, ScenarioError, ScenarioResult, ScenarioText, TreeValue};

/// One table of the file.
pub(super) struct TableReader<'a> {
    text: &'a ScenarioText<'a>,
    /// Its key, as `link.change[1]`; empty for the file itself.
    path: String,
    node: &'a Node,
    known: Vec<&'static str>,
}

/// The place of the value of `key`, or of the table where it has none.
pub(super) fn reference(reader: &TableReader<'_>, key: &str) -> TraceReference {
    let at = reader.node.get(key).unwrap_or(reader.node).at;
    TraceReference { file: reader.text.file.to_owned(), place: reader.text.place(at) }
}

impl<'a> TableReader<'a> {
    pub(super) fn new(
        text: &'a ScenarioText<'a>,
        path: &str,
        node: &'a Node,
    ) -> ScenarioResult<Self> {
        match node.value {
            TreeValue::Table(_) => {
                Ok(Self { text, path: path.to_owned(), node, known: Vec::new() })
            }
            _ => Err(text.error(node.at, path, format!("{}, expected a table", node.kind()))),
        }
    }

    /// The value of a key, which is known from now on.
    pub(super) fn node(&mut self, key: &'static str) -> Option<&'a Node> {
        self.known.push(key);
        self.note(key, || ScenarioKey::default().kind);
        self.node.get(key)
    }

    /// Takes down what the value of a key may be.
    fn note(&self, key: &str, kind: impl FnOnce() -> String) {
        if let Some(keys) = self.text.keys {
            keys.note(&self.name(key), kind());
        }
    }

    /// Takes down what the absence of a key means: this value, or an error.
    fn note_absent(&self, key: &str, default: Option<&dyn Display>) {
        let Some(keys) = self.text.keys else { return };
        match default {
            Some(default) => keys.note_default(&self.name(key), default.to_string()),
            None => keys.note_required(&self.name(key)),
        }
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.node.get(key).is_some()
    }

    pub(super) fn name(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    pub(super) fn to_json(&self) -> serde_json::Value {
        self.node.to_json()
    }

    /// An error about the value of `key`, or about the table where it has none.
    pub(super) fn error(&self, key: &str, problem: impl Into<String>) -> ScenarioError {
        let at = self.node.get(key).unwrap_or(self.node).at;
        self.text.error(at, &self.name(key), problem)
    }

    /// An error about the table.
    pub(super) fn table_error(&self, problem: impl Into<String>) -> ScenarioError {
        self.text.error(self.node.at, &self.path, problem)
    }

    pub(super) fn number_of(
        &self,
        node: &Node,
        key: &str,
        range: &RangeInclusive<f64>,
    ) -> ScenarioResult<f64> {
        let value = match node.value {
            TreeValue::Integer(value) => value as f64,
            TreeValue::Float(value) => value,
            _ => {
                let problem = format!("{}, expected a number", node.kind());
                return Err(self.text.error(node.at, &self.name(key), problem));
            }
        };
        // Not-a-number is in no range.
        if range.contains(&value) {
            return Ok(value);
        }
        let problem = format!("{value} is out of range: {} to {}", range.start(), range.end());
        Err(self.text.error(node.at, &self.name(key), problem))
    }

    pub(super) fn maybe_number(
        &mut self,
        key: &'static str,
        range: RangeInclusive<f64>,
    ) -> ScenarioResult<Option<f64>> {
        let node = self.node(key);
        self.note(key, || number_kind(&range));
        node.map(|node| self.number_of(node, key, &range)).transpose()
    }

    pub(super) fn number(
        &mut self,
        key: &'static str,
        range: RangeInclusive<f64>,
        default: f64,
    ) -> ScenarioResult<f64> {
        let found = self.maybe_number(key, range)?;
        self.note_absent(key, Some(&default));
        Ok(found.unwrap_or(default))
    }

    pub(super) fn needed_number(
        &mut self,
        key: &'static str,
        range: RangeInclusive<f64>,
    ) -> ScenarioResult<f64> {
        let expected = format!("is missing: a number from {} to {}", range.start(), range.end());
        let found = self.maybe_number(key, range)?;
        self.note_absent(key, None);
        found.ok_or_else(|| self.error(key, expected))
    }

    pub(super) fn maybe_integer(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u64>,
    ) -> ScenarioResult<Option<u64>> {
        let node = self.node(key);
        self.note(key, || format!("integer, {} to {}", range.start(), range.end()));
        let Some(node) = node else { return Ok(None) };
        let TreeValue::Integer(value) = node.value else {
            return Err(self.error(key, format!("{}, expected an integer", node.kind())));
        };
        match u64::try_from(value).ok().filter(|value| range.contains(value)) {
            Some(value) => Ok(Some(value)),
            None => {
                let (low, high) = (range.start(), range.end());
                Err(self.error(key, format!("{value} is out of range: {low} to {high}")))
            }
        }
    }

    pub(super) fn integer(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u64>,
        default: u64,
    ) -> ScenarioResult<u64> {
        let found = self.maybe_integer(key, range)?;
        self.note_absent(key, Some(&default));
        Ok(found.unwrap_or(default))
    }

    pub(super) fn boolean(&mut self, key: &'static str, default: bool) -> ScenarioResult<bool> {
        let node = self.node(key);
        self.note(key, || "boolean".to_owned());
        self.note_absent(key, Some(&default));
        match node.map(|node| (&node.value, node.kind())) {
            None => Ok(default),
            Some((TreeValue::Bool(value), _)) => Ok(*value),
            Some((_, kind)) => Err(self.error(key, format!("{kind}, expected true or false"))),
        }
    }

    pub(super) fn maybe_text(&mut self, key: &'static str) -> ScenarioResult<Option<String>> {
        let node = self.node(key);
        self.note(key, || "text".to_owned());
        match node.map(|node| (&node.value, node.kind())) {
            None => Ok(None),
            Some((TreeValue::Text(value), _)) if !value.trim().is_empty() => {
                Ok(Some(value.clone()))
            }
            Some((TreeValue::Text(_), _)) => Err(self.error(key, "must not be empty")),
            Some((_, kind)) => Err(self.error(key, format!("{kind}, expected a text"))),
        }
    }

    pub(super) fn text(&mut self, key: &'static str) -> ScenarioResult<String> {
        let found = self.maybe_text(key)?;
        self.note_absent(key, None);
        found.ok_or_else(|| self.error(key, "is missing: a text"))
    }

    /// One of some words; without the key, the first.
    pub(super) fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        words: &[(&str, T)],
    ) -> ScenarioResult<T> {
        let word = self.maybe_text(key)?;
        self.note(key, || words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", "));
        self.note_absent(key, Some(&words[0].0));
        let Some(word) = word else { return Ok(words[0].1) };
        let found = words.iter().find(|(known, _)| *known == word);
        found.map(|(_, value)| *value).ok_or_else(|| {
            let known: Vec<_> = words.iter().map(|(known, _)| *known).collect();
            self.error(key, format!("{word:?}, expected one of {}", known.join(", ")))
        })
    }

    pub(super) fn table(&mut self, key: &'static str) -> ScenarioResult<Option<TableReader<'a>>> {
        let name = self.name(key);
        let node = self.node(key);
        self.note(key, || "table".to_owned());
        node.map(|node| TableReader::new(self.text, &name, node)).transpose()
    }

    /// The tables of `[[key]]`.
    pub(super) fn tables(&mut self, key: &'static str) -> ScenarioResult<Vec<TableReader<'a>>> {
        let name = self.name(key);
        let node = self.node(key);
        self.note(key, || "tables".to_owned());
        let Some(node) = node else { return Ok(Vec::new()) };
        let TreeValue::List(items) = &node.value else {
            return Err(self.error(key, format!("{}, expected [[{name}]]", node.kind())));
        };
        let reader = |(index, item)| TableReader::new(self.text, &format!("{name}[{index}]"), item);
        items.iter().enumerate().map(reader).collect()
    }

    /// Two numbers, the first not above the second.
    pub(super) fn span(
        &mut self,
        key: &'static str,
        range: RangeInclusive<f64>,
    ) -> ScenarioResult<Option<[f64; 2]>> {
        let node = self.node(key);
        self.note(key, || format!("smallest and largest {}", number_kind(&range)));
        let Some(node) = node else { return Ok(None) };
        let wrong = || self.error(key, "expected a list of the smallest and the largest number");
        let TreeValue::List(items) = &node.value else { return Err(wrong()) };
        let [low, high] = &items[..] else { return Err(wrong()) };
        let span = [self.number_of(low, key, &range)?, self.number_of(high, key, &range)?];
        if span[0] > span[1] { Err(wrong()) } else { Ok(Some(span)) }
    }

    /// A list of at most so many numbers; without the key, none.
    pub(super) fn numbers(
        &mut self,
        key: &'static str,
        range: RangeInclusive<f64>,
        at_most: usize,
    ) -> ScenarioResult<Vec<f64>> {
        let node = self.node(key);
        self.note(key, || format!("list of up to {at_most}: {}", number_kind(&range)));
        let Some(node) = node else { return Ok(Vec::new()) };
        let wrong = || self.error(key, format!("expected a list of up to {at_most} numbers"));
        let TreeValue::List(items) = &node.value else { return Err(wrong()) };
        if items.len() > at_most {
            return Err(wrong());
        }
        items.iter().map(|item| self.number_of(item, key, &range)).collect()
    }

    /// The entries of a table with keys of the user's.
    pub(super) fn entries(
        &mut self,
        key: &'static str,
    ) -> ScenarioResult<Vec<(&'a str, &'a Node)>> {
        let node = self.node(key);
        self.note(key, || "table".to_owned());
        let Some(node) = node else { return Ok(Vec::new()) };
        let TreeValue::Table(entries) = &node.value else {
            return Err(self.error(key, format!("{}, expected a table", node.kind())));
        };
        Ok(entries.iter().map(|entry| (entry.key.as_str(), &entry.node)).collect())
    }

    /// # Errors
    /// The table has an unknown key.
    pub(super) fn finish(mut self) -> ScenarioResult<()> {
        let TreeValue::Table(entries) = &self.node.value else { return Ok(()) };
        let Some(unknown) = entries.iter().find(|e| !self.known.contains(&e.key.as_str())) else {
            return Ok(());
        };
        self.known.sort_unstable();
        self.known.dedup();
        let problem = format!("unknown key; known here are {}", self.known.join(", "));
        Err(self.text.error(unknown.at, &self.name(&unknown.key), problem))
    }
}

fn number_kind(range: &RangeInclusive<f64>) -> String {
    if *range == (f64::MIN..=f64::MAX) {
        return "number".to_owned();
    }
    format!("number, {} to {}", range.start(), range.end())
}

/// A program and its arguments; empty without the key.
pub(super) fn words(table: &mut TableReader<'_>, key: &'static str) -> ScenarioResult<Vec<String>> {
    let Some(node) = table.node(key) else { return Ok(Vec::new()) };
    let wrong = || table.error(key, "expected the program and its arguments, a list of texts");
    let TreeValue::List(items) = &node.value else { return Err(wrong()) };
    let word = |item: &Node| match &item.value {
        TreeValue::Text(word) => Ok(word.clone()),
        _ => Err(wrong()),
    };
    items.iter().map(word).collect()
}
