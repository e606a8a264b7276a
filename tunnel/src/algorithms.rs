//! Which congestion control a connection gets: an end's default, that of a class, or the one that
//! a flow asks for by name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use millrace_cc::registry::{self, Algorithm, Spec};
use millrace_config::{AlgorithmProblem, Class, CongestionControl, Transport};

/// Refused names that are remembered, to log each once; a peer can make up any number.
const MAX_REFUSED_NAMES: usize = 16;

/// The algorithm that a configuration names.
///
/// # Errors
/// See [`registry::find`].
pub fn algorithm(choice: &CongestionControl) -> Result<Algorithm, registry::Error> {
    registry::find(&Spec { name: choice.name.clone(), parameters: choice.parameters.clone() })
}

/// For [`millrace_config`], which knows no algorithm.
///
/// # Errors
/// What is wrong with the name or a parameter, and what would be right.
pub fn check(choice: &CongestionControl) -> Result<(), AlgorithmProblem> {
    use registry::Error;
    algorithm(choice).map(drop).map_err(|error| match error {
        Error::Unknown { .. } => AlgorithmProblem::Name(error.to_string()),
        Error::Parameters { name, parameter, reason } => {
            AlgorithmProblem::Parameter { parameter, problem: format!("{name:?}: {reason}") }
        }
    })
}

/// What an end's own configuration says.
#[derive(Clone, Debug)]
pub struct Algorithms {
    default: Algorithm,
    classes: BTreeMap<Class, Algorithm>,
}

impl Algorithms {
    /// From `congestion_control` of `[tunnel]` and of its classes.
    ///
    /// # Errors
    /// See [`registry::find`].
    pub fn new(transport: &Transport) -> Result<Self, registry::Error> {
        let classes = &transport.class_congestion_control;
        let classes = classes.iter().map(|(class, choice)| Ok((*class, algorithm(choice)?)));
        Ok(Self {
            default: algorithm(&transport.congestion_control)?,
            classes: classes.collect::<Result<_, _>>()?,
        })
    }

    /// The algorithm of a class's flows.
    pub fn of(&self, class: Class) -> &Algorithm {
        self.classes.get(&class).unwrap_or(&self.default)
    }
}

/// What flows may ask for: names only, the parameters are this end's own.
#[derive(Debug)]
pub struct Selectable {
    by_name: BTreeMap<String, Algorithm>,
    refused: Mutex<BTreeSet<String>>,
}

impl Selectable {
    /// Those that are listed, or without a list all that need no parameter.
    ///
    /// # Errors
    /// See [`registry::find`].
    pub fn new(listed: Option<&[CongestionControl]>) -> Result<Self, registry::Error> {
        let Some(listed) = listed else {
            let all = registry::names().into_iter();
            let able =
                all.filter_map(|it| Some((it.to_owned(), registry::find(&Spec::named(it)).ok()?)));
            return Ok(Self::of(able.collect()));
        };
        let listed = listed.iter().map(|choice| Ok((choice.name.clone(), algorithm(choice)?)));
        listed.collect::<Result<_, _>>().map(Self::of)
    }

    fn of(by_name: BTreeMap<String, Algorithm>) -> Self {
        Self { by_name, refused: Mutex::default() }
    }

    /// The algorithm that a flow gets which asks for `name`.
    pub fn get(&self, name: &str) -> Option<&Algorithm> {
        // A peer that has the same algorithm under another of its names asks for its first one.
        let same = || self.by_name.values().find(|algorithm| algorithm.name() == name);
        self.by_name.get(name).or_else(same)
    }

    /// Whether `name` is refused for the first time, which is worth a line in the log.
    pub fn is_first_refusal(&self, name: &str) -> bool {
        // A set of names is right whatever thread panicked beside it.
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.len() < MAX_REFUSED_NAMES && refused.insert(name.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;

    fn choice(name: &str, parameters: Value) -> CongestionControl {
        let parameters = match parameters {
            Value::Object(parameters) => parameters,
            _ => Map::new(),
        };
        CongestionControl { name: name.to_owned(), parameters }
    }

    fn problem(choice: &CongestionControl) -> (Option<String>, String) {
        match check(choice).unwrap_err() {
            AlgorithmProblem::Name(problem) => (None, problem),
            AlgorithmProblem::Parameter { parameter, problem } => (parameter, problem),
        }
    }

    #[test]
    fn every_algorithm_says_which_parameter_it_does_not_have() {
        for name in registry::names() {
            let mut parameters = json!({ "no_such_thing": 1 });
            if name == "constant" {
                parameters["rate_mbps"] = json!(1);
            }
            let (parameter, problem) = problem(&choice(name, parameters));
            assert_eq!(parameter.as_deref(), Some("no_such_thing"), "{problem}");
            assert!(problem.contains(name) && problem.contains("no_such_thing"), "{problem}");
        }
    }

    #[test]
    fn values_and_names_are_checked_too() {
        let (parameter, message) = problem(&choice("constant", json!({ "rate_mbps": 0 })));
        assert_eq!(parameter.as_deref(), Some("rate_mbps"));
        assert!(message.contains("0.01 to 100000"), "{message}");
        let (parameter, message) = problem(&choice("constant", Value::Null));
        assert!(parameter.is_none() && message.contains("rate_mbps"), "{message}");
        let (parameter, message) = problem(&choice("fast", Value::Null));
        assert!(parameter.is_none() && message.contains("vivace-latency"), "{message}");
    }

    #[test]
    fn without_a_list_all_can_be_asked_for_that_need_no_parameter() {
        let selectable = Selectable::new(None).unwrap();
        for name in registry::names() {
            assert_eq!(selectable.get(name).is_some(), name != "constant", "{name}");
        }
        assert!(selectable.get("fast").is_none());
    }

    #[test]
    fn a_list_allows_what_is_in_it_with_its_parameters() {
        let listed = [choice("constant", json!({ "rate_mbps": 3 }))];
        let selectable = Selectable::new(Some(&listed)).unwrap();
        let found = selectable.get("constant").unwrap();
        assert_eq!(found.settings(), algorithm(&listed[0]).unwrap().settings());
        assert!(selectable.get("bbr2").is_none());
        assert!(Selectable::new(Some(&[])).unwrap().get("bbr2").is_none());
    }

    #[test]
    fn refusals_are_remembered_within_bounds() {
        let selectable = Selectable::new(Some(&[])).unwrap();
        assert!(selectable.is_first_refusal("a") && !selectable.is_first_refusal("a"));
        let first = (0..100).filter(|it| selectable.is_first_refusal(&it.to_string()));
        assert_eq!(first.count(), MAX_REFUSED_NAMES - 1);
    }
}
