//! The files that `millrace-lab run` writes.

use anyhow::{Context, Result};
use millrace_lab::results::meanings::{self, family};
use millrace_lab::results::{metric, series};

use crate::markdown::{code, escape, head, table};
use crate::source::TypeBook;

const FILES: [&str; 11] = [
    "lab/src/results/write.rs",
    "lab/src/results/stamp.rs",
    "lab/src/results/figures.rs",
    "lab/src/results/summary.rs",
    "lab/src/results/statistic.rs",
    "lab/src/results/claims.rs",
    "lab/src/results/verdict.rs",
    "lab/src/results/series.rs",
    "lab/src/scenario/model.rs",
    "lab/src/scenario/variant.rs",
    "lab/src/report/plot.rs",
];

pub(crate) fn page() -> Result<String> {
    let book = TypeBook::read(&FILES)?
        .elsewhere("Scenario", "[the scenario](scenarios.md), with every default")
        .elsewhere("Plot", "[plot](scenarios.md#plot)")
        .elsewhere("Figures", "[figures](#figures)");
    let mut page = head("Result files of millrace-lab", "the types in `lab/src/results`");
    page.push_str(
        "\nNumbers are in the unit that the name ends with; rates are shares from 0 to 1; Mbit/s are 10^6 bit/s. \
         [Result files](../research/results.md) has the directories, what a cell, a repeat and a group are, and what null \
         means; [Playback quality](../research/qoe.md#definitions) defines the figures of players.\n",
    );
    page.push_str("\n## run.json\n");
    page.push_str(&book.tables(&["RunFile"], 3)?);
    // It is shown above.
    let book = book.elsewhere("RunStamp", "[RunStamp](#runstamp)");
    for (file, root) in [("flows.json", "RunFigures"), ("summary.json", "Summary")] {
        page.push_str(&format!("\n## {file}\n"));
        page.push_str(&book.tables(&[root], 3)?);
    }
    page.push_str(
        "\n## Figures\n\nA figure with a dot in its name is a key in an object: `rtt_ms.p95` is `p95` in `rtt_ms`. Claims and \
         plots use the name with the dot, of the link after `link.`.\n",
    );
    for (title, names, meanings) in [
        ("Figures of a flow", &metric::OF_FLOW[..], &meanings::OF_FLOW[..]),
        ("Figures of the link", &metric::OF_LINK[..], &meanings::OF_LINK[..]),
    ] {
        let rows: Vec<_> = meanings
            .iter()
            .map(|(name, meaning)| {
                let members = names.iter().filter(|it| family(it) == *name);
                let members: Vec<_> = members.map(|name| code(name)).collect();
                [members.join(", "), escape(meaning)]
            })
            .collect();
        page.push_str(&format!("\n### {title}\n"));
        page.push_str(&table(["figure", "meaning"], &rows));
    }
    page.push_str("\n## series.parquet\n\nA row for each flow and 100 ms.\n");
    page.push_str(&table(["column", "type", "meaning"], &columns(&book)?));
    Ok(page)
}

/// Of the schema, with the comments of the rows' fields.
fn columns(book: &TypeBook) -> Result<Vec<[String; 3]>> {
    let mut comments = book.comments("SeriesRow")?;
    comments.extend(book.comments("Screen")?);
    // The algorithm's name is no field of a row: it comes from the flow.
    comments.push((
        "cc",
        "Algorithm in use, of a tunnelled flow as its sender says ten times a second",
    ));
    let lines = series::SCHEMA.lines().filter_map(|line| line.trim().strip_suffix(';'));
    lines
        .map(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            let [presence, kind, name, ..] = words[..] else {
                anyhow::bail!("column {line:?} of the schema");
            };
            let known = comments.iter().find(|(key, _)| *key == name);
            let (_, meaning) = known.with_context(|| format!("no comment about {name}"))?;
            let kind =
                if presence == "optional" { format!("{kind}, optional") } else { kind.to_owned() };
            Ok([code(name), kind, escape(meaning)])
        })
        .collect()
}
