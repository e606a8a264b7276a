//! The report of made-up results with every form of plot. The document made from them is kept as
//! `lab/web/test/made-up.json`, from which the page is tested in a browser:
//! `UPDATE_SNAPSHOTS=1` writes it again.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::document::{Document, Panel};
use super::synthetic_players::players;
use super::synthetic_results::{ALGORITHMS, around, cell, synthetic_results, write, write_series};
use super::{Labelled, ReportContent, csv, fill, read};

const PAGE: &str = r#"<script type="application/json">"millrace-report-data"</script>"#;
const SNAPSHOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/web/test/made-up.json");

fn alone(directory: &Path) -> [Labelled; 1] {
    [Labelled { label: "made up".to_owned(), directory: directory.to_owned() }]
}

fn titled(title: &str) -> ReportContent<'_> {
    ReportContent { title: Some(title), invalid_runs: false }
}

fn document() -> Document {
    let root = tempfile::tempdir().unwrap();
    synthetic_results(root.path());
    read(&alone(root.path()), titled("Made-up results")).unwrap()
}

#[test]
fn the_document_is_the_one_that_the_page_is_tested_with() {
    let text = serde_json::to_string(&document()).unwrap() + "\n";
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        fs::write(SNAPSHOT, &text).unwrap();
    }
    let kept = fs::read_to_string(SNAPSHOT).unwrap();
    assert!(kept == text, "{SNAPSHOT} is of another document; UPDATE_SNAPSHOTS=1 writes it again");
}

#[test]
fn the_page_has_every_claim_and_every_figure() {
    let document = document();
    let page = fill(PAGE, &document).unwrap();
    let (_, json) = page.split_once('>').unwrap();
    let json: Value = serde_json::from_str(json.strip_suffix("</script>").unwrap()).unwrap();
    let names: Vec<_> = document.figures.iter().map(|figure| figure.id.as_str()).collect();
    assert_eq!(
        names,
        ["made-buffers", "made-lines", "made-players", "made-repeats", "made-series", "user-own"]
    );
    assert_eq!(json["figures"].as_array().unwrap().len(), 6);
    for text in ["Vivace keeps 90 Mbit/s up", "a twentieth", "Another claim does"] {
        assert!(page.contains(text), "{text}");
    }
    assert!(!page.contains("<b>"), "a text could end the script");
    assert!(fill("<html></html>", &document).is_err());
}

fn panels<'a>(document: &'a Document, figure: &str) -> &'a [Vec<Panel>] {
    &document.figures.iter().find(|known| known.id == figure).unwrap().plots
}

#[test]
fn lines_have_a_point_for_each_value_and_algorithm() {
    let document = document();
    let chart = panels(&document, "made-lines")[0][0].chart().unwrap();
    assert_eq!(chart.series.len(), ALGORITHMS.len());
    assert_eq!(chart.series[4].name, "cubic");
    // Shares are in percent, medians between least and greatest.
    assert_eq!((chart.x.unit, chart.x.name.as_str()), ("%", "Random loss"));
    let xs: Vec<_> = chart.series[0].points.iter().map(|p| p[0].unwrap()).collect();
    assert_eq!(xs, [0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0]);
    assert_eq!(chart.series[0].points[0][1..], [Some(96.0), Some(92.16), Some(98.88)]);
    assert_eq!(chart.references[0].points, [[0.0, 90.0], [6.0, 90.0]]);
}

#[test]
fn one_algorithm_under_two_labels_stays_two() {
    let root = tempfile::tempdir().unwrap();
    let parts = [("bbr", 90.0), ("bbr gentle", 50.0)];
    let cells = parts.map(|(label, value)| {
        let figures = json!({"goodput_mbps": around(value)});
        cell(0, json!({"flow.0.label": label, "flow.0.parameters": {}}), &[(label, figures)])
    });
    let plots = json!([{"kind": "bars", "x": "cc", "series": "cc"}]);
    write(root.path(), "labels", json!({"cells": cells, "plots": plots}));
    let document = read(&alone(root.path()), titled("")).unwrap();
    let chart = panels(&document, "labels")[0][0].chart().unwrap();
    let heights: Vec<_> =
        chart.series.iter().map(|line| (line.name.as_str(), line.points[0][1])).collect();
    assert_eq!(heights, [("bbr", Some(90.0)), ("bbr gentle", Some(50.0))]);
}

#[test]
fn panels_of_a_scatter_plot_have_a_scale_each() {
    let root = tempfile::tempdir().unwrap();
    let cells = [(2.0, 150.0), (100.0, 10.0)].map(|(rate, delay)| {
        let figures = json!({"goodput_mbps": around(rate), "queueing_ms.p95": around(delay)});
        cell(0, json!({"link.rate_mbps": rate}), &[("bbr", figures)])
    });
    let plot = |kind: &str| json!({"kind": kind, "panel": "link.rate_mbps"});
    let plots = [plot("scatter"), plot("bars")];
    write(
        root.path(),
        "rates",
        json!({"keys": ["link.rate_mbps"], "cells": cells, "plots": plots}),
    );
    let document = read(&alone(root.path()), titled("")).unwrap();
    let ranges = panels(&document, "rates")
        .iter()
        .map(|plot| plot.iter().map(|panel| panel.chart().unwrap().y.range).collect::<Vec<_>>());
    let ranges: Vec<_> = ranges.collect();
    assert_eq!(ranges, [[None, None], [Some([0.0, 120.0]), Some([0.0, 120.0])]]);
}

#[test]
fn results_side_by_side_are_named_at_the_end_of_each_series() {
    let root = tempfile::tempdir().unwrap();
    let plots = json!([{"kind": "bars"}, {"kind": "bars", "series": "flow.0.cc"}]);
    let labelled = ["sim", "emu"].map(|label| {
        let cells = [cell(
            0,
            json!({"flow.0.cc": "bbr"}),
            &[("bbr", json!({"goodput_mbps": around(90.0)}))],
        )];
        write(&root.path().join(label), "one", json!({"cells": cells, "plots": plots}));
        Labelled { label: label.to_owned(), directory: root.path().join(label) }
    });
    let document = read(&labelled, titled("")).unwrap();
    assert_eq!(document.sets, ["sim", "emu"]);
    for plot in &panels(&document, "one")[..2] {
        let series = &plot[0].chart().unwrap().series;
        let names: Vec<_> = series.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["bbr (sim)", "bbr (emu)"]);
    }
    assert!(read(&labelled[..1], titled("")).unwrap().sets.is_empty());
}

#[test]
fn what_never_came_keeps_a_distribution_below_all() {
    let document = document();
    let chart = panels(&document, "made-repeats")[1][0].chart().unwrap();
    assert_eq!(chart.series[0].points.last().unwrap()[1], Some(95.0));
}

#[test]
fn a_series_has_a_panel_for_each_algorithm_with_the_same_scale() {
    let document = document();
    let plots = panels(&document, "made-series");
    let charts: Vec<_> = plots[0].iter().map(|panel| panel.chart().unwrap()).collect();
    assert_eq!(charts[3].title.as_deref(), Some("Throughput: bbr"));
    let names: Vec<_> = charts[0].series.iter().map(|line| line.name.as_str()).collect();
    assert_eq!(names, ["Flow 1", "Flow 2", "Flow 3", "Flow 4"]);
    assert_eq!(charts[0].series[0].points.len(), 20);
    assert!(charts.iter().all(|chart| chart.y.range == charts[0].y.range));
    assert_eq!(charts[3].references[0].points, [[0.0, 40.0], [5.0, 25.0], [10.0, 25.0]]);
    assert!(charts[0].references.is_empty());
    // The queue is the link's; its samples are the file's.
    let queue = plots[1][0].chart().unwrap();
    assert_eq!((queue.series.len(), queue.series[0].points.len()), (2, 100));
    assert_eq!(queue.series[0].points[9][1], Some(73658.8));
    // Means over half a second, from its beginning on.
    let optimal = panels(&document, "made-repeats")[6][0].chart().unwrap();
    assert_eq!(optimal.references[0].points[0], [0.0, 100.0]);
}

#[test]
fn a_scenario_without_plots_gets_some() {
    let document = document();
    let plots = panels(&document, "user-own");
    let chart = plots[0][0].chart().unwrap();
    assert!(chart.x.log);
    assert_eq!(chart.series[0].points[1][..2], [Some(500.0), Some(450.0)]);
    assert_eq!(plots.len(), 2, "only what was measured is drawn");
}

#[test]
fn algorithms_over_a_trace_are_drawn_over_time_beside_its_capacity() {
    let root = tempfile::tempdir().unwrap();
    let figures = || json!({"goodput_mbps": around(90.0)});
    let cells = ["bbr", "cubic"].map(|cc| cell(0, json!({"flow.0.cc": cc}), &[(cc, figures())]));
    write(root.path(), "own", json!({"keys": ["flow.0.cc"], "cells": cells}));
    write_series(root.path(), "own", 0, 1);
    let document = read(&alone(root.path()), ReportContent::default()).unwrap();
    assert_eq!(document.title, "Made up: own", "of one scenario");
    let Some(Panel::Series(chart)) = panels(&document, "own").last().map(|it| &it[0]) else {
        panic!("no time series: {:?}", document.figures[0].plots)
    };
    let names: Vec<_> = chart.series.iter().map(|line| line.name.as_str()).collect();
    assert_eq!((names, chart.references.len()), (vec!["bbr", "cubic"], 1));

    // A flow over several traces: a panel for each.
    let cells = ["a/one.txt", "b/two.txt"]
        .map(|trace| cell(0, json!({"link.trace": trace}), &[("bbr", figures())]));
    write(root.path(), "traces", json!({"keys": ["link.trace"], "cells": cells}));
    write_series(root.path(), "traces", 0, 1);
    let document = read(&alone(root.path()), ReportContent::default()).unwrap();
    assert_eq!(document.title, "Results of 2 scenarios");
    assert_eq!(panels(&document, "traces").last().unwrap().len(), 2);
}

#[test]
fn invalid_runs_are_a_table_on_request() {
    let root = tempfile::tempdir().unwrap();
    let figures = json!({"goodput_mbps": around(50.0)});
    let mut invalid = cell(0, json!({"flow.0.cc": "bbr"}), &[("bbr", figures.clone())]);
    invalid["because"] = json!(["the machine was busy"]);
    let cells = [cell(0, json!({"flow.0.cc": "bbr"}), &[("bbr", figures)])];
    let counts = json!({"runs": 2, "done": 2, "skipped": 0, "failed": 0, "invalid": 1});
    write(
        root.path(),
        "own",
        json!({"keys": ["flow.0.cc"], "cells": cells, "counts": counts, "invalid_runs": [invalid]}),
    );
    let tables = |invalid_runs| {
        let content = ReportContent { title: None, invalid_runs };
        let document = read(&alone(root.path()), content).unwrap();
        let plots = panels(&document, "own").iter().flatten();
        let tables = plots.filter(|panel| matches!(panel, Panel::Table(_))).count();
        (tables, document.figures[0].notes.join(" "))
    };
    let (without, notes) = tables(false);
    assert_eq!(without, 0);
    assert!(notes.contains("Excluded: 1 invalid. `millrace-lab report --show-invalid`"), "{notes}");
    assert_eq!(tables(true).0, 1);
}

#[test]
fn claims_say_where_and_how_sure() {
    let document = document();
    let claims = &document.figures[1].claims;
    assert_eq!(claims[0].at, "vivace-latency, random loss 3 %");
    assert_eq!(claims[0].spread, Some([86.4, 92.7]));
    // A ratio has no unit, and the spread of its figure is not its own.
    assert_eq!((claims[1].unit, claims[1].spread), ("", None));
    assert_eq!(claims[1].points[0].at, "cubic, random loss 1 %");
    assert_eq!((claims[3].verdict.as_str(), claims[3].spread), ("undecided", Some([88.5, 92.0])));
}

#[test]
fn missing_and_shortened_runs_are_reported() {
    let document = document();
    assert!(document.warnings[0].contains("made-series"));
    let notes = &document.figures[4].notes;
    assert!(notes.iter().any(|note| note == "Excluded: 4 skipped, 2 failed."));
    assert!(notes.iter().any(|note| note == "a trace that is not there"));
    let facts: Vec<_> = document.facts.iter().map(|fact| fact.value.as_str()).collect();
    assert!(facts.contains(&"2027-01-15 08:00 UTC") && facts.contains(&"x86_64, 2 CPUs"));
}

#[test]
fn csv_has_a_row_for_each_point() {
    let document = document();
    let text = csv::text(panels(&document, "made-lines"));
    assert_eq!(text.lines().count(), 1 + ALGORITHMS.len() * 7 + 2);
    assert!(text.contains("\n1,,cubic,Random loss (%),0.5,Goodput (Mbit/s),"), "{text}");
    let text = csv::text(panels(&document, "made-repeats"));
    assert!(text.contains(",vivace-latency,Algorithm,vivace-latency,Goodput (Mbit/s),"));
}

#[test]
fn a_directory_without_results_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let error = read(&alone(root.path()), titled("")).unwrap_err().to_string();
    assert!(error.contains("no summary.json"), "{error}");
    write(root.path(), "a", json!({"format": 2}));
    assert!(read(&alone(root.path()), titled("")).unwrap_err().to_string().contains("format 2"));
}

/// The papers' pictures from the scenario's own plots: bars for each trace, and three figures over time.
#[test]
fn the_scenario_of_iris_figures_15_and_16_draws_them() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios/players/iris-fig15.toml");
    let file = crate::scenario::ScenarioFile::load(Path::new(path)).unwrap();
    let values = |key: &str| {
        let (_, values) = file.sweep.iter().find(|(known, _)| known == key).unwrap();
        values.iter().map(|value| value.as_str().unwrap()).collect::<Vec<_>>()
    };
    let (traces, algorithms) = (values("link.trace"), values("flow.0.cc"));
    let root = tempfile::tempdir().unwrap();
    players(root.path(), "iris", &traces, &algorithms);
    let summary = root.path().join("iris/summary.json");
    let mut made: Value = serde_json::from_str(&fs::read_to_string(&summary).unwrap()).unwrap();
    made["plots"] = serde_json::to_value(&file.plots).unwrap();
    fs::write(&summary, made.to_string()).unwrap();

    let document = read(&alone(root.path()), titled("Iris")).unwrap();
    let charts: Vec<_> =
        panels(&document, "iris").iter().flatten().filter_map(|panel| panel.chart()).collect();
    let (bars, over_time): (Vec<_>, Vec<_>) =
        charts.iter().partition(|chart| chart.x.categories.is_some());
    let names = |charts: &[&&super::document::Chart]| {
        charts.iter().map(|chart| chart.y.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&bars), ["Mean bitrate", "Rebuffer ratio", "PSNR", "Switches"]);
    for chart in bars {
        assert_eq!(chart.x.categories.as_ref().unwrap().len(), traces.len());
        let drawn: Vec<_> = chart.series.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(drawn, algorithms);
        assert!(chart.series.iter().all(|line| line.points.len() == traces.len()));
    }
    assert_eq!(names(&over_time), ["Rung on the screen", "PSNR", "Buffer"]);
    for chart in over_time {
        assert_eq!(chart.series.len(), algorithms.len());
        assert!(chart.series.iter().all(|line| line.points.len() > 5));
    }
}

#[test]
fn frames_are_side_by_side_and_omitted_ones_are_named() {
    let root = tempfile::tempdir().unwrap();
    players(root.path(), "p", &["a/slow.txt", "a/fast.txt"], &["bbr", "cubic"]);
    let [summary] = &super::summary::read_all(root.path()).unwrap()[..] else { panic!() };
    let all = super::gallery::gallery(summary, 10_000).unwrap().unwrap();
    let at: Vec<_> = all.views.iter().map(|view| (view.place.as_str(), view.t)).collect();
    let [slow, fast] = ["trace slow", "trace fast"];
    assert_eq!(at, [(slow, 5.0), (slow, 10.0), (fast, 5.0), (fast, 10.0)]);
    assert!(all.notes.is_empty() && all.images.len() == 3, "each image once");
    let [bbr, cubic] = &all.views[0].seen[..] else { panic!() };
    assert_eq!((bbr.name.as_str(), cubic.name.as_str()), ("bbr", "cubic"));
    assert!(bbr.whole.is_some() && cubic.whole.is_none() && cubic.media_s.is_none());
    assert!(all.images[bbr.whole.unwrap()].starts_with("data:image/webp;base64,UklGR"));
    assert_eq!(all.views[1].seen[0].frozen_s, 1.25);

    // Of several players of one [[flow]] the first stands for all.
    let same = |flow: i64| {
        let mut part: Value = serde_json::json!({"group": 0, "cc": "bbr", "label": "bbr"});
        part["flow"] = flow.into();
        serde_json::from_value(part).unwrap()
    };
    let mut of_two = super::summary::read_all(root.path()).unwrap().remove(0);
    of_two.cells[0].flows = vec![same(1), same(0)];
    let viewers = super::viewers::viewers(&of_two);
    assert_eq!(viewers.iter().filter(|it| it.cell.at == of_two.cells[0].at).count(), 1);
    assert!(viewers[0].directory.ends_with("0000-r00/player-0"), "the only one with a session");

    // At 5 s one viewer of two has two images of their own; at 10 s there is a third.
    let less = super::gallery::gallery(summary, 110).unwrap().unwrap();
    assert!(less.views.iter().all(|view| view.t == 5.0), "{:?}", less.views);
    assert!(less.notes[0].contains("10 s (trace slow); 10 s (trace fast)"), "{:?}", less.notes);
}
