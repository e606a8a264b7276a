//! Algorithms by name.

use std::sync::OnceLock;

use serde_json::{Map, Value};

use crate::algorithm::AlgorithmEntry;
pub use crate::algorithm::{Algorithm, Spec};
use crate::{bbr, constant, copa, iris, pcc, window};

const TRANSPORT: &[AlgorithmEntry] = &[AlgorithmEntry {
    names: &["bbr2"],
    summary: "BBR version 2, of the QUIC stack",
    source: "quiche",
    make: |parameters| of_transport("bbr2", "bbr2_gcongestion", parameters),
}];

fn of_transport(
    name: &'static str,
    quiche_name: &'static str,
    parameters: Map<String, Value>,
) -> Result<Algorithm, serde_json::Error> {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Nothing {}
    let Nothing {} = serde_json::from_value(Value::Object(parameters))?;
    Ok(Algorithm::Transport { name, quiche_name })
}

/// Those of other crates.
static ADDED: OnceLock<&'static [AlgorithmEntry]> = OnceLock::new();

fn own_entries() -> impl Iterator<Item = &'static AlgorithmEntry> {
    [TRANSPORT, constant::ENTRIES, window::ENTRIES, bbr::ENTRIES, copa::ENTRIES]
        .into_iter()
        .chain([pcc::ENTRIES, iris::ENTRIES])
        .flatten()
}

/// All algorithms that [`find`] knows.
pub fn entries() -> impl Iterator<Item = &'static AlgorithmEntry> {
    own_entries().chain(ADDED.get().copied().unwrap_or_default())
}

/// Adds the algorithms of another crate. A program calls this once, before it reads its configuration;
/// `examples/custom-controller` shows how.
///
/// # Errors
/// [`AddError::Twice`] on a second call, [`AddError::NameInUse`] for a name that is known already.
pub fn add(added: &'static [AlgorithmEntry]) -> Result<(), AddError> {
    let names =
        |entries: &'static [AlgorithmEntry]| entries.iter().flat_map(|entry| entry.names).copied();
    let mut known: Vec<_> = own_entries().flat_map(|entry| entry.names).copied().collect();
    for name in names(added) {
        if known.contains(&name) {
            return Err(AddError::NameInUse(name));
        }
        known.push(name);
    }
    ADDED.set(added).map_err(|_| AddError::Twice)
}

/// Why algorithms of another crate can't be added.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum AddError {
    /// [`add`] takes all of them in one call.
    #[error("congestion control algorithms are added once; give all of them in one call")]
    Twice,
    /// Another algorithm has this name.
    #[error("congestion control {0:?} is known already; choose another name")]
    NameInUse(&'static str),
}

/// All names that [`find`] knows, aliases included, in alphabetical order.
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<_> = entries().flat_map(|entry| entry.names).copied().collect();
    names.sort_unstable();
    names
}

/// Why a [`Spec`] names no algorithm.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum AlgorithmError {
    /// No algorithm has this name.
    #[error("unknown congestion control {name:?}; known are {}", names().join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// A parameter that the algorithm does not have, or a value that it can't have.
    #[error("congestion control {name:?}: {reason}")]
    Parameters {
        /// The algorithm.
        name: String,
        /// The parameter that is wrong; `None` when one is missing.
        parameter: Option<String>,
        /// What is wrong, and what would be right.
        reason: String,
    },
}

/// The algorithm that `spec` names.
///
/// # Errors
/// [`AlgorithmError::Unknown`] lists the known names; [`AlgorithmError::Parameters`] says which parameter can't be.
pub fn find(spec: &Spec) -> Result<Algorithm, AlgorithmError> {
    let name = spec.name.as_str();
    let entry = entries()
        .find(|entry| entry.names.contains(&name))
        .ok_or_else(|| AlgorithmError::Unknown { name: name.to_owned() })?;
    (entry.make)(spec.parameters.clone()).map_err(|error| {
        let reason = error.to_string();
        let parameter = failing_parameter(entry, &spec.parameters, &reason);
        AlgorithmError::Parameters { name: name.to_owned(), parameter, reason }
    })
}

/// The first parameter, in alphabetical order, without which `reason` would not be given: serde does
/// not tell. One that has to be there only if it is no other's fault.
fn failing_parameter(
    entry: &AlgorithmEntry,
    parameters: &Map<String, Value>,
    reason: &str,
) -> Option<String> {
    let without = |parameter: &str| {
        let mut others = parameters.clone();
        others.remove(parameter);
        (entry.make)(others).err().map(|error| error.to_string())
    };
    let mut names: Vec<_> = parameters.keys().collect();
    names.sort_unstable();
    let mut needed = None;
    for name in names {
        match without(name) {
            Some(same) if same == reason => {}
            Some(other) if other.contains(&format!("missing field `{name}`")) => {
                needed = needed.or(Some(name));
            }
            _ => return Some(name.clone()),
        }
    }
    needed.cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_what_it_needs(name: &str) -> Spec {
        match name {
            "constant" => Spec::named(name).with("rate_mbps", 1.0),
            _ => Spec::named(name),
        }
    }

    #[test]
    fn names_in_use_can_not_be_added() {
        const MAKE: fn(Map<String, Value>) -> Result<Algorithm, serde_json::Error> =
            crate::algorithm::read_settings::<crate::ConstantConfig>;
        const fn entry(names: &'static [&'static str]) -> AlgorithmEntry {
            AlgorithmEntry { names, summary: "a constant rate", source: "a test", make: MAKE }
        }
        const KNOWN: &[AlgorithmEntry] = &[entry(&["cubic"])];
        const SAME: &[AlgorithmEntry] = &[entry(&["mine", "mine"])];
        assert_eq!(add(KNOWN), Err(AddError::NameInUse("cubic")));
        assert_eq!(add(SAME), Err(AddError::NameInUse("mine")));
    }

    #[test]
    fn every_name_is_found_once() {
        let names = names();
        for name in &names {
            assert!(find(&with_what_it_needs(name)).is_ok(), "{name}");
            assert_eq!(names.iter().filter(|other| *other == name).count(), 1, "{name}");
        }
    }

    #[test]
    fn each_entry_says_in_less_than_a_line_what_it_is_and_from_where() {
        for AlgorithmEntry { names, summary, source, .. } in entries() {
            assert!((10..=90).contains(&summary.len()), "{names:?}: {summary:?}");
            assert!((5..=60).contains(&source.len()), "{names:?}: {source:?}");
            assert!(!summary.contains('\n') && !summary.ends_with('.'), "{names:?}: {summary:?}");
        }
    }

    #[test]
    fn the_first_name_is_the_one_in_results() {
        for entry in entries() {
            for name in entry.names {
                let found = find(&with_what_it_needs(name)).expect("a known name");
                assert_eq!(found.name(), entry.names[0]);
            }
        }
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = find(&Spec::named("cubik")).expect_err("no such algorithm").to_string();
        assert!(error.contains("\"cubik\"") && error.contains("constant"), "{error}");
    }

    #[test]
    fn an_unknown_parameter_is_an_error_for_each() {
        for name in names() {
            let error = find(&with_what_it_needs(name).with("no_such_thing", 1))
                .expect_err("no algorithm has this parameter")
                .to_string();
            assert!(error.contains(name) && error.contains("no_such_thing"), "{error}");
        }
    }

    #[test]
    fn an_error_names_its_parameter() {
        let failing_parameter = |spec: Spec| match find(&spec) {
            Err(AlgorithmError::Parameters { parameter, .. }) => parameter,
            other => panic!("{spec:?}: {other:?}"),
        };
        assert_eq!(failing_parameter(Spec::named("constant")), None);
        assert_eq!(
            failing_parameter(Spec::named("constant").with("rate", 1)).as_deref(),
            Some("rate")
        );
        let fast = Spec::named("constant").with("rate_mbps", "fast");
        assert_eq!(failing_parameter(fast).as_deref(), Some("rate_mbps"));
        for name in names() {
            let spec = with_what_it_needs(name).with("a", 1).with("zz", Value::Null);
            assert!(["a", "zz"].map(Some).contains(&failing_parameter(spec).as_deref()), "{name}");
        }
    }

    #[test]
    fn settings_tell_parameters_apart() {
        let settings = |rate| {
            let spec = Spec::named("constant").with("rate_mbps", rate);
            find(&spec).expect("a possible rate").settings()
        };
        assert_eq!(settings(1.0), settings(1.0));
        assert_ne!(settings(1.0), settings(1.5));
    }

    #[test]
    fn a_constant_rate_must_be_given_and_possible() {
        let error = |spec| find(&spec).expect_err("no rate").to_string();
        assert!(error(Spec::named("constant")).contains("rate_mbps"));
        for rate in [0.0, -1.0, 1e9] {
            let wrong = error(Spec::named("constant").with("rate_mbps", rate));
            assert!(wrong.contains("0.01 to 100000"), "{wrong}");
        }
    }
}
