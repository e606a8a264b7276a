use std::fs;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use millrace_cc::registry::{self, Algorithm, Spec};
use millrace_config::Mcc;
use thiserror::Error;

use crate::Settings;
use crate::rules::LuaRules;

/// Needs a rate to be set.
const NOT_BY_DEFAULT: [&str; 1] = ["constant"];
const LONGEST: Duration = Duration::from_secs(3600);
/// A larger file is no rules.
const MAX_RULES_BYTES: u64 = 1 << 20;
/// Where nobody says otherwise.
const BUILT_IN: (&str, &str) = ("the built-in rules", include_str!("../rules/learned.lua"));

/// Settings that can't be used.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{key}: {problem}")]
pub struct ConfigError {
    /// Which of `[mcc]`.
    pub key: &'static str,
    /// What is wrong with it, and what would be right.
    pub problem: String,
}

/// What a Selector is to know, with the algorithms in the order of its candidates: `initial` first.
///
/// # Errors
/// A name that nothing has, or that can't take over; a time that is none.
pub fn resolve(config: &Mcc) -> Result<(Settings, Vec<Algorithm>), ConfigError> {
    let given = &config.candidates;
    let all = || registry::names().into_iter().filter(|name| !NOT_BY_DEFAULT.contains(name));
    let wanted: Vec<String> =
        if given.is_empty() { all().map(str::to_owned).collect() } else { given.clone() };
    let mut algorithms = vec![candidate("initial", &config.initial)?];
    for name in wanted {
        let found = match candidate("candidates", &name) {
            // Of all that there are, those that can't take over are simply none.
            Err(_) if given.is_empty() => continue,
            found => found?,
        };
        if !algorithms.iter().any(|known| known.name() == found.name()) {
            algorithms.push(found);
        }
    }
    let time = |key: &'static str, seconds: f64| {
        let duration = Duration::try_from_secs_f64(seconds).ok();
        let allowed = duration.filter(|duration| *duration <= LONGEST);
        allowed.ok_or_else(|| {
            let most_s = LONGEST.as_secs();
            ConfigError { key, problem: format!("{seconds} is out of range: 0 to {most_s}") }
        })
    };
    let settings = Settings {
        // Without aliases: what rules say is compared with what is in use.
        candidates: algorithms.iter().map(|it| it.name().to_owned()).collect(),
        dwell: time("dwell_s", config.dwell_s)?,
        confirm: time("confirm_s", config.confirm_s)?,
        ask_every: time("ask_every_s", config.ask_every_s)?,
        keeps_episodes: false,
    };
    Ok((settings, algorithms))
}

fn candidate(key: &'static str, name: &str) -> Result<Algorithm, ConfigError> {
    let found = registry::find(&Spec::named(name));
    match found.map_err(|error| ConfigError { key, problem: error.to_string() })? {
        Algorithm::Transport { name, .. } => {
            let why = "is the QUIC stack's own, which tells nothing of the path";
            Err(ConfigError { key, problem: format!("{name} {why}; choose one of cc/") })
        }
        algorithm @ Algorithm::Controller(_) => Ok(algorithm),
    }
}

/// The text of rules that have been found good, from which each thread makes its own: Lua has no state
/// that threads could share.
#[derive(Clone, Debug)]
pub struct RulesText {
    name: String,
    text: String,
}

impl RulesText {
    /// Of the file; without one those that are built in.
    ///
    /// # Errors
    /// It can't be read, or is no rules.
    pub fn read(file: Option<&Path>) -> Result<Self, String> {
        let Some(file) = file else {
            let (name, text) = BUILT_IN;
            return Ok(Self { name: name.to_owned(), text: text.to_owned() });
        };
        let name = file.display().to_string();
        let mut text = String::new();
        let read = fs::File::open(file)
            .and_then(|file| file.take(MAX_RULES_BYTES + 1).read_to_string(&mut text));
        read.map_err(|error| format!("{name}: {error}"))?;
        if text.len() as u64 > MAX_RULES_BYTES {
            return Err(format!("{name}: rules have {MAX_RULES_BYTES} bytes at most"));
        }
        let rules = Self { name, text };
        rules.load().map(|_| rules)
    }

    /// The rules.
    ///
    /// # Errors
    /// They are none.
    pub fn load(&self) -> Result<LuaRules, String> {
        LuaRules::load(&self.name, &self.text).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_initial_one_comes_first_and_none_twice() {
        let config = Mcc { initial: "copa".to_owned(), ..Mcc::default() };
        let (settings, algorithms) = resolve(&config).unwrap();
        assert_eq!(settings.candidates[0], "copa");
        assert_eq!(algorithms.len(), settings.candidates.len());
        assert!(
            algorithms.len() > 10 && settings.candidates.contains(&"vivace-latency".to_owned())
        );
        let mut names: Vec<&str> = algorithms.iter().map(Algorithm::name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        assert!(!names.contains(&"bbr2") && !names.contains(&"constant"), "{names:?}");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |config: Mcc| resolve(&config).unwrap_err().to_string();
        let unknown = Mcc { initial: "bbrr".to_owned(), ..Mcc::default() };
        assert!(error(unknown).starts_with("initial: "));
        let transport = Mcc { candidates: vec!["bbr2".to_owned()], ..Mcc::default() };
        assert!(error(transport).contains("bbr2 is the QUIC stack's own"));
        let time = Mcc { dwell_s: -1.0, ..Mcc::default() };
        assert_eq!(error(time), "dwell_s: -1 is out of range: 0 to 3600");
    }

    #[test]
    fn what_is_built_in_can_be_used_and_a_file_that_is_not_there_is_named() {
        assert!(RulesText::read(None).unwrap().load().is_ok());
        let error = RulesText::read(Some(Path::new("/none/rules.lua"))).unwrap_err();
        assert!(error.starts_with("/none/rules.lua: "), "{error}");
    }
}
