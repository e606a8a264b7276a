//! `[[claim]]`: what is said of the results. `docs/research/scenarios.md` has the rules.

use serde::Serialize;
use serde_json::Value as Json;

use super::reader::TableReader;
use super::tree::{Node, ScenarioResult, TreeValue};
use crate::results::metric;

/// A sentence, and what must be found for it to hold.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// The sentence.
    pub text: String,
    /// Where it is from.
    pub source: Option<String>,
    /// Why it fails, if it does.
    pub reason: Option<String>,
    /// Keys of which it is enough that one value fulfils the conditions.
    pub any_of: Vec<String>,
    /// All must be fulfilled.
    pub conditions: Vec<Condition>,
}

/// A figure and its bound.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    /// Which figure.
    pub metric: String,
    /// Of which runs and flows.
    pub filter: Where,
    /// How several flows become one value.
    pub over_flows: Over,
    /// How several repeats become one value.
    pub over_repeats: Statistic,
    /// What it is held against.
    pub reference: Option<Reference>,
    /// What it must be.
    pub bound: Bound,
}

/// How a figure is held against another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Against {
    /// Divided by it.
    Ratio,
    /// Less it: of figures in dB, whose ratio says nothing.
    Difference,
}

/// What a figure is held against.
#[derive(Debug, Clone, PartialEq)]
pub struct Reference {
    /// How.
    pub how: Against,
    /// Which figure; the condition's own unless set.
    pub metric: String,
    /// Of which runs and flows; what isn't named here is as with the figure itself.
    pub filter: Where,
}

/// How several flows become one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Over {
    /// Their mean.
    Mean,
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// Their sum.
    Sum,
    /// They don't: each must fulfil the condition.
    Each,
}

/// How several repeats become one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Statistic {
    /// The middle one.
    Median,
    /// Their mean.
    Mean,
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// The 5th percentile.
    P5,
    /// The 95th percentile.
    P95,
}

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

pub(super) fn read(reader: &mut TableReader<'_>, keys: &[String]) -> ScenarioResult<Vec<Claim>> {
    reader.tables("claim")?.into_iter().map(|table| claim(table, keys)).collect()
}

fn claim(mut reader: TableReader<'_>, keys: &[String]) -> ScenarioResult<Claim> {
    let (text, source) = (reader.text("text")?, reader.maybe_text("source")?);
    let reason = reader.maybe_text("reason")?;
    let any_of = names(&mut reader, "any_of", keys)?;
    let mut conditions = vec![condition(&mut reader, keys, None)?];
    for mut table in reader.tables("and")? {
        let also = condition(&mut table, keys, Some(&conditions[0].filter))?;
        table.finish()?;
        conditions.push(also);
    }
    reader.finish()?;
    Ok(Claim { text, source, reason, any_of, conditions })
}

fn condition(
    reader: &mut TableReader<'_>,
    keys: &[String],
    inherited: Option<&Where>,
) -> ScenarioResult<Condition> {
    let flows = [
        ("mean", Over::Mean),
        ("min", Over::Min),
        ("max", Over::Max),
        ("sum", Over::Sum),
        ("each", Over::Each),
    ];
    let repeats = [
        ("median", Statistic::Median),
        ("mean", Statistic::Mean),
        ("min", Statistic::Min),
        ("max", Statistic::Max),
        ("p5", Statistic::P5),
        ("p95", Statistic::P95),
    ];
    let Some(metric) = figure(reader)? else {
        return Err(reader.error("metric", "is missing: the figure that is compared"));
    };
    let filter = match (reader.has("where"), inherited) {
        (false, Some(inherited)) => inherited.clone(),
        _ => filter(reader, keys)?,
    };
    reader.node("where");
    let ratio = reference(reader, "ratio_to", Against::Ratio, &metric, keys)?;
    let difference = reference(reader, "minus", Against::Difference, &metric, keys)?;
    if ratio.is_some() && difference.is_some() {
        return Err(reader.error("minus", "either ratio_to or minus, not both"));
    }
    let reference = ratio.or(difference);
    let number = f64::MIN..=f64::MAX;
    let bound = Bound {
        at_least: reader.maybe_number("at_least", number.clone())?,
        at_most: reader.maybe_number("at_most", number)?,
    };
    if bound.at_least.is_none() && bound.at_most.is_none() {
        return Err(reader.table_error("no bound: set at_least or at_most"));
    }
    Ok(Condition {
        metric,
        filter,
        over_flows: reader.choice("over_flows", &flows)?,
        over_repeats: reader.choice("over_repeats", &repeats)?,
        reference,
        bound,
    })
}

/// The value of `key`, what a figure is held against.
fn reference(
    reader: &mut TableReader<'_>,
    key: &'static str,
    how: Against,
    metric: &str,
    keys: &[String],
) -> ScenarioResult<Option<Reference>> {
    let Some(mut table) = reader.table(key)? else { return Ok(None) };
    let metric = figure(&mut table)?.unwrap_or_else(|| metric.to_owned());
    let filter = filter(&mut table, keys)?;
    table.finish()?;
    Ok(Some(Reference { how, metric, filter }))
}

/// The value of `metric`.
pub(super) fn figure(reader: &mut TableReader<'_>) -> ScenarioResult<Option<String>> {
    named_figure(reader, "metric")
}

pub(super) fn named_figure(
    reader: &mut TableReader<'_>,
    key: &'static str,
) -> ScenarioResult<Option<String>> {
    let Some(name) = reader.maybe_text(key)? else { return Ok(None) };
    if metric::is_known(&name) {
        return Ok(Some(name));
    }
    let known = metric::names().join(", ");
    Err(reader.error(key, format!("no figure {name:?}; there are {known}")))
}

/// The value of `where`.
pub(super) fn filter(reader: &mut TableReader<'_>, keys: &[String]) -> ScenarioResult<Where> {
    let mut tests = Vec::new();
    for (key, node) in reader.entries("where")? {
        known(reader, "where", key, keys)?;
        tests.push((key.to_owned(), test(reader, node)?));
    }
    Ok(Where(tests))
}

/// A list of keys that vary.
fn names(
    reader: &mut TableReader<'_>,
    list: &'static str,
    keys: &[String],
) -> ScenarioResult<Vec<String>> {
    let Some(node) = reader.node(list) else { return Ok(Vec::new()) };
    let TreeValue::List(items) = &node.value else {
        return Err(reader.error(list, "expected a list of swept keys"));
    };
    let name = |item: &Node| match &item.value {
        TreeValue::Text(name) => known(reader, list, name, keys).map(|()| name.clone()),
        _ => Err(reader.error(list, "expected a list of swept keys")),
    };
    items.iter().map(name).collect()
}

fn known(reader: &TableReader<'_>, place: &str, key: &str, keys: &[String]) -> ScenarioResult<()> {
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
