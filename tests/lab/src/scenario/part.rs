//! A part of a file's cells, chosen by hand.

use std::str::FromStr;

use serde_json::Value;

use super::{File, Scenario};

/// One value of a swept key, as somebody types it: `link.loss=0.01`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The key, as the file has it.
    pub key: String,
    /// The value.
    pub value: String,
}

impl FromStr for Choice {
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

impl Choice {
    fn is(&self, value: &Value) -> bool {
        match (value, self.value.parse::<f64>()) {
            (Value::String(text), _) => *text == self.value,
            (Value::Number(number), Ok(wanted)) => number.as_f64() == Some(wanted),
            (Value::Bool(flag), _) => self.value.parse() == Ok(*flag),
            _ => false,
        }
    }
}

/// Leaves of each file the cells that have a chosen value of each chosen key that the file sweeps, and drops
/// files of which nothing is left. What is `there` already stays too.
///
/// # Errors
/// A choice that no file has: which, and what there is.
pub fn choose(
    files: &mut Vec<File>,
    choices: &[Choice],
    there: impl Fn(&Scenario) -> bool,
) -> Result<(), String> {
    for choice in choices {
        let swept = files.iter().flat_map(|file| &file.sweep);
        let all = |swept: &mut dyn Iterator<Item = String>| {
            let mut all: Vec<String> = swept.collect();
            all.sort();
            all.dedup();
            all.join(", ")
        };
        let mut values = swept.clone().filter(|(key, _)| *key == choice.key).peekable();
        if values.peek().is_none() {
            let keys = all(&mut swept.map(|(key, _)| key.clone()));
            return Err(format!("no scenario sweeps {}; swept are {keys}", choice.key));
        }
        let mut values = values.flat_map(|(_, values)| values);
        if !values.clone().any(|value| choice.is(value)) {
            let shown = |value: &Value| value.as_str().map_or(value.to_string(), str::to_owned);
            let values = all(&mut values.by_ref().map(shown));
            return Err(format!("{} is never {}; there are {values}", choice.key, choice.value));
        }
    }
    let is_chosen = |key: &str, value: &Value| {
        let mut of = choices.iter().filter(|choice| choice.key == key).peekable();
        of.peek().is_none() || of.any(|choice| choice.is(value))
    };
    for file in files.iter_mut() {
        file.cells.retain(|cell| {
            cell.at.iter().all(|(key, value)| is_chosen(key, value)) || there(&cell.scenario)
        });
    }
    files.retain(|file| !file.cells.is_empty());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn files() -> Vec<File> {
        let file = |name: &str, sweep: &str| {
            let text = format!(
                "name = \"{name}\"\ntitle = \"A\"\nduration_s = 1\n\
                 link = {{ rate_mbps = 1, rtt_ms = 1, buffer_bytes = 1 }}\n{sweep}\n\
                 [[flow]]\ncc = \"cubic\""
            );
            File::parse(&text, Path::new("a.toml")).unwrap()
        };
        let first = "sweep = { \"flow.0.cc\" = [\"cubic\", \"bbr\"], \"link.loss\" = [0, 0.01] }";
        let files = [file("a", first), file("b", "sweep = { \"flow.0.cc\" = [\"reno\"] }")];
        files.into_iter().chain([file("c", "")]).collect()
    }

    fn chosen(choices: &[&str]) -> Result<Vec<(String, usize)>, String> {
        let mut files = files();
        let choices: Vec<Choice> = choices.iter().map(|it| it.parse().unwrap()).collect();
        choose(&mut files, &choices, |_| false)?;
        Ok(files.iter().map(|file| (file.head.name.clone(), file.cells.len())).collect())
    }

    #[test]
    fn values_of_a_key_add_up_and_keys_narrow() {
        let named = |all: &[(&str, usize)]| -> Vec<(String, usize)> {
            all.iter().map(|(name, cells)| ((*name).to_owned(), *cells)).collect()
        };
        let all = [("a", 4), ("b", 1), ("c", 1)];
        assert_eq!(chosen(&[]).unwrap(), named(&all));
        assert_eq!(chosen(&["flow.0.cc=bbr"]).unwrap(), named(&[("a", 2), ("c", 1)]));
        assert_eq!(
            chosen(&["flow.0.cc=bbr", "flow.0.cc=reno"]).unwrap()[..2],
            named(&[("a", 2), ("b", 1)])
        );
        let narrow = chosen(&["flow.0.cc=bbr", "link.loss=0.010"]).unwrap();
        assert_eq!(narrow, named(&[("a", 1), ("c", 1)]));
    }

    #[test]
    fn what_is_there_stays_beside_what_is_chosen() {
        let mut files = files();
        let there =
            |scenario: &Scenario| scenario.link.loss > 0.0 && scenario.groups[0].cc == "bbr";
        choose(&mut files, &["flow.0.cc=cubic".parse().unwrap()], there).unwrap();
        assert_eq!(files[0].cells.len(), 3);
    }

    #[test]
    fn a_choice_that_is_nowhere_names_what_there_is() {
        let error = chosen(&["link.rtt_ms=3"]).unwrap_err();
        assert_eq!(error, "no scenario sweeps link.rtt_ms; swept are flow.0.cc, link.loss");
        let error = chosen(&["flow.0.cc=iris"]).unwrap_err();
        assert_eq!(error, "flow.0.cc is never iris; there are bbr, cubic, reno");
        assert!("link.loss".parse::<Choice>().is_err());
    }
}
