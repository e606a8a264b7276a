//! A configuration file as a test writes it.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

/// Sections with keys and values, written as TOML. Lists of sections are kept as text.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    sections: BTreeMap<String, BTreeMap<String, String>>,
    lists: String,
}

impl Settings {
    /// Sets `section.key` to a value written as in TOML: `("tunnel.idle_timeout_s", 2)`,
    /// `("log.level", "\"debug\"")`.
    ///
    /// # Panics
    /// When `key` has no dot.
    pub fn set(&mut self, key: &str, value: impl Display) {
        let (section, key) = key.split_once('.').expect("a key is written section.key");
        let section = self.sections.entry(section.to_owned()).or_default();
        section.insert(key.to_owned(), value.to_string());
    }

    /// Like [`Settings::set`], unless it has been set.
    ///
    /// # Panics
    /// When `key` has no dot.
    pub fn set_default(&mut self, key: &str, value: impl Display) {
        let (section, name) = key.split_once('.').expect("a key is written section.key");
        if !self.sections.get(section).is_some_and(|keys| keys.contains_key(name)) {
            self.set(key, value);
        }
    }

    /// [`Settings::set_default`] with a string.
    ///
    /// # Panics
    /// When `key` has no dot.
    pub fn set_default_text(&mut self, key: &str, value: impl Display) {
        self.set_default(key, format!("\"{value}\""));
    }

    /// Adds one entry of a list of sections: `("listen", "mode = \"socks5\"\n...")`.
    pub fn push(&mut self, list: &str, body: &str) {
        self.lists.push_str(&format!("[[{list}]]\n{body}\n\n"));
    }
}

impl Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (section, keys) in &self.sections {
            writeln!(f, "[{section}]")?;
            for (key, value) in keys {
                writeln!(f, "{key} = {value}")?;
            }
            writeln!(f)?;
        }
        f.write_str(&self.lists)
    }
}
