//! Keys that are taken down while a scenario file is read.

use std::cell::RefCell;

/// A key of a scenario file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioKey {
    /// Where it is, as `link.change[].at_s`; `[]` stands for each table of a list.
    pub path: String,
    /// What its value may be.
    pub kind: String,
    /// The value that it has if the file lacks it, where that does not depend on other keys.
    pub default: Option<String>,
    /// Whether it can't be absent.
    pub is_required: bool,
    /// What it is for.
    pub meaning: &'static str,
}

impl Default for ScenarioKey {
    fn default() -> Self {
        Self {
            path: String::new(),
            kind: "see text".to_owned(),
            default: None,
            is_required: false,
            meaning: "",
        }
    }
}

/// The keys that were read, in the order of their first reading.
#[derive(Debug, Default)]
pub(super) struct KeyList(RefCell<Vec<ScenarioKey>>);

impl KeyList {
    /// The keys.
    pub(super) fn into_keys(self) -> Vec<ScenarioKey> {
        self.0.into_inner()
    }

    fn change(&self, path: &str, change: impl FnOnce(&mut ScenarioKey)) {
        let path = without_numbers(path);
        let mut keys = self.0.borrow_mut();
        let index = keys.iter().position(|key| key.path == path).unwrap_or_else(|| {
            keys.push(ScenarioKey { path, ..ScenarioKey::default() });
            keys.len() - 1
        });
        change(&mut keys[index]);
    }

    /// The most specific of several descriptions counts.
    pub(super) fn note(&self, path: &str, kind: String) {
        let unspecific = ScenarioKey::default().kind;
        self.change(path, |key| {
            if kind != unspecific {
                key.kind = kind;
            }
        });
    }

    pub(super) fn note_default(&self, path: &str, default: String) {
        self.change(path, |key| key.default = Some(default));
    }

    pub(super) fn note_required(&self, path: &str) {
        self.change(path, |key| key.is_required = true);
    }
}

/// `flow[0].change[1].at_s` as `flow[].change[].at_s`.
fn without_numbers(path: &str) -> String {
    let mut parts = path.split('[');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain.push('[');
        plain.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    plain
}
