//! Which cells and flows a claim is about, and what bounds a value.

use serde_json::Value as Json;

use super::reader::TableReader;
use super::tree::{Node, ScenarioResult, TreeValue};

/// What a value must be; at least one of the two is set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bound {
    /// Not below this.
    pub at_least: Option<f64>,
    /// Not above this.
    pub at_most: Option<f64>,
}

/// Which cells and flows are meant: all that pass every test.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Where(pub Vec<(String, Test)>);

/// A test of one key's value.
#[derive(Debug, Clone, PartialEq)]
pub enum Test {
    /// It is this.
    Is(Json),
    /// It equals an element.
    OneOf(Vec<Json>),
    /// It is a number within these.
    Within(Bound),
}

/// Keys of `where` that are not swept.
const FLOW_KEYS: [&str; 3] = ["cc", "group", "flow"];

/// The value of `where`.
pub(super) fn filter(reader: &mut TableReader<'_>, keys: &[String]) -> ScenarioResult<Where> {
    let mut tests = Vec::new();
    for (key, node) in reader.entries("where")? {
        known(reader, "where", key, keys)?;
        tests.push((key.to_owned(), test(reader, node)?));
    }
    Ok(Where(tests))
}

/// Whether a key can be named at `place`.
pub(super) fn known(
    reader: &TableReader<'_>,
    place: &str,
    key: &str,
    keys: &[String],
) -> ScenarioResult<()> {
    if FLOW_KEYS.contains(&key) || keys.iter().any(|known| known == key) {
        return Ok(());
    }
    let swept: Vec<_> = keys.iter().map(|key| format!("{key:?}")).collect();
    let all = FLOW_KEYS.iter().map(|key| (*key).to_owned()).chain(swept);
    let all = all.collect::<Vec<_>>().join(", ");
    Err(reader.error(place, format!("{key:?} is not swept here; there are {all}")))
}

fn test(reader: &TableReader<'_>, node: &Node) -> ScenarioResult<Test> {
    match &node.value {
        TreeValue::List(items) => Ok(Test::OneOf(items.iter().map(Node::to_json).collect())),
        TreeValue::Table(entries) => {
            let mut bound = Bound { at_least: None, at_most: None };
            for entry in entries {
                let value = reader.number_of(&entry.node, "where", &(f64::MIN..=f64::MAX))?;
                match entry.key.as_str() {
                    "at_least" => bound.at_least = Some(value),
                    "at_most" => bound.at_most = Some(value),
                    other => {
                        let problem = format!("{other:?}, expected at_least or at_most");
                        return Err(reader.error("where", problem));
                    }
                }
            }
            Ok(Test::Within(bound))
        }
        _ => Ok(Test::Is(node.to_json())),
    }
}

impl Test {
    /// Whether `value` passes; numbers are equal whether or not they are written with a point.
    #[must_use]
    pub fn passes(&self, value: &Json) -> bool {
        match self {
            Self::Is(wanted) => same(wanted, value),
            Self::OneOf(wanted) => wanted.iter().any(|wanted| same(wanted, value)),
            Self::Within(bound) => value.as_f64().is_some_and(|value| bound.holds(value)),
        }
    }
}

fn same(left: &Json, right: &Json) -> bool {
    match (left.as_f64(), right.as_f64()) {
        (Some(left), Some(right)) => left == right,
        _ => left == right,
    }
}

impl Where {
    /// The test of a key; `None` without a test.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Test> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, test)| test)
    }
}

impl Bound {
    /// Whether `value` is within; not-a-number never is.
    #[must_use]
    pub fn holds(&self, value: f64) -> bool {
        self.slack(value) >= 0.0
    }

    /// How far inside `value` is; negative outside.
    #[must_use]
    pub fn slack(&self, value: f64) -> f64 {
        if value.is_nan() {
            return f64::NEG_INFINITY;
        }
        let below = self.at_least.map_or(f64::INFINITY, |bound| value - bound);
        let above = self.at_most.map_or(f64::INFINITY, |bound| bound - value);
        below.min(above)
    }

    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        match (self.at_least, self.at_most) {
            (Some(low), Some(high)) => format!("{low} to {high}"),
            (Some(low), None) => format!("at least {low}"),
            (None, Some(high)) => format!("at most {high}"),
            (None, None) => String::new(),
        }
    }
}
