//! The figures of runs.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::Serialize;
use serde::ser::Serializer;
use serde_json::{Map, Value};

use super::metric;

/// Figures by name. Infinity is what never came; a figure that does not exist is not there.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Figures(pub BTreeMap<&'static str, f64>);

/// The figures of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RunFigures {
    /// The bottleneck's.
    pub link: Figures,
    /// The flows', in the order of the scenario.
    pub flows: Vec<FlowFigures>,
}

/// The figures of a flow.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FlowFigures {
    /// Number.
    pub flow: usize,
    /// Number of its `[[flow]]`.
    pub group: usize,
    /// Algorithm.
    pub cc: String,
    /// Name in plots and claims.
    pub label: String,
    /// When it began.
    pub start_s: f64,
    /// When it ended.
    pub stop_s: f64,
    /// Its figures.
    #[serde(flatten)]
    pub figures: Figures,
}

impl Figures {
    /// Sets one; not-a-number is a figure that does not exist.
    pub fn set(&mut self, name: &'static str, value: f64) {
        if !value.is_nan() {
            self.0.insert(name, value);
        }
    }

    /// The reverse of its serialisation.
    fn from_json(tables: Map<String, Value>) -> Result<Self> {
        let mut all = Self::default();
        for (outer, value) in tables {
            let inside: Vec<(String, Value)> = match value {
                Value::Object(inside) => inside
                    .into_iter()
                    .map(|(inner, value)| (format!("{outer}.{inner}"), value))
                    .collect(),
                value => vec![(outer, value)],
            };
            for (name, value) in inside {
                let known = metric::OF_FLOW.iter().chain(&metric::OF_LINK).find(|it| **it == name);
                let known = known.with_context(|| format!("{name} is no figure"))?;
                let value = if value.is_null() { Some(f64::INFINITY) } else { value.as_f64() };
                all.set(known, value.with_context(|| format!("{name} is no number"))?);
            }
        }
        Ok(all)
    }

    /// Sets one that may not exist.
    pub fn set_if(&mut self, name: &'static str, value: Option<f64>) {
        if let Some(value) = value {
            self.set(name, value);
        }
    }
}

impl RunFigures {
    /// Of `flows.json`.
    ///
    /// # Errors
    /// What is missing in it, or in it and not known.
    pub fn from_json(file: &Value) -> Result<Self> {
        let table = |value: &Value| value.as_object().cloned().context("not a table");
        let flows = file["flows"].as_array().context("flows: not a list")?;
        let flows = flows.iter().enumerate().map(|(index, flow)| {
            FlowFigures::from_json(table(flow)?).with_context(|| format!("flows[{index}]"))
        });
        Ok(Self {
            link: Figures::from_json(table(&file["link"]).context("link")?).context("link")?,
            flows: flows.collect::<Result<_>>()?,
        })
    }
}

impl FlowFigures {
    fn from_json(mut flow: Map<String, Value>) -> Result<Self> {
        let mut take = |key: &'static str| flow.remove(key).with_context(|| format!("no {key}"));
        let number = |value: Value| value.as_f64().context("start_s and stop_s are numbers");
        Ok(Self {
            flow: serde_json::from_value(take("flow")?)?,
            group: serde_json::from_value(take("group")?)?,
            cc: serde_json::from_value(take("cc")?)?,
            label: serde_json::from_value(take("label")?)?,
            start_s: number(take("start_s")?)?,
            stop_s: number(take("stop_s")?)?,
            figures: Figures::from_json(flow)?,
        })
    }
}

/// `rtt_ms.p95` becomes a `p95` within `rtt_ms`; what is infinite or not there becomes null.
impl Serialize for Figures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut all = Map::new();
        for (name, value) in &self.0 {
            // Infinity has no JSON number and becomes null.
            let value = Value::from(*value);
            match name.split_once('.') {
                None => _ = all.insert((*name).to_owned(), value),
                Some((outer, inner)) => {
                    let entry = all.entry(outer).or_insert_with(|| Value::Object(Map::new()));
                    if let Value::Object(inside) = entry {
                        inside.insert(inner.to_owned(), value);
                    }
                }
            }
        }
        all.serialize(serializer)
    }
}

/// The valid runs of a cell: directory and figures, in the order of the repeats.
pub type CellRuns = Vec<(String, RunFigures)>;
