//! `[[claim]]`: what is said of the results. `docs/research/scenarios.md` has the rules.

use serde::Serialize;

use super::filter::{Bound, Where, filter, known};
use super::reader::TableReader;
use super::reason::{self, ClaimReason};
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
    pub reason: Option<ClaimReason>,
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

pub(super) fn read(reader: &mut TableReader<'_>, keys: &[String]) -> ScenarioResult<Vec<Claim>> {
    reader.tables("claim")?.into_iter().map(|table| claim(table, keys)).collect()
}

fn claim(mut reader: TableReader<'_>, keys: &[String]) -> ScenarioResult<Claim> {
    let (text, source) = (reader.text("text")?, reader.maybe_text("source")?);
    let reason = reason::read(&mut reader, keys)?;
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
