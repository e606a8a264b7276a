//! Selection of a part of a file's cells by swept values.

use std::str::FromStr;

use serde_json::Value;

use super::{Scenario, ScenarioFile};

/// One value of a swept key, as on the command line: `link.loss=0.01`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellSelector {
    /// The key, as the file has it.
    pub key: String,
    /// The value.
    pub value: String,
}

impl FromStr for CellSelector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((key, value)) if !key.is_empty() && !value.is_empty() => {
                Ok(Self { key: key.to_owned(), value: value.to_owned() })
            }
            _ => Err("expected KEY=VALUE, such as link.loss=0.01".to_owned()),
        }
    }
}

impl CellSelector {
    fn matches(&self, value: &Value) -> bool {
        match (value, self.value.parse::<f64>()) {
            (Value::String(text), _) => *text == self.value,
            (Value::Number(number), Ok(wanted)) => number.as_f64() == Some(wanted),
            (Value::Bool(flag), _) => self.value.parse() == Ok(*flag),
            _ => false,
        }
    }
}

/// Keeps the cells of each file that have a selected value of each selected key that the file sweeps, and drops
/// files without such cells. Cells that are `there` already stay too.
///
/// # Errors
/// A selector that no file matches: which, and what there is.
pub fn select(
    files: &mut Vec<ScenarioFile>,
    selectors: &[CellSelector],
    there: impl Fn(&Scenario) -> bool,
) -> Result<(), String> {
    for selector in selectors {
        let swept = files.iter().flat_map(|file| &file.sweep);
        let all = |swept: &mut dyn Iterator<Item = String>| {
            let mut all: Vec<String> = swept.collect();
            all.sort();
            all.dedup();
            all.join(", ")
        };
        let mut values = swept.clone().filter(|(key, _)| *key == selector.key).peekable();
        if values.peek().is_none() {
            let keys = all(&mut swept.map(|(key, _)| key.clone()));
            return Err(format!("no scenario sweeps {}; swept are {keys}", selector.key));
        }
        let mut values = values.flat_map(|(_, values)| values);
        if !values.clone().any(|value| selector.matches(value)) {
            let shown = |value: &Value| value.as_str().map_or(value.to_string(), str::to_owned);
            let values = all(&mut values.by_ref().map(shown));
            let CellSelector { key, value } = selector;
            return Err(format!("{key} is never {value}; there are {values}"));
        }
    }
    let is_selected = |key: &str, value: &Value| {
        let mut of_key = selectors.iter().filter(|selector| selector.key == key).peekable();
        of_key.peek().is_none() || of_key.any(|selector| selector.matches(value))
    };
    for file in files.iter_mut() {
        file.cells.retain(|cell| {
            cell.at.iter().all(|(key, value)| is_selected(key, value)) || there(&cell.scenario)
        });
    }
    files.retain(|file| !file.cells.is_empty());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn files() -> Vec<ScenarioFile> {
        let file = |name: &str, sweep: &str| {
            let text = format!(
                "name = \"{name}\"\ntitle = \"A\"\nduration_s = 1\n\
                 link = {{ rate_mbps = 1, rtt_ms = 1, buffer_bytes = 1500 }}\n{sweep}\n\
                 [[flow]]\ncc = \"cubic\""
            );
            ScenarioFile::parse(&text, Path::new("a.toml")).unwrap()
        };
        let first = "sweep = { \"flow.0.cc\" = [\"cubic\", \"bbr\"], \"link.loss\" = [0, 0.01] }";
        let files = [file("a", first), file("b", "sweep = { \"flow.0.cc\" = [\"reno\"] }")];
        files.into_iter().chain([file("c", "")]).collect()
    }

    fn selected(selectors: &[&str]) -> Result<Vec<(String, usize)>, String> {
        let mut files = files();
        let selectors: Vec<CellSelector> = selectors.iter().map(|it| it.parse().unwrap()).collect();
        select(&mut files, &selectors, |_| false)?;
        Ok(files.iter().map(|file| (file.head.name.clone(), file.cells.len())).collect())
    }

    #[test]
    fn values_of_a_key_add_up_and_keys_narrow() {
        let named = |all: &[(&str, usize)]| -> Vec<(String, usize)> {
            all.iter().map(|(name, cells)| ((*name).to_owned(), *cells)).collect()
        };
        let all = [("a", 4), ("b", 1), ("c", 1)];
        assert_eq!(selected(&[]).unwrap(), named(&all));
        assert_eq!(selected(&["flow.0.cc=bbr"]).unwrap(), named(&[("a", 2), ("c", 1)]));
        assert_eq!(
            selected(&["flow.0.cc=bbr", "flow.0.cc=reno"]).unwrap()[..2],
            named(&[("a", 2), ("b", 1)])
        );
        let narrow = selected(&["flow.0.cc=bbr", "link.loss=0.010"]).unwrap();
        assert_eq!(narrow, named(&[("a", 1), ("c", 1)]));
    }

    #[test]
    fn cells_that_are_there_stay_beside_the_selected() {
        let mut files = files();
        let there =
            |scenario: &Scenario| scenario.link.loss > 0.0 && scenario.groups[0].cc == "bbr";
        select(&mut files, &["flow.0.cc=cubic".parse().unwrap()], there).unwrap();
        assert_eq!(files[0].cells.len(), 3);
    }

    #[test]
    fn a_selector_without_matches_names_what_there_is() {
        let error = selected(&["link.rtt_ms=3"]).unwrap_err();
        assert_eq!(error, "no scenario sweeps link.rtt_ms; swept are flow.0.cc, link.loss");
        let error = selected(&["flow.0.cc=iris"]).unwrap_err();
        assert_eq!(error, "flow.0.cc is never iris; there are bbr, cubic, reno");
        assert!("link.loss".parse::<CellSelector>().is_err());
    }
}
