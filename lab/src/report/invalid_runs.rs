//! The figures of invalid runs, which count nowhere else.

use super::document::ReportTable;
use super::gallery::place;
use super::summary::{StoredInvalidRun, StoredPart, StoredSummary};
use super::units::{quantity, shown};

/// Figures of a run that are shown, in the order of the columns.
const FIGURES: [&str; 7] = [
    "goodput_mbps",
    "throughput_mbps",
    "loss_rate",
    "queueing_ms.p95",
    "bitrate_kbps",
    "rebuffer_ratio",
    "psnr_db",
];

/// A row for each algorithm of each invalid run; `None` without invalid runs. `label` is that of the results where
/// there are several.
pub(super) fn table(summary: &StoredSummary, label: Option<&str>) -> Option<ReportTable> {
    let parts: Vec<_> = summary
        .invalid_runs
        .iter()
        .flat_map(|run| run.cell.groups.iter().map(move |part| (run, part)))
        .collect();
    if parts.is_empty() {
        return None;
    }
    let has = |name: &&str| parts.iter().any(|(_, part)| part.figures.contains_key(*name));
    let figures: Vec<&str> = FIGURES.iter().copied().filter(has).collect();
    let mut columns = vec!["Run".to_owned(), "Algorithm".to_owned(), "At".to_owned()];
    columns.extend(figures.iter().map(|name| {
        let of = quantity(name);
        if of.unit.is_empty() { of.name } else { format!("{}, {}", of.name, of.unit) }
    }));
    columns.push("Invalid because".to_owned());
    let row = |(run, part): &(&StoredInvalidRun, &StoredPart)| {
        let name = run.cell.runs.first().and_then(|name| name.as_str()).unwrap_or_default();
        let mut row = vec![name.to_owned(), part.label.clone(), place(&run.cell)];
        row.extend(figures.iter().map(|name| words(part, name)));
        row.push(run.because.join("; "));
        row
    };
    let rows = parts.iter().map(row).collect();
    let of = label.map_or_else(String::new, |label| format!(" of {label}"));
    let title = format!("Invalid runs{of}: in no claim and no plot");
    Some(ReportTable { title: Some(title), columns, rows })
}

fn words(part: &StoredPart, name: &str) -> String {
    let Some(found) = part.figures.get(name) else { return "–".to_owned() };
    found.median.map_or_else(|| "never".to_owned(), |it| shown(it * quantity(name).scale, ""))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_invalid_run_is_a_row_with_its_reasons() {
        let figures = json!({ "goodput_mbps": { "median": 4.5 }, "loss_rate": { "median": 0.02 } });
        let part =
            json!({ "group": 0, "cc": "bbr", "label": "bbr", "count": 1, "figures": figures });
        let of = |invalid| {
            let head = json!({ "format": 1, "scenario": { "name": "a" }, "invalid_runs": invalid });
            serde_json::from_value::<StoredSummary>(head).unwrap()
        };
        assert_eq!(table(&of(json!([])), None), None);
        let run = json!({
            "cell": 1, "at": { "link.loss": 0.01 }, "runs": ["0001-r00"], "groups": [part],
            "because": ["the machine was busy", "a late release"],
        });
        let table = table(&of(json!([run])), Some("emu")).unwrap();
        assert_eq!(table.title.unwrap(), "Invalid runs of emu: in no claim and no plot");
        assert_eq!(table.columns[3..], ["Goodput, Mbit/s", "Loss, %", "Invalid because"]);
        let row = [
            "0001-r00",
            "bbr",
            "random loss 1 %",
            "4.5",
            "2",
            "the machine was busy; a late release",
        ];
        assert_eq!(table.rows, [row.map(str::to_owned)]);
    }
}
