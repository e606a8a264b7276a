//! All keys of a scenario file, for `docs/reference/scenarios.md`: types, ranges and defaults as the reader has them.

use std::path::Path;

use super::ScenarioFile;
use super::key_list::{KeyList, ScenarioKey};
use super::meanings::MEANINGS;
use super::tree::{ScenarioError, ScenarioText};

/// A file with every table.
const EVERY_TABLE: &str = r#"
name = "every-table"
title = "Every table"
duration_s = 10
[link]
rate_mbps = 10
rtt_ms = 10
buffer_bytes = 10000
[link.random_change]
every_s = 1
loss = [0, 0.1]
[[link.change]]
at_s = 1
loss = 0.1
[sim]
[spread]
[measure]
[peer.NAME]
client = ["program"]
[external.NAME]
command = ["program"]
[[flow]]
cc = "cubic"
[[flow.change]]
at_s = 1
cc = "bbr"
[[claim]]
text = "as much"
metric = "goodput_mbps"
at_least = 1
ratio_to = { where = { cc = "cubic" } }
[[claim]]
text = "more"
metric = "psnr_db"
at_least = 1
minus = { where = { cc = "cubic" } }
[[claim.and]]
metric = "goodput_mbps"
at_least = 1
"#;

/// Keys of a claim, which `[[claim.and]]` has too.
const REPEATED: &str = "claim[].and[].";

/// Keys whose default follows from another key.
const DEPENDENT: [&str; 3] = ["flow[].class", "flow[].stop_s", "flow[].via"];

/// All keys, except those of `[sweep]` and `[[plot]]`.
///
/// # Errors
/// The file with every table is wrong: a key became required.
pub fn scenario_keys() -> Result<Vec<ScenarioKey>, ScenarioError> {
    let list = KeyList::default();
    let file = Path::new("every-table.toml");
    ScenarioFile::read(&ScenarioText { file, text: EVERY_TABLE, keys: Some(&list) })?;
    let mut keys = list.into_keys();
    keys.retain(|key| !key.path.starts_with(REPEATED));
    for key in &mut keys {
        let meaning = MEANINGS.iter().find(|(path, _)| *path == key.path);
        key.meaning = meaning.map_or("", |(_, meaning)| meaning);
        if DEPENDENT.contains(&key.path.as_str()) {
            key.default = None;
        }
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_a_meaning_and_every_meaning_a_key() {
        let keys = scenario_keys().unwrap();
        let without: Vec<_> = keys.iter().filter(|key| key.meaning.is_empty()).collect();
        assert!(without.is_empty(), "{without:#?}");
        let is_key = |path: &str| keys.iter().any(|key| key.path == path);
        let unknown: Vec<_> = MEANINGS.iter().filter(|(path, _)| !is_key(path)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }

    #[test]
    fn ranges_and_defaults_are_those_of_the_reader() {
        let keys = scenario_keys().unwrap();
        let key = |path: &str| keys.iter().find(|key| key.path == path).unwrap();
        let loss = key("link.loss");
        assert_eq!((loss.kind.as_str(), loss.default.as_deref()), ("number, 0 to 1", Some("0")));
        assert!(key("link.rtt_ms").is_required && !loss.is_required);
        assert_eq!(key("series").kind, "first, all, none");
        assert_eq!(key("link.change[].buffer_bytes").kind, "integer, 0 to 1000000000");
    }
}
