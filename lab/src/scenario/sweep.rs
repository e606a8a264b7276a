//! `[sweep]`: keys whose values vary, alone or several together.

use serde_json::Value as Json;

use super::model::At;
use super::tree::{Node, ScenarioError, ScenarioText, TreeEntry, TreeValue};

/// More cells are a mistake.
const MAX_CELLS: usize = 20_000;

/// Keys that vary together: one of `[sweep]`, or all of a `[[sweep.zip]]`.
#[derive(Debug)]
pub(super) struct SweepAxis {
    entries: Vec<(String, usize, Vec<Node>)>,
}

impl SweepAxis {
    pub(super) fn keys(&self) -> impl Iterator<Item = String> + '_ {
        self.entries.iter().map(|(key, _, _)| key.clone())
    }

    pub(super) fn into_json(self) -> impl Iterator<Item = (String, Vec<Json>)> {
        let json =
            |(key, _, nodes): (_, _, Vec<Node>)| (key, nodes.iter().map(Node::to_json).collect());
        self.entries.into_iter().map(json)
    }

    fn len(&self) -> usize {
        self.entries.first().map_or(0, |(_, _, values)| values.len())
    }
}

/// Takes the sweep out of the file.
pub(super) fn take(
    text: &ScenarioText<'_>,
    root: &mut Node,
) -> Result<Vec<SweepAxis>, ScenarioError> {
    let Some(sweep) = root.remove("sweep") else { return Ok(Vec::new()) };
    let TreeValue::Table(entries) = sweep.value else {
        return Err(text.error(sweep.at, "sweep", "expected a table"));
    };
    let mut axes = Vec::new();
    for entry in entries {
        if entry.key == "zip" {
            zips(text, entry, &mut axes)?;
        } else {
            axes.push(SweepAxis { entries: vec![varied(text, entry)?] });
        }
    }
    let cells = axes.iter().try_fold(1_usize, |product, axis| product.checked_mul(axis.len()));
    if cells.is_none_or(|cells| cells > MAX_CELLS) {
        let problem = format!("more than {MAX_CELLS} combinations");
        return Err(text.error(sweep.at, "sweep", problem));
    }
    let mut keys: Vec<_> = axes.iter().flat_map(|axis| &axis.entries).collect();
    keys.sort_by(|left, right| (&left.0, left.1).cmp(&(&right.0, right.1)));
    match keys.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => Err(text.error(pair[1].1, &format!("sweep.{:?}", pair[1].0), "varied twice")),
        None => Ok(axes),
    }
}

fn zips(
    text: &ScenarioText<'_>,
    entry: TreeEntry,
    axes: &mut Vec<SweepAxis>,
) -> Result<(), ScenarioError> {
    let wrong = || text.error(entry.at, "sweep.zip", "expected [[sweep.zip]]");
    let TreeValue::List(zips) = entry.node.value else { return Err(wrong()) };
    for zip in zips {
        let TreeValue::Table(entries) = zip.value else { return Err(wrong()) };
        let entries: Vec<_> =
            entries.into_iter().map(|entry| varied(text, entry)).collect::<Result<_, _>>()?;
        let length = entries.first().map_or(0, |(_, _, values)| values.len());
        if let Some((key, at, values)) = entries.iter().find(|(_, _, v)| v.len() != length) {
            let problem = format!("{} values where {:?} has {length}", values.len(), entries[0].0);
            return Err(text.error(*at, &format!("sweep.zip.{key:?}"), problem));
        }
        if length == 0 {
            return Err(text.error(zip.at, "sweep.zip", "varies nothing"));
        }
        axes.push(SweepAxis { entries });
    }
    Ok(())
}

fn varied(
    text: &ScenarioText<'_>,
    entry: TreeEntry,
) -> Result<(String, usize, Vec<Node>), ScenarioError> {
    let name = format!("sweep.{:?}", entry.key);
    match entry.node.value {
        TreeValue::List(values) if !values.is_empty() => Ok((entry.key, entry.at, values)),
        _ => Err(text.error(entry.node.at, &name, "expected a list of values, not empty")),
    }
}

/// Each combination of the values, with the file that it makes. The last axis turns fastest.
pub(super) fn cells(
    text: &ScenarioText<'_>,
    axes: &[SweepAxis],
    root: &Node,
) -> Result<Vec<(At, Node)>, ScenarioError> {
    let mut cells = vec![(At::new(), root.clone())];
    for axis in axes {
        let mut next = Vec::with_capacity(cells.len() * axis.len());
        for (at, root) in &cells {
            for index in 0..axis.len() {
                let (mut at, mut root) = (at.clone(), root.clone());
                for (key, key_at, values) in &axis.entries {
                    set(&mut root, key, &values[index]).map_err(|problem| {
                        text.error(*key_at, &format!("sweep.{key:?}"), problem)
                    })?;
                    at.insert(key.clone(), values[index].to_json());
                }
                next.push((at, root));
            }
        }
        cells = next;
    }
    Ok(cells)
}

fn set(root: &mut Node, key: &str, value: &Node) -> Result<(), String> {
    let path: Vec<&str> = key.split('.').collect();
    if matches!(path[0], "link" | "flow" | "sim" | "measure" | "duration_s" | "warmup_s") {
        return root.set(&path, value);
    }
    Err("can't be varied: a key of link, flow, sim or measure can, duration_s and warmup_s".into())
}
