//! Which congestion control a connection gets: an end's default, that of a class, or the one that
//! a flow asks for by name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use millrace_cc::registry::{self, Algorithm, Spec};
use millrace_config::{AlgorithmProblem, Class, CongestionControl, Mcc, TransportConfig};

/// Refused names that are remembered, to log each once; a peer can make up any number.
const MAX_REFUSED_NAMES: usize = 16;

/// What is to drive a flow's connection.
#[derive(Clone, Debug)]
pub struct CcPolicy {
    /// The algorithm, for the time being if it is selected.
    pub algorithm: Algorithm,
    /// Whether it is whichever the rules select while it runs (`mcc`).
    pub managed: bool,
}

impl CcPolicy {
    /// What a configuration names; `mcc` begins with `initial`.
    ///
    /// # Errors
    /// The name or a parameter is not valid ([`registry::find`]).
    pub fn new(
        choice: &CongestionControl,
        initial: Option<&Algorithm>,
    ) -> Result<Self, registry::AlgorithmError> {
        match initial.filter(|_| choice.managed()) {
            Some(initial) => Ok(Self { algorithm: initial.clone(), managed: true }),
            None => Ok(Self { algorithm: algorithm(choice)?, managed: false }),
        }
    }

    /// As peers ask for it.
    pub fn name(&self) -> &'static str {
        if self.managed { Mcc::NAME } else { self.algorithm.name() }
    }
}

fn algorithm(choice: &CongestionControl) -> Result<Algorithm, registry::AlgorithmError> {
    registry::find(&Spec { name: choice.name.clone(), parameters: choice.parameters.clone() })
}

/// For [`millrace_config`], which knows no algorithm.
///
/// # Errors
/// What is wrong with the name or a parameter, and what would be right.
pub fn check(choice: &CongestionControl) -> Result<(), AlgorithmProblem> {
    use registry::AlgorithmError;
    if choice.managed() {
        let parameter = choice.parameters.keys().next().cloned();
        let problem = format!("{:?} has no parameters; [{}] has settings", Mcc::NAME, Mcc::NAME);
        return parameter.map_or(Ok(()), |parameter| {
            Err(AlgorithmProblem::Parameter { parameter: Some(parameter), problem })
        });
    }
    algorithm(choice).map(drop).map_err(|error| match error {
        AlgorithmError::Unknown { .. } => {
            AlgorithmProblem::Name(format!("{error}, or {}, which selects among them", Mcc::NAME))
        }
        AlgorithmError::Parameters { name, parameter, reason } => {
            AlgorithmProblem::Parameter { parameter, problem: format!("{name:?}: {reason}") }
        }
    })
}

/// What an end's own configuration says.
#[derive(Clone, Debug)]
pub struct Algorithms {
    default: CcPolicy,
    classes: BTreeMap<Class, CcPolicy>,
}

impl Algorithms {
    /// From `congestion_control` of `[tunnel]` and of its classes; `mcc` begins with `initial`.
    ///
    /// # Errors
    /// The name or a parameter is not valid ([`registry::find`]).
    pub fn new(
        transport: &TransportConfig,
        initial: Option<&Algorithm>,
    ) -> Result<Self, registry::AlgorithmError> {
        let classes = &transport.class_congestion_control;
        let of_class = |(class, it): (&Class, _)| Ok((*class, CcPolicy::new(it, initial)?));
        Ok(Self {
            default: CcPolicy::new(&transport.congestion_control, initial)?,
            classes: classes.iter().map(of_class).collect::<Result<_, _>>()?,
        })
    }

    /// What drives a class's flows.
    pub fn of(&self, class: Class) -> &CcPolicy {
        self.classes.get(&class).unwrap_or(&self.default)
    }
}

/// What flows may ask for: names only, the parameters are this end's own.
#[derive(Debug)]
pub struct Selectable {
    by_name: BTreeMap<String, CcPolicy>,
    refused: Mutex<BTreeSet<String>>,
}

impl Selectable {
    /// The listed algorithms, or without a list all that need no parameter; and `mcc` if it is configured, which begins
    /// with `initial`.
    ///
    /// # Errors
    /// The name or a parameter is not valid ([`registry::find`]).
    pub fn new(
        listed: Option<&[CongestionControl]>,
        initial: Option<&Algorithm>,
    ) -> Result<Self, registry::AlgorithmError> {
        let Some(listed) = listed else {
            let selected =
                initial.map(|it| CcPolicy { algorithm: it.clone(), managed: true }).into_iter();
            let able = registry::names().into_iter().filter_map(|name| {
                let algorithm = registry::find(&Spec::named(name)).ok()?;
                Some((name.to_owned(), CcPolicy { algorithm, managed: false }))
            });
            return Ok(Self::of(
                selected.map(|it| (it.name().to_owned(), it)).chain(able).collect(),
            ));
        };
        let listed = listed.iter().map(|it| Ok((it.name.clone(), CcPolicy::new(it, initial)?)));
        listed.collect::<Result<_, _>>().map(Self::of)
    }

    fn of(by_name: BTreeMap<String, CcPolicy>) -> Self {
        Self { by_name, refused: Mutex::default() }
    }

    /// The algorithm that a flow gets which asks for `name`.
    pub fn get(&self, name: &str) -> Option<&CcPolicy> {
        // A peer that has the same algorithm under another of its names asks for its first one.
        let same = || self.by_name.values().find(|choice| choice.name() == name);
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
        assert_eq!(check(&choice("mcc", Value::Null)), Ok(()));
        let (parameter, message) = problem(&choice("mcc", json!({ "rules": "x.lua" })));
        assert!(parameter.as_deref() == Some("rules") && message.contains("[mcc]"), "{message}");
    }

    #[test]
    fn without_a_list_all_can_be_asked_for_that_need_no_parameter() {
        let selectable = Selectable::new(None, None).unwrap();
        for name in registry::names() {
            assert_eq!(selectable.get(name).is_some(), name != "constant", "{name}");
        }
        assert!(selectable.get("fast").is_none() && selectable.get("mcc").is_none());
        let cubic = algorithm(&choice("cubic", Value::Null)).unwrap();
        let selectable = Selectable::new(None, Some(&cubic)).unwrap();
        let selected = selectable.get("mcc").unwrap();
        assert!(selected.managed && selected.algorithm.name() == "cubic");
    }

    #[test]
    fn a_list_allows_what_is_in_it_with_its_parameters() {
        let listed = [choice("constant", json!({ "rate_mbps": 3 }))];
        let selectable = Selectable::new(Some(&listed), None).unwrap();
        let found = selectable.get("constant").unwrap();
        assert_eq!(found.algorithm.settings(), algorithm(&listed[0]).unwrap().settings());
        assert!(selectable.get("bbr2").is_none());
        assert!(Selectable::new(Some(&[]), None).unwrap().get("bbr2").is_none());
    }

    #[test]
    fn refusals_are_remembered_within_bounds() {
        let selectable = Selectable::new(Some(&[]), None).unwrap();
        assert!(selectable.is_first_refusal("a") && !selectable.is_first_refusal("a"));
        let first = (0..100).filter(|it| selectable.is_first_refusal(&it.to_string()));
        assert_eq!(first.count(), MAX_REFUSED_NAMES - 1);
    }
}
