//! A TOML text as a tree in which every value knows its place, so that a value that a sweep puts
//! elsewhere is still reported where it was written.

use std::fmt;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::key_list::KeyList;

/// What is wrong in a scenario file, and where: `FILE:LINE:COLUMN: KEY: PROBLEM`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    /// The file as it was named to us.
    pub file: PathBuf,
    /// Line and column in characters, both from 1; `None` when the file as a whole is meant.
    pub place: Option<(usize, usize)>,
    /// The key, as `link.loss`.
    pub key: Option<String>,
    /// What is wrong and what would be right.
    pub problem: String,
}

/// What reading a part of a scenario file gives.
pub(super) type ScenarioResult<T> = Result<T, ScenarioError>;

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some((line, column)) = self.place {
            write!(f, ":{line}:{column}")?;
        }
        if let Some(key) = &self.key {
            write!(f, ": {key}")?;
        }
        write!(f, ": {}", self.problem)
    }
}

impl std::error::Error for ScenarioError {}

/// A value and the byte offset at which it is written.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) value: TreeValue,
    pub(super) at: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum TreeValue {
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Table(Vec<TreeEntry>),
}

/// A key with its value; tables keep the order of the file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TreeEntry {
    pub(super) key: String,
    pub(super) at: usize,
    pub(super) node: Node,
}

impl Node {
    pub(super) fn kind(&self) -> &'static str {
        match self.value {
            TreeValue::Bool(_) => "a boolean",
            TreeValue::Integer(_) => "an integer",
            TreeValue::Float(_) => "a number",
            TreeValue::Text(_) => "a text",
            TreeValue::List(_) => "a list",
            TreeValue::Table(_) => "a table",
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        let TreeValue::Table(entries) = &self.value else { return None };
        entries.iter().find(|entry| entry.key == key).map(|entry| &entry.node)
    }

    pub(super) fn remove(&mut self, key: &str) -> Option<Self> {
        let TreeValue::Table(entries) = &mut self.value else { return None };
        let index = entries.iter().position(|entry| entry.key == key)?;
        Some(entries.remove(index).node)
    }

    /// Puts `node` where `path` leads. A step is a key, the number of an item, or `*` for all
    /// items; the last key may be new, and so may a table of `parameters`.
    pub(super) fn set(&mut self, path: &[&str], node: &Self) -> Result<(), String> {
        let Some((step, rest)) = path.split_first() else {
            *self = node.clone();
            return Ok(());
        };
        match &mut self.value {
            TreeValue::List(items) if *step == "*" => {
                items.iter_mut().try_for_each(|item| item.set(rest, node))
            }
            TreeValue::List(items) => {
                let count = items.len();
                let item = step.parse::<usize>().ok().and_then(|index| items.get_mut(index));
                let missing = || format!("no item {step:?}: there are {count}, counted from 0");
                item.ok_or_else(missing)?.set(rest, node)
            }
            TreeValue::Table(entries) => {
                if let Some(entry) = entries.iter_mut().find(|entry| entry.key == *step) {
                    return entry.node.set(rest, node);
                }
                if !rest.is_empty() && *step != "parameters" {
                    return Err(format!("there is no {step:?}"));
                }
                let mut new = Self { value: TreeValue::Table(Vec::new()), at: node.at };
                new.set(rest, node)?;
                entries.push(TreeEntry { key: (*step).to_owned(), at: node.at, node: new });
                Ok(())
            }
            _ => Err(format!("{step:?} is below {}", self.kind())),
        }
    }

    pub(super) fn to_json(&self) -> serde_json::Value {
        match &self.value {
            TreeValue::Bool(value) => (*value).into(),
            TreeValue::Integer(value) => (*value).into(),
            TreeValue::Float(value) => (*value).into(),
            TreeValue::Text(value) => value.as_str().into(),
            TreeValue::List(items) => items.iter().map(Self::to_json).collect(),
            TreeValue::Table(entries) => {
                let pairs = entries.iter().map(|entry| (entry.key.clone(), entry.node.to_json()));
                serde_json::Value::Object(pairs.collect())
            }
        }
    }
}

/// The text of a scenario file.
#[derive(Debug, Clone)]
pub(super) struct ScenarioText<'a> {
    pub(super) file: &'a Path,
    pub(super) text: &'a str,
    /// Takes down the keys that are read; for the list of all keys only.
    pub(super) keys: Option<&'a KeyList>,
}

impl ScenarioText<'_> {
    pub(super) fn error(&self, at: usize, key: &str, problem: impl Into<String>) -> ScenarioError {
        ScenarioError {
            file: self.file.to_owned(),
            place: Some(self.place(at)),
            key: (!key.is_empty()).then(|| key.to_owned()),
            problem: problem.into(),
        }
    }

    /// Line and column of a byte offset.
    pub(super) fn place(&self, at: usize) -> (usize, usize) {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }

    /// # Errors
    /// The text is not TOML.
    pub(super) fn parse(&self) -> Result<Node, ScenarioError> {
        let table = DeTable::parse(self.text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            self.error(at, "", error.message().trim_end().replace('\n', ", "))
        })?;
        Ok(Node { value: self.table(table.get_ref())?, at: table.span().start })
    }

    fn table(&self, table: &DeTable<'_>) -> Result<TreeValue, ScenarioError> {
        let entry = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
            let key: &std::borrow::Cow<'_, str> = key.get_ref();
            Ok((key.to_string(), self.node(value)?))
        };
        let pairs: Vec<(String, Node)> = table.iter().map(entry).collect::<Result<_, _>>()?;
        let starts = table.iter().map(|(key, _)| key.span().start);
        let mut entries: Vec<TreeEntry> = pairs
            .into_iter()
            .zip(starts)
            .map(|((key, node), at)| TreeEntry { key, at, node })
            .collect();
        entries.sort_by_key(|entry| entry.at);
        Ok(TreeValue::Table(entries))
    }

    fn node(&self, value: &Spanned<DeValue<'_>>) -> Result<Node, ScenarioError> {
        let at = value.span().start;
        let value = match value.get_ref() {
            DeValue::Boolean(value) => TreeValue::Bool(*value),
            DeValue::Integer(value) => {
                let number = i64::from_str_radix(value.as_str(), value.radix());
                TreeValue::Integer(
                    number.map_err(|_| self.error(at, "", "this integer is too large"))?,
                )
            }
            DeValue::Float(value) => {
                let number = value.as_str().parse();
                TreeValue::Float(number.map_err(|_| self.error(at, "", "this is not a number"))?)
            }
            DeValue::String(value) => TreeValue::Text(value.to_string()),
            DeValue::Datetime(_) => return Err(self.error(at, "", "dates have no meaning here")),
            DeValue::Array(items) => {
                TreeValue::List(items.iter().map(|item| self.node(item)).collect::<Result<_, _>>()?)
            }
            DeValue::Table(table) => self.table(table)?,
        };
        Ok(Node { value, at })
    }
}
