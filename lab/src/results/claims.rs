//! Whether claims hold. `docs/research/scenarios.md` has the rules.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::figures::{CellRuns, FlowFigures, RunFigures};
pub use super::verdict::ClaimVerdict;
use super::verdict::{ComparedValues, verdict};
use crate::scenario::{Against, At, Claim, Condition, Over, ScenarioFile, Test, Where};

/// A claim with its verdict.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judged {
    /// The sentence.
    pub text: String,
    /// Where it is from.
    pub source: Option<String>,
    /// The figure, and by what it is divided.
    pub metric: String,
    /// What it must be.
    pub bound: String,
    /// The verdict.
    pub verdict: ClaimVerdict,
    /// The value nearest to failing, or the one that fails most.
    pub measured: Option<f64>,
    /// Its 95 % bootstrap interval; `None` with one repeat.
    pub interval_95: Option<[f64; 2]>,
    /// Where that was.
    pub at: Option<At>,
    /// And of which flows.
    pub cc: Option<String>,
    /// Why the claim fails, if it does.
    pub reason: Option<String>,
    /// Every comparison made.
    pub points: Vec<ClaimPoint>,
}

/// One comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClaimPoint {
    /// The swept values.
    pub at: At,
    /// Name of the flows.
    pub cc: String,
    /// The flow, where each counts for itself.
    pub flow: Option<usize>,
    /// Which of the claim's conditions, from 0.
    pub condition: usize,
    /// The figure.
    pub value: f64,
    /// By what it is divided.
    pub reference: Option<f64>,
    /// And of which flows.
    pub reference_cc: Option<String>,
    /// What is compared.
    pub measured: f64,
    /// Its 95 % bootstrap interval; `None` with one repeat.
    pub interval_95: Option<[f64; 2]>,
    /// Whether it is within the bound.
    pub holds: bool,
    /// Whether its interval is.
    pub verdict: ClaimVerdict,
    /// How far inside the bound.
    #[serde(skip)]
    slack: f64,
}

/// Judges the claims of a file by its valid runs, cell by cell.
#[must_use]
pub fn judge(file: &ScenarioFile, runs: &[CellRuns]) -> Vec<Judged> {
    let data = ClaimData { file, runs };
    file.claims.iter().map(|claim| data.claim(claim)).collect()
}

pub(super) struct ClaimData<'a> {
    pub(super) file: &'a ScenarioFile,
    runs: &'a [CellRuns],
}

/// Flows that give one value: all of one name in a cell, or one of them, or the link.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Subject {
    cell: usize,
    /// Which flows; empty for the link.
    flows: Vec<usize>,
    groups: Vec<usize>,
    cc: String,
    flow: Option<usize>,
}

impl ClaimData<'_> {
    fn claim(&self, claim: &Claim) -> Judged {
        let mut points = Vec::new();
        let mut complete = true;
        for (index, condition) in claim.conditions.iter().enumerate() {
            let found = self.points(condition, index);
            complete &= !found.is_empty();
            points.extend(found);
        }
        let first = &claim.conditions[0];
        let judged = if complete { self.decide(claim, &points) } else { None };
        let place = judged.map(|(_, place)| place);
        Judged {
            text: claim.text.clone(),
            source: claim.source.clone(),
            metric: described(first),
            bound: first.bound.text(),
            verdict: judged.map_or(ClaimVerdict::NotMeasured, |(verdict, _)| verdict),
            measured: place.map(|place| points[place].measured),
            interval_95: place.and_then(|place| points[place].interval_95),
            at: place.map(|place| points[place].at.clone()),
            cc: place.map(|place| points[place].cc.clone()),
            reason: self.reason(claim, place.map(|place| &points[place])),
            points,
        }
    }

    /// The verdict on the claim, and the point that shows it best.
    fn decide(&self, claim: &Claim, points: &[ClaimPoint]) -> Option<(ClaimVerdict, usize)> {
        // Points that differ in nothing but the keys of which one value is enough are alternatives.
        let mut alternatives: BTreeMap<String, BTreeMap<String, Vec<usize>>> = BTreeMap::new();
        for (index, point) in points.iter().enumerate() {
            let (outer, inner) = self.split(point, &claim.any_of);
            alternatives.entry(outer).or_default().entry(inner).or_default().push(index);
        }
        let order = |a: &usize, b: &usize| {
            let (a, b) = (&points[*a], &points[*b]);
            a.verdict.cmp(&b.verdict).then(a.slack.total_cmp(&b.slack))
        };
        let worst = |indices: &Vec<usize>| indices.iter().copied().min_by(order);
        let best_of =
            |group: &BTreeMap<String, Vec<usize>>| group.values().filter_map(worst).max_by(order);
        let decisive: Vec<usize> = alternatives.values().filter_map(best_of).collect();
        let place = worst(&decisive)?;
        Some((points[place].verdict, place))
    }

    /// What a point's alternatives share, and what tells it from them.
    fn split(&self, point: &ClaimPoint, any_of: &[String]) -> (String, String) {
        let freed = self.freed(any_of.iter().map(String::as_str));
        let is_free = |key: &String| freed.contains(key);
        let (inner, outer): (At, At) =
            point.at.clone().into_iter().partition(|(key, _)| is_free(key));
        let one_of_cc = any_of.iter().any(|key| key == "cc");
        let name = |of: bool| if of { point.cc.as_str() } else { "" };
        let text = |at: At, cc: bool| format!("{} {}", Value::Object(at), name(cc));
        // Without alternatives every point stands for itself.
        if any_of.is_empty() {
            let all = format!("{} {:?} {}", text(outer, true), point.flow, point.condition);
            return (format!("{all} {:?}", point.reference_cc), String::new());
        }
        (text(outer, !one_of_cc), text(inner, one_of_cc))
    }

    /// The swept keys that a set of names leaves open: the names, what is zipped with them, and
    /// for `cc` all that an algorithm is given by.
    fn freed<'n>(&self, names: impl Iterator<Item = &'n str>) -> Vec<String> {
        let names: Vec<&str> = names.collect();
        let keys = self.file.sweep.iter().map(|(key, _)| key);
        let of_cc = |key: &str| {
            let last = key.split('.').nth(2);
            key.starts_with("flow.") && matches!(last, Some("cc" | "label" | "parameters"))
        };
        let named =
            |key: &&String| names.contains(&key.as_str()) || (names.contains(&"cc") && of_cc(key));
        let free: Vec<&String> = keys.filter(named).collect();
        let together =
            self.file.zips.iter().filter(|zip| zip.iter().any(|key| free.contains(&key)));
        let mut all: Vec<String> = together.flatten().cloned().collect();
        all.extend(free.into_iter().cloned());
        all
    }

    fn points(&self, condition: &Condition, index: usize) -> Vec<ClaimPoint> {
        let mut points = Vec::new();
        for subject in self.subjects(&condition.metric, &condition.filter, condition.over_flows) {
            let over_flows = condition.over_flows;
            let values = self.values(&subject, &condition.metric, over_flows);
            if values.is_empty() {
                continue;
            }
            let mut push = |reference: Option<(Vec<f64>, String)>| {
                let (others, reference_cc) = reference.unzip();
                let compared =
                    ComparedValues { condition, values: &values, others: others.as_deref() };
                let (value, reference, measured) = compared.whole();
                let interval_95 = compared.interval_95();
                let slack = condition.bound.slack(measured);
                points.push(ClaimPoint {
                    at: self.file.cells[subject.cell].at.clone(),
                    cc: subject.cc.clone(),
                    flow: subject.flow,
                    condition: index,
                    value,
                    reference,
                    reference_cc,
                    measured,
                    interval_95,
                    holds: slack >= 0.0,
                    verdict: verdict(&condition.bound, measured, interval_95),
                    slack,
                });
            };
            match &condition.reference {
                None => push(None),
                Some(reference) => {
                    for by in
                        self.references(&subject, &reference.metric, &reference.filter, condition)
                    {
                        let others = self.values(&by, &reference.metric, over_flows);
                        if !others.is_empty() {
                            push(Some((others, by.cc)));
                        }
                    }
                }
            }
        }
        points
    }

    /// What a subject is compared with: the same flows of the cells that differ in nothing but what
    /// `filter` names; or other flows of the same cell, if it names some that are there.
    fn references(
        &self,
        subject: &Subject,
        metric: &str,
        filter: &Where,
        condition: &Condition,
    ) -> Vec<Subject> {
        let freed = self.freed(filter.0.iter().map(|(key, _)| key.as_str()));
        let at = &self.file.cells[subject.cell].at;
        let comparable = |other: &Subject| {
            let other = &self.file.cells[other.cell].at;
            at.iter().all(|(key, value)| freed.contains(key) || other.get(key) == Some(value))
        };
        // A reference that says nothing about flows is to the same ones.
        let names_flows = ["cc", "group", "flow"].iter().any(|key| filter.get(key).is_some());
        let is_same = |other: &Subject| {
            names_flows || metric.starts_with("link.") || other.groups == subject.groups
        };
        if !names_flows && freed.is_empty() {
            return Vec::new();
        }
        let over =
            if condition.over_flows == Over::Each { Over::Mean } else { condition.over_flows };
        let mut found: Vec<Subject> = self.subjects(metric, filter, over);
        found.retain(|other| comparable(other) && is_same(other) && other != subject);
        let here: Vec<Subject> = found
            .iter()
            .filter(|other| other.cell == subject.cell && other.flows != subject.flows)
            .cloned()
            .collect();
        if here.is_empty() { found } else { here }
    }

    pub(super) fn subjects(&self, metric: &str, filter: &Where, over: Over) -> Vec<Subject> {
        let mut subjects = Vec::new();
        for (cell, runs) in self.runs.iter().enumerate() {
            let at = &self.file.cells[cell].at;
            let swept =
                |(key, test): &(String, Test)| at.get(key).is_none_or(|value| test.passes(value));
            let Some((_, first)) = runs.first() else { continue };
            if !filter.0.iter().all(swept) {
                continue;
            }
            let flows: Vec<&FlowFigures> =
                first.flows.iter().filter(|flow| is_selected(flow, filter)).collect();
            if flows.is_empty() {
                continue;
            }
            let of = |members: &[&FlowFigures], cc: String, flow: Option<usize>| Subject {
                cell,
                flows: members.iter().map(|flow| flow.flow).collect(),
                groups: groups_of(members),
                cc,
                flow,
            };
            if metric.starts_with("link.") {
                let cc = distinct(&flows).join(" and ");
                subjects.push(Subject { flows: Vec::new(), ..of(&flows, cc, None) });
            } else if over == Over::Each {
                let each = flows.iter();
                subjects.extend(each.map(|flow| of(&[flow], flow.label.clone(), Some(flow.flow))));
            } else {
                subjects.extend(distinct(&flows).into_iter().map(|label| {
                    let same: Vec<&FlowFigures> =
                        flows.iter().filter(|flow| flow.label == label).copied().collect();
                    of(&same, label, None)
                }));
            }
        }
        subjects
    }

    /// The values of a subject in each run, over its flows.
    pub(super) fn values(&self, subject: &Subject, metric: &str, over_flows: Over) -> Vec<f64> {
        let runs = self.runs[subject.cell].iter();
        runs.filter_map(|(_, run)| in_run(run, subject, metric, over_flows)).collect()
    }
}

fn in_run(run: &RunFigures, subject: &Subject, metric: &str, over: Over) -> Option<f64> {
    if let Some(metric) = metric.strip_prefix("link.") {
        return run.link.0.get(metric).copied();
    }
    let figure = |flow: &usize| run.flows[*flow].figures.0.get(metric).copied();
    let values: Vec<f64> = subject.flows.iter().filter_map(figure).collect();
    let n = values.len() as f64;
    match over {
        _ if values.is_empty() => None,
        Over::Mean | Over::Each => Some(values.iter().sum::<f64>() / n),
        Over::Sum => Some(values.iter().sum()),
        Over::Min => values.into_iter().min_by(f64::total_cmp),
        Over::Max => values.into_iter().max_by(f64::total_cmp),
    }
}

fn is_selected(flow: &FlowFigures, filter: &Where) -> bool {
    filter.0.iter().all(|(key, test)| match key.as_str() {
        "cc" => test.passes(&flow.label.as_str().into()) || test.passes(&flow.cc.as_str().into()),
        "group" => test.passes(&flow.group.into()),
        "flow" => test.passes(&flow.flow.into()),
        _ => true,
    })
}

fn groups_of(flows: &[&FlowFigures]) -> Vec<usize> {
    let mut groups: Vec<usize> = flows.iter().map(|flow| flow.group).collect();
    groups.dedup();
    groups
}

fn distinct(flows: &[&FlowFigures]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for flow in flows {
        if !names.contains(&flow.label) {
            names.push(flow.label.clone());
        }
    }
    names
}

/// The figure of a condition for people.
fn described(condition: &Condition) -> String {
    let Some(reference) = &condition.reference else { return condition.metric.clone() };
    let of = if reference.metric == condition.metric { "" } else { reference.metric.as_str() };
    let test = |(key, test): &(String, Test)| match test {
        Test::Is(Value::String(text)) if key == "cc" => text.clone(),
        Test::Is(value) => format!("{key} = {value}"),
        Test::OneOf(values) => {
            let words =
                values.iter().map(|value| value.as_str().map_or(value.to_string(), Into::into));
            words.collect::<Vec<String>>().join(", ")
        }
        Test::Within(bound) => format!("{key} {}", bound.text()),
    };
    let at: Vec<String> = reference.filter.0.iter().map(test).collect();
    let of = [of.to_owned(), at.join(", ")].into_iter().filter(|part| !part.is_empty());
    let sign = match reference.how {
        Against::Ratio => "/",
        Against::Difference => "-",
    };
    format!("{} {sign} {}", condition.metric, of.collect::<Vec<_>>().join(" at "))
}

#[cfg(test)]
#[path = "claims_tests.rs"]
mod tests;
