//! Made-up results of players, with pictures of a colour each.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::synthetic_results::{around, cell, write, write_series};

/// WebP of 16 by 8 pixels: red, green, blue.
const IMAGES: [&[u8]; 3] = [
    b"RIFF\x2c\0\0\0WEBPVP8 \x20\0\0\0\x70\x01\0\x9d\x01\x2a\x10\0\x08\0\x07\x40\x96\x25\xa0\x02\x74\x01\x40\0\0\xfe\xe3\xfe\x42\x10\x6b\xbd\x27\x20\0\0",
    b"RIFF\x2e\0\0\0WEBPVP8 \x22\0\0\0\x70\x01\0\x9d\x01\x2a\x10\0\x08\0\x07\x40\x96\x25\x98\x02\x74\x01\x40\0\0\xfe\xd7\x94\xe4\xfc\xd2\x7b\x96\x8a\x01\0\0\0",
    b"RIFF\x2c\0\0\0WEBPVP8 \x20\0\0\0\x70\x01\0\x9d\x01\x2a\x10\0\x08\0\x07\x40\x96\x25\x98\x02\x74\x01\x40\0\0\xfe\xe5\xfa\x1b\x28\x13\xd6\x22\xdc\0\0",
];

/// Plots as those of Iris, Figures 15 and 16.
fn plots(trace: &str) -> Value {
    let bars = |y: &str| json!({"kind": "bars", "x": "link.trace", "y": y, "series": "flow.0.cc", "error": "stddev"});
    let over_time = |y: &str| json!({"kind": "series", "y": y, "series": "flow.0.cc", "where": {"link.trace": trace}});
    json!([
        bars("bitrate_kbps"),
        bars("rebuffer_ratio"),
        bars("psnr_db"),
        bars("switches"),
        over_time("shown_kbps"),
        over_time("psnr_db"),
        over_time("buffer_s"),
    ])
}

/// A cell for each trace and algorithm; the first of them stalls.
pub(super) fn players(root: &Path, name: &str, traces: &[&str], algorithms: &[&str]) {
    let pairs = traces.iter().enumerate().flat_map(|(at, trace)| {
        algorithms.iter().enumerate().map(move |(n, cc)| (at, *trace, n, *cc))
    });
    let cells: Vec<Value> = pairs
        .enumerate()
        .map(|(number, (at, trace, n, cc))| {
            let (trace_number, cc_number) = (at as f64 + 1.0, n as f64 + 1.0);
            let figures = json!({
                "startup_s": around(0.8 / trace_number), "stalls": around(if n == 0 { 2.0 } else { 0.0 }),
                "rebuffer_ratio": around(if n == 0 { 0.04 / trace_number } else { 0.0 }),
                "bitrate_kbps": around(500.0 * trace_number + 90.0 * cc_number),
                "switches": around(30.0 - 4.0 * cc_number),
                "psnr_db": around(33.0 + trace_number + cc_number / 4.0), "ssim": around(0.9 + cc_number / 100.0),
            });
            let at = json!({"link.trace": trace, "flow.0.cc": cc});
            write_series(root, name, number, 1);
            write_pictures(&root.join(name).join(format!("runs/{number:04}-r00/player-0")), n);
            cell(number, at, &[(cc, figures)])
        })
        .collect();
    let keys = ["link.trace", "flow.0.cc"];
    write(root, name, json!({"keys": keys, "cells": cells, "plots": plots(traces[0])}));
}

/// At 5 s nothing for the second, at 10 s a frozen picture for the first.
fn write_pictures(directory: &Path, n: usize) {
    fs::create_dir_all(directory).unwrap();
    fs::write(directory.join("session.json"), "{}").unwrap();
    for (at, image) in IMAGES.iter().enumerate() {
        fs::write(directory.join(format!("{at}.webp")), image).unwrap();
    }
    let picture = |t: f64| {
        let is_there = !(t < 6.0 && n == 1);
        let files = json!({
            "whole": "0.webp", "part": format!("{}.webp", n % 2), "source": "2.webp",
            "source_part": "2.webp",
        });
        json!({
            "t": t, "rung_kbps": is_there.then_some(1570.0), "media_s": is_there.then_some(t - 0.5),
            "frozen_s": if t > 9.0 && n == 0 { 1.25 } else { 0.0 },
            "psnr_db": is_there.then_some(36.5 + n as f64), "buffer_s": 2.0 * n as f64,
            "files": is_there.then_some(files),
        })
    };
    let pictures = [5.0, 10.0].map(picture);
    let all = json!({"version": 1, "credit": "A made-up video", "pictures": pictures});
    fs::write(directory.join("pictures.json"), all.to_string()).unwrap();
}
