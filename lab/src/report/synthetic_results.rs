//! Made-up results with every form of plot.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use parquet::data_type::{ByteArrayType, DoubleType, Int32Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::{Value, json};

use super::synthetic_players::players;

pub(super) const ALGORITHMS: [&str; 12] = [
    "vivace-latency",
    "vivace-loss",
    "allegro",
    "bbr",
    "cubic",
    "copa",
    "bbr3",
    "iris-min",
    "iris-mid",
    "proteus-p",
    "reno",
    "vivace-lte",
];

fn statistic(values: &[Option<f64>]) -> Value {
    let mut sorted: Vec<f64> = values.iter().map(|v| v.unwrap_or(f64::INFINITY)).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let known = |value: f64| value.is_finite().then_some(value);
    let (low, high) = (sorted.first().copied(), sorted.last().copied());
    let median = sorted[sorted.len() / 2];
    let stddev = low.zip(high).map(|(low, high)| (high - low) / 4.0).and_then(known);
    json!({
        "n": values.len(), "median": known(median), "mean": known(median), "stddev": stddev,
        "min": low.and_then(known), "max": high.and_then(known), "values": values,
    })
}

/// Three repeats around a value.
pub(super) fn around(value: f64) -> Value {
    statistic(&[Some(value * 0.96), Some(value), Some(value * 1.03)])
}

pub(super) fn cell(number: usize, at: Value, parts: &[(&str, Value)]) -> Value {
    let part = |(flow, (label, figures)): (usize, &(&str, Value))| {
        let name = label.split(' ').next();
        json!({"flow": flow, "group": flow, "cc": name, "label": label, "count": 1, "figures": figures})
    };
    let parts: Vec<Value> = parts.iter().enumerate().map(part).collect();
    json!({
        "cell": number, "at": at, "runs": [format!("runs/{number:04}-r00")],
        "link": {"jain": around(0.97), "loss_rate": around(0.03)},
        "groups": parts, "flows": parts,
    })
}

pub(super) fn write(root: &Path, name: &str, more: Value) {
    let directory = root.join(name);
    fs::create_dir_all(&directory).unwrap();
    let mut summary = json!({
        "format": 1,
        "scenario": {
            "name": name, "title": format!("Made up: {name}"), "figure": "No paper, figure 0",
            "about": "One flow, 100 Mbit/s, 30 ms, 75 kB.", "duration_s": 60.0, "repeat": 3, "seed": 1,
        },
        "quick": null, "keys": [], "values": {}, "claims": [], "plots": [],
        "counts": {"runs": 36, "done": 36, "skipped": 0, "failed": 0, "invalid": 0}, "problems": [],
        "stamp": {
            "commit": "0123456789ab", "version": "0.1.0",
            "command": "millrace-lab run --driver simulator made-up.toml",
            "kernel": "6.1.0", "architecture": "x86_64", "cpus": 2, "finished_unix_s": 1_800_000_000,
            "wall_s": 12.5,
        },
    });
    for (key, value) in more.as_object().unwrap() {
        summary[key] = value.clone();
    }
    fs::write(directory.join("summary.json"), summary.to_string()).unwrap();
}

/// Ten seconds of some flows and the link.
pub(super) fn write_series(root: &Path, scenario: &str, cell: usize, flows: i32) {
    let schema = "message series { required double time_s; required int32 flow;
        required binary cc (UTF8); required double rate_mbps; required double sent_mbps;
        optional double rtt_ms; optional double queue_bytes; optional double shown_kbps;
        optional double psnr_db; optional double buffer_s; }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let directory = root.join(scenario).join(format!("runs/{cell:04}-r00"));
    fs::create_dir_all(&directory).unwrap();
    let file = fs::File::create(directory.join("series.parquet")).unwrap();
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer = SerializedFileWriter::new(file, schema, properties).unwrap();
    let rows: Vec<(f64, i32)> =
        (1..=100).flat_map(|t| (-1..flows).map(move |f| (f64::from(t) / 10.0, f))).collect();
    let share = |(t, flow): (f64, i32)| {
        let wave = 1.0 + 0.15 * (t * 1.7 + f64::from(flow) + cell as f64).sin();
        if flow < 0 { 90.0 } else { 90.0 / f64::from(flows) * wave }
    };
    let mut group = writer.next_row_group().unwrap();
    let mut column = 0;
    while let Some(mut out) = group.next_column().unwrap() {
        let some = |of: &dyn Fn((f64, i32)) -> Option<f64>| {
            let values: Vec<Option<f64>> = rows.iter().map(|row| of(*row)).collect();
            let levels: Vec<i16> = values.iter().map(|v| i16::from(v.is_some())).collect();
            (values.into_iter().flatten().collect::<Vec<_>>(), levels)
        };
        match column {
            1 => {
                let values: Vec<i32> = rows.iter().map(|row| row.1).collect();
                out.typed::<Int32Type>().write_batch(&values, None, None).unwrap();
            }
            2 => {
                let values = vec!["made-up".into(); rows.len()];
                out.typed::<ByteArrayType>().write_batch(&values, None, None).unwrap();
            }
            _ => {
                let (values, levels) = some(&|row| match column {
                    0 => Some(row.0),
                    3 => Some(share(row)),
                    4 => Some(if row.1 < 0 { 100.0 } else { share(row) }),
                    5 => (row.1 >= 0).then_some(31.0),
                    6 => (row.1 < 0).then_some(40_000.0 * (1.0 + row.0.sin())),
                    player => (row.1 >= 0).then(|| on_screen(row.0, cell)[player - 7]),
                });
                let levels = (column >= 5).then_some(&levels[..]);
                out.typed::<DoubleType>().write_batch(&values, levels, None).unwrap();
            }
        }
        out.close().unwrap();
        column += 1;
    }
    group.close().unwrap();
    writer.close().unwrap();
}

/// Rung, PSNR and buffer of a made-up player.
fn on_screen(time_s: f64, cell: usize) -> [f64; 3] {
    let rungs = [350.0, 620.0, 1570.0, 2540.0, 3600.0];
    let rung = (time_s / 3.0) as usize % 3 + cell % 3;
    let wave = (time_s + cell as f64).sin();
    [rungs[rung], 32.0 + 2.5 * rung as f64 + wave / 2.0, 8.0 + 5.0 * wave]
}

fn claim(text: &str, verdict: &str, more: Value) -> Value {
    let mut claim = json!({
        "text": text, "source": "No paper, Section 1", "metric": "goodput_mbps",
        "bound": "at least 90", "verdict": verdict, "measured": null, "at": null, "reason": null,
        "points": [],
    });
    for (key, value) in more.as_object().unwrap() {
        claim[key] = value.clone();
    }
    claim
}

/// Results with a scenario for each form of plot.
pub(super) fn synthetic_results(root: &Path) {
    let flat = |i: usize, x: f64| 96.0 - 40.0 * i as f64 / 12.0 * (x * 15.0).min(1.0) - 200.0 * x;
    let losses = [0.0, 0.005, 0.01, 0.02, 0.03, 0.04, 0.06];
    let cells: Vec<Value> = ALGORITHMS
        .iter()
        .enumerate()
        .flat_map(|(i, cc)| losses.iter().map(move |loss| (i, *cc, *loss)))
        .enumerate()
        .map(|(n, (i, cc, loss))| {
            let figures = json!({"goodput_mbps": around(flat(i, loss))});
            cell(n, json!({"link.loss": loss, "flow.0.cc": cc}), &[(cc, figures)])
        })
        .collect();
    let at = json!({"link.loss": 0.03, "flow.0.cc": "vivace-latency"});
    let point = |loss: f64, value: f64, holds: bool| {
        json!({"at": {"link.loss": loss}, "cc": "cubic", "value": value, "reference": 90.0,
            "measured": value / 90.0, "holds": holds})
    };
    let claims = [
        claim(
            "Vivace keeps 90 Mbit/s up to 3 % random loss",
            "fails",
            json!({"measured": flat(0, 0.03), "at": at, "reason": "Made up: <b>nothing</b> was measured."}),
        ),
        claim(
            "CUBIC has at most a twentieth",
            "holds",
            json!({"bound": "at most 0.05", "measured": 0.045,
                "at": {"link.loss": 0.01, "cc": "cubic"},
                "points": [point(0.01, 4.05, true), point(0.03, 2.0, true)]}),
        ),
        claim("Another claim does", "not measured", json!({"metric": "loss_rate"})),
        claim(
            "Copa keeps 90 Mbit/s without loss",
            "undecided",
            json!({"measured": 91.0, "interval_95": [88.5, 92.0], "at": {"link.loss": 0.0, "cc": "copa"}}),
        ),
    ];
    write(
        root,
        "made-lines",
        json!({"keys": ["link.loss", "flow.0.cc"], "cells": cells, "claims": claims, "plots": [
            {"kind": "lines", "x": "link.loss", "y": "goodput_mbps", "series": "cc",
             "reference": [{"name": "90 Mbit/s", "y": 90}], "y_range": [0, 100]}]}),
    );

    let buffers = [1500.0, 7500.0, 75_000.0, 750_000.0];
    let cells: Vec<Value> = ALGORITHMS[..5]
        .iter()
        .enumerate()
        .flat_map(|(i, cc)| buffers.iter().map(move |buffer| (i, *cc, *buffer)))
        .enumerate()
        .map(|(n, (i, cc, buffer))| {
            let fill = (buffer / 750_000.0_f64).sqrt();
            let figures = json!({
                "goodput_mbps": around(95.0 * (1.0 - (1.0 - fill) * i as f64 / 6.0)),
                "loss_rate": around(0.05 * (1.0 - fill) + 0.001),
                "inflation_ratio": around(fill * (i as f64 + 1.0) / 5.0),
            });
            cell(n, json!({"link.buffer_bytes": buffer, "flow.0.cc": cc}), &[(cc, figures)])
        })
        .collect();
    let lines = |y: &str| json!({"kind": "lines", "x": "link.buffer_bytes", "y": y, "log_x": true});
    let plots = ["goodput_mbps", "loss_rate", "inflation_ratio"].map(lines);
    let keys = ["link.buffer_bytes", "flow.0.cc"];
    write(root, "made-buffers", json!({"keys": keys, "cells": cells, "plots": plots}));

    let cells: Vec<Value> = ALGORITHMS[..8]
        .iter()
        .enumerate()
        .map(|(n, cc)| {
            let spread = |seed: usize| f64::from(u32::try_from(seed * 37 % 100).unwrap()) / 100.0;
            let of = |top: f64| -> Vec<_> {
                (0..100).map(|r| Some(top * (0.5 + spread(r * (n + 3)) / 2.0))).collect()
            };
            let mut late = of(20.0 + n as f64);
            late.truncate(20);
            late[0] = None;
            let figures = json!({
                "goodput_mbps": statistic(&of(50.0 - 4.0 * n as f64)),
                "convergence_s": statistic(&late),
                "signal_delay_ms": around(20.0 + 15.0 * ((n * 5) % 8) as f64),
                "stddev_mbps": around(1.0 + ((n * 3) % 8) as f64 / 3.0),
            });
            cell(n, json!({"flow.0.cc": cc}), &[(cc, figures)])
        })
        .collect();
    let plots = json!([
        {"kind": "cdf", "x": "goodput_mbps"}, {"kind": "cdf", "x": "convergence_s"},
        {"kind": "scatter", "x": "signal_delay_ms", "y": "goodput_mbps", "ideal": "low-high"},
        {"kind": "scatter", "x": "convergence_s", "y": "stddev_mbps", "ideal": "low-low", "front": true},
        {"kind": "bars", "x": "cc", "y": "goodput_mbps", "error": "stddev_mbps"},
        {"kind": "table", "rows": "cc", "y": ["goodput_mbps", "signal_delay_ms"]},
        {"kind": "series", "series": "cc", "optimal": true, "mean_over_s": 0.5},
    ]);
    write(root, "made-repeats", json!({"keys": ["flow.0.cc"], "cells": cells, "plots": plots}));
    for n in 0..8 {
        write_series(root, "made-repeats", n, 1);
    }

    let cells: Vec<Value> = ALGORITHMS[..4]
        .iter()
        .enumerate()
        .map(|(n, cc)| {
            let figures = json!({"goodput_mbps": around(22.0)});
            let flows: Vec<_> = (0..4).map(|_| (*cc, figures.clone())).collect();
            cell(n, json!({"flow.0.cc": cc}), &flows)
        })
        .collect();
    let plots = json!([
        {"kind": "series", "panel": "cc", "mean_over_s": 0.5, "title": "Throughput", "x_range": [0, 10],
         "reference": [{"name": "share", "steps": [[0, 40], [5, 25]], "panel": "bbr"}]},
        {"kind": "series", "y": "queue_bytes", "where": {"cc": ["bbr", "allegro"]}},
    ]);
    let counts = json!({"runs": 36, "done": 30, "skipped": 4, "failed": 2, "invalid": 0});
    let problems = json!([{"reason": "a trace that is not there", "runs": 4}]);
    write(
        root,
        "made-series",
        json!({"keys": ["flow.0.cc"], "cells": cells, "plots": plots,
        "counts": counts, "problems": problems, "quick": {"repeat": 1}}),
    );
    for n in 0..4 {
        write_series(root, "made-series", n, 4);
    }

    players(root, "made-players", &["a/slow-1mbps.txt", "a/fast-5mbps.txt"], &ALGORITHMS[3..8]);

    // No plots asked for.
    let cells: Vec<Value> = [50.0, 500.0, 5000.0]
        .iter()
        .enumerate()
        .map(|(n, rate)| {
            let figures = json!({"goodput_mbps": around(rate * 0.9), "loss_rate": around(0.01)});
            cell(n, json!({"link.rate_mbps": rate}), &[("cubic", figures)])
        })
        .collect();
    write(root, "user-own", json!({"keys": ["link.rate_mbps"], "cells": cells}));
}
