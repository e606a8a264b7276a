use std::time::Duration;

use millrace_cc::registry::{self, Algorithm, Spec};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::Settings;

/// How algorithms are selected: settings of `mcc` in configurations and scenarios.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// File with the rules, in Lua.
    pub rules: String,
    /// What a connection begins with.
    pub initial: String,
    /// What there is to choose from; `initial` is one of them anyway.
    pub candidates: Vec<String>,
    /// An algorithm stays for so long at least.
    pub dwell_s: f64,
    /// Rules must want another one for so long, without a break.
    pub confirm_s: f64,
    /// They are asked about a connection so often at most.
    pub ask_every_s: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            rules: String::new(),
            initial: "bbr".to_owned(),
            candidates: Vec::new(),
            dwell_s: 5.0,
            confirm_s: 1.0,
            ask_every_s: 0.25,
        }
    }
}

/// Settings that can't be used.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct ConfigError(String);

impl Config {
    /// What a Selector is to know, with the algorithms in the order of its candidates: `initial` first.
    ///
    /// # Errors
    /// A name that nothing has, or that can't take over; a time that is none.
    pub fn resolve(&self) -> Result<(Settings, Vec<Algorithm>), ConfigError> {
        let given = &self.candidates;
        let all = || registry::names().into_iter().filter(|name| !NOT_BY_DEFAULT.contains(name));
        let wanted: Vec<String> =
            if given.is_empty() { all().map(str::to_owned).collect() } else { given.clone() };
        let mut algorithms = vec![candidate("initial", &self.initial)?];
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
        let time = |key: &str, seconds: f64| {
            let duration = Duration::try_from_secs_f64(seconds).ok();
            let allowed = duration.filter(|duration| *duration <= LONGEST);
            allowed.ok_or_else(|| {
                let most_s = LONGEST.as_secs();
                ConfigError(format!("{key}: {seconds} is out of range: 0 to {most_s}"))
            })
        };
        let settings = Settings {
            // Without aliases: what rules say is compared with what is in use.
            candidates: algorithms.iter().map(|it| it.name().to_owned()).collect(),
            dwell: time("dwell_s", self.dwell_s)?,
            confirm: time("confirm_s", self.confirm_s)?,
            ask_every: time("ask_every_s", self.ask_every_s)?,
        };
        Ok((settings, algorithms))
    }
}

/// Needs a rate to be set.
const NOT_BY_DEFAULT: [&str; 1] = ["constant"];
const LONGEST: Duration = Duration::from_secs(3600);

fn candidate(key: &str, name: &str) -> Result<Algorithm, ConfigError> {
    let found = registry::find(&Spec::named(name));
    match found.map_err(|error| ConfigError(format!("{key}: {error}")))? {
        Algorithm::Transport { name, .. } => {
            let problem = "is the QUIC stack's own, which tells nothing of the path";
            Err(ConfigError(format!("{key}: {name} {problem}; choose one of cc/")))
        }
        algorithm @ Algorithm::Controller(_) => Ok(algorithm),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_initial_one_comes_first_and_none_twice() {
        let config = Config { initial: "copa".to_owned(), ..Config::default() };
        let (settings, algorithms) = config.resolve().unwrap();
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
        let error = |config: Config| config.resolve().unwrap_err().to_string();
        let unknown = Config { initial: "bbrr".to_owned(), ..Config::default() };
        assert!(error(unknown).starts_with("initial: "));
        let transport = Config { candidates: vec!["bbr2".to_owned()], ..Config::default() };
        assert!(error(transport).contains("bbr2 is the QUIC stack's own"));
        let time = Config { dwell_s: -1.0, ..Config::default() };
        assert_eq!(error(time), "dwell_s: -1 is out of range: 0 to 3600");
    }
}
