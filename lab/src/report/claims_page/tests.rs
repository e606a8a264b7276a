use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::claim_table::ClaimTable;
use super::page;
use crate::report::Labelled;
use crate::report::synthetic_results::{cell, write};

/// Results of a scenario with one claim, measured as `value` of at least 90.
fn results(root: &Path, set: &str, scenario: &str, cc: &str, value: f64, variant: &Value) {
    let verdict = if value >= 90.0 { "holds" } else { "fails" };
    let claims = json!([{
        "text": "a | b", "metric": "throughput_mbps", "bound": "at least 90", "verdict": verdict,
        "measured": value, "interval_95": [value - 1.0, value + 1.0], "at": {"flow.0.cc": cc},
        "reason": variant.as_object().unwrap().is_empty().then(|| format!("it has {value}")),
        "points": [{"at": {}, "cc": cc, "measured": value, "value": value, "holds": value >= 90.0}],
    }]);
    let scenario_head = json!({
        "name": scenario, "title": "A figure", "figure": "Paper, Figure 1", "repeat": 5, "seed": 1,
        "variant": variant,
    });
    let more = json!({
        "scenario": scenario_head, "claims": claims, "cells": [cell(0, json!({}), &[(cc, json!({}))])],
    });
    write(&directory(root, set), scenario, more);
}

fn directory(root: &Path, set: &str) -> PathBuf {
    root.join(set.replace('/', "-"))
}

fn labelled(root: &Path, sets: &[&str]) -> Vec<Labelled> {
    let one = |set: &&str| Labelled { label: (*set).to_owned(), directory: directory(root, set) };
    sets.iter().map(one).collect()
}

const SETS: [&str; 4] = ["published", "code", "default", "default/2018"];

fn written() -> String {
    let root = tempfile::tempdir().unwrap();
    let preset = |name: &str| json!({ "preset": name });
    let root = root.path();
    results(root, "published", "vivace-one", "vivace-loss", 36.0, &preset("published"));
    results(root, "code", "vivace-one", "vivace-loss", 95.0, &preset("nsdi18-code"));
    results(root, "default", "vivace-one", "vivace-loss", 96.0, &json!({}));
    results(root, "default/2018", "vivace-one", "vivace-loss", 97.0, &json!({"baselines": "2018"}));
    results(root, "published", "iris-two", "iris-min", 95.0, &preset("published"));
    results(root, "default", "iris-two", "iris-min", 80.0, &json!({}));
    results(root, "default/2018", "iris-two", "iris-min", 80.0, &json!({"baselines": "2018"}));
    let table = ClaimTable::read(&labelled(root, &SETS)).unwrap();
    let known = BTreeMap::from([
        ("vivace-one".to_owned(), "A figure".to_owned()),
        ("vivace-three".to_owned(), "Another figure".to_owned()),
    ]);
    page(&table, &known)
}

#[test]
fn a_claim_has_a_column_for_each_preset_and_a_row_where_baselines_change_it() {
    let text = written();
    for expected in [
        "## vivace-one: A figure\n\nPaper, Figure 1. 1 cell, each run 5 times (seeds 1 to 5).",
        "| claim | bound | baselines | published | code | default |",
        "| a \\| b | at least 90 | default | **fails** 36 Mbit/s [35 to 37] (vivace-loss) | holds 95 Mbit/s [94 to 96] \
         (vivace-loss) | holds 96 Mbit/s [95 to 97] (vivace-loss) |",
        "|  |  | 2018 | not run | not run | holds 97 Mbit/s",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    // The same values with other baselines need no row; there is no code of Iris.
    let (_, iris) = text.split_once("## iris-two").unwrap();
    let (iris, _) = iris.split_once("## vivace-one").unwrap();
    assert!(iris.contains("| claim | bound | published | default |"), "{iris}");
    assert!(iris.contains("No *code* column: no algorithm here has `preset = \"nsdi18-code\"`."));
}

/// A row that changes what the row before it did not change, and one that changes nothing more.
#[test]
fn a_row_with_the_values_of_the_row_before_it_is_left_out() {
    let root = tempfile::tempdir().unwrap();
    let sets = ["default", "default/2018", "default/later"];
    for (set, value) in sets.iter().zip([96.0, 97.0, 97.0]) {
        results(root.path(), set, "vivace-one", "vivace-loss", value, &json!({}));
    }
    let rows = |sets: &[&str]| {
        let table = ClaimTable::read(&labelled(root.path(), sets)).unwrap();
        let rows = table.rows_of("vivace-one", 0).into_iter();
        rows.map(|row| row.map(str::to_owned)).collect::<Vec<_>>()
    };
    assert_eq!(rows(&sets), [None, Some("2018".to_owned())]);
    results(root.path(), sets[2], "vivace-one", "vivace-loss", 96.0, &json!({}));
    let later = Some("later".to_owned());
    assert_eq!(rows(&sets), [None, Some("2018".to_owned()), later], "as without 2018");
}

#[test]
fn the_summary_counts_every_column_and_says_what_differs() {
    let text = written();
    for expected in [
        "| settings | baselines | holds | fails | no such preset |",
        "| published | default | 1 | 1 | 0 |",
        "| code | default | 1 | 0 | 1 |",
        "| default | default | 1 | 1 | 0 |",
        "| default | 2018 | 1 | 1 | 0 |",
        "- **published**, 2 claims that are judged here and by **default**: 1 of them hold by **default** alone \
         (vivace-one: 1), 1 here alone (iris-two: 1).",
        "- **code**, 1 claims that",
        "## Not run\n\n- `vivace-three`: Another figure\n",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
}

#[test]
fn reasons_are_those_of_the_settings_in_the_file() {
    let text = written();
    assert!(text.contains("Why claims fail by default:\n\n- *a | b*: it has 80\n"), "{text}");
    assert!(!text.contains("it has 36"), "{text}");
}

#[test]
fn commits_are_named_with_their_number_of_runs() {
    assert!(written().contains("at commit `0123456789ab` (252 runs)."), "{}", written());
}

#[test]
fn labels_must_differ_and_rows_need_a_column() {
    let root = tempfile::tempdir().unwrap();
    results(root.path(), "default", "vivace-one", "vivace-loss", 96.0, &json!({}));
    let read = |sets: &[&str]| {
        let all = sets.iter().map(|label| Labelled {
            label: (*label).to_owned(),
            directory: root.path().join("default"),
        });
        ClaimTable::read(&all.collect::<Vec<_>>()).unwrap_err().to_string()
    };
    assert!(read(&["default", "default"]).contains("two results are called"));
    assert!(read(&["default/2018"]).contains("come first"));
}
