use std::fs;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use millrace_cc::registry::{self, Algorithm, Spec};
use millrace_config::Mcc;
use thiserror::Error;

use crate::SelectorSettings;
use crate::rules::LuaRules;

/// Algorithms that `[mcc]` does not offer by default: they need a parameter.
const EXCLUDED_BY_DEFAULT: [&str; 1] = ["constant"];
/// Maximum of each time in `[mcc]`.
const MAX_TIME: Duration = Duration::from_secs(3600);
/// Maximum size of a rules file.
const MAX_RULES_BYTES: u64 = 1 << 20;
/// Name and text of the default rules.
const BUILT_IN_RULES: (&str, &str) = ("the built-in rules", include_str!("../rules/learned.lua"));

/// An invalid setting.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{key}: {problem}")]
pub struct MccConfigError {
    /// Key in `[mcc]`.
    pub key: &'static str,
    /// The problem and the valid values.
    pub problem: String,
}

/// Resolves `[mcc]` to the Selector's settings and the algorithms, `initial_algorithm` first. Requests and updates
/// name an algorithm by its index in this list.
///
/// # Errors
/// An unknown algorithm, one that can't be replaced, or a time out of range.
pub fn resolve(config: &Mcc) -> Result<(SelectorSettings, Vec<Algorithm>), MccConfigError> {
    let configured = &config.algorithms;
    let all = || registry::names().into_iter().filter(|name| !EXCLUDED_BY_DEFAULT.contains(name));
    let names: Vec<String> =
        if configured.is_empty() { all().map(str::to_owned).collect() } else { configured.clone() };
    let mut algorithms = vec![find("initial_algorithm", &config.initial_algorithm)?];
    for name in names {
        let found = match find("algorithms", &name) {
            // The default list skips algorithms of the QUIC stack.
            Err(_) if configured.is_empty() => continue,
            found => found?,
        };
        if !algorithms.iter().any(|known| known.name() == found.name()) {
            algorithms.push(found);
        }
    }
    let time = |key: &'static str, seconds: f64| {
        let duration = Duration::try_from_secs_f64(seconds).ok();
        let allowed = duration.filter(|duration| *duration <= MAX_TIME);
        allowed.ok_or_else(|| {
            let most_s = MAX_TIME.as_secs();
            MccConfigError { key, problem: format!("{seconds} is out of range: 0 to {most_s}") }
        })
    };
    let settings = SelectorSettings {
        // Canonical names: the names that rules return are compared with them.
        algorithms: algorithms.iter().map(|it| it.name().to_owned()).collect(),
        min_dwell: time("min_dwell_s", config.min_dwell_s)?,
        hold_down: time("hold_down_s", config.hold_down_s)?,
        evaluation_interval: time("evaluation_interval_s", config.evaluation_interval_s)?,
        keeps_episodes: false,
    };
    Ok((settings, algorithms))
}

fn find(key: &'static str, name: &str) -> Result<Algorithm, MccConfigError> {
    let found = registry::find(&Spec::named(name));
    match found.map_err(|error| MccConfigError { key, problem: error.to_string() })? {
        Algorithm::Transport { name, .. } => {
            let why = "is the QUIC stack's own and does not report the state of the path";
            Err(MccConfigError { key, problem: format!("{name} {why}; choose another algorithm") })
        }
        algorithm @ Algorithm::Controller(_) => Ok(algorithm),
    }
}

/// The text of valid rules. Each thread loads its own instance, because threads can't share a Lua state.
#[derive(Clone, Debug)]
pub struct RulesText {
    name: String,
    text: String,
}

impl RulesText {
    /// Reads the rules from the file, or takes the built-in rules without one.
    ///
    /// # Errors
    /// The file can't be read, or its rules are invalid.
    pub fn read(file: Option<&Path>) -> Result<Self, String> {
        let Some(file) = file else {
            let (name, text) = BUILT_IN_RULES;
            return Ok(Self { name: name.to_owned(), text: text.to_owned() });
        };
        let name = file.display().to_string();
        let mut text = String::new();
        let read = fs::File::open(file)
            .and_then(|file| file.take(MAX_RULES_BYTES + 1).read_to_string(&mut text));
        read.map_err(|error| format!("{name}: {error}"))?;
        if text.len() as u64 > MAX_RULES_BYTES {
            return Err(format!("{name}: larger than {MAX_RULES_BYTES} bytes"));
        }
        let rules = Self { name, text };
        rules.load().map(|_| rules)
    }

    /// Loads an instance of the rules.
    ///
    /// # Errors
    /// The rules are invalid.
    pub fn load(&self) -> Result<LuaRules, String> {
        LuaRules::load(&self.name, &self.text).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initial_algorithm_comes_first_and_algorithms_are_unique() {
        let config = Mcc { initial_algorithm: "copa".to_owned(), ..Mcc::default() };
        let (settings, algorithms) = resolve(&config).unwrap();
        assert_eq!(settings.algorithms[0], "copa");
        assert_eq!(algorithms.len(), settings.algorithms.len());
        assert!(
            algorithms.len() > 10 && settings.algorithms.contains(&"vivace-latency".to_owned())
        );
        let mut names: Vec<&str> = algorithms.iter().map(Algorithm::name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        assert!(!names.contains(&"bbr2") && !names.contains(&"constant"), "{names:?}");
    }

    #[test]
    fn resolve_names_invalid_key() {
        let error = |config: Mcc| resolve(&config).unwrap_err().to_string();
        let unknown = Mcc { initial_algorithm: "bbrr".to_owned(), ..Mcc::default() };
        assert!(error(unknown).starts_with("initial_algorithm: "));
        let transport = Mcc { algorithms: vec!["bbr2".to_owned()], ..Mcc::default() };
        assert!(error(transport).contains("bbr2 is the QUIC stack's own"));
        let time = Mcc { min_dwell_s: -1.0, ..Mcc::default() };
        assert_eq!(error(time), "min_dwell_s: -1 is out of range: 0 to 3600");
    }

    #[test]
    fn built_in_rules_load_and_missing_file_is_named() {
        assert!(RulesText::read(None).unwrap().load().is_ok());
        let error = RulesText::read(Some(Path::new("/none/rules.lua"))).unwrap_err();
        assert!(error.starts_with("/none/rules.lua: "), "{error}");
    }
}
