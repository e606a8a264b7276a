//! A line of comma-separated values for each run.

use super::record::{CounterReading, SweepRun};
use crate::cpu::Seconds;

/// Roles that have columns.
const ROLES: [&str; 3] = ["client", "server", "proxy"];
const COST_ROLES: [&str; 5] = ["client", "server", "proxy", "load", "softirq_threads"];

/// The header and a line for each run. What could not be had is empty; the JSON file has the reason.
pub fn lines(runs: &[SweepRun]) -> String {
    let mut text = String::new();
    for (index, run) in runs.iter().enumerate() {
        let columns = columns(run);
        if index == 0 {
            let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
            text += &(names.join(",") + "\n");
        }
        let values: Vec<&str> = columns.iter().map(|(_, value)| value.as_str()).collect();
        text += &(values.join(",") + "\n");
    }
    text
}

fn columns(run: &SweepRun) -> Vec<(String, String)> {
    let figures = run.figures.as_ref();
    let mut columns = vec![
        ("round".to_owned(), run.round.to_string()),
        ("load".to_owned(), run.point.load.to_string()),
        ("connections".to_owned(), run.point.connections.to_string()),
        ("way".to_owned(), quoted(&run.point.way.to_string())),
        ("up".to_owned(), run.up.to_string()),
        ("ended".to_owned(), run.ended.to_string()),
        ("complete".to_owned(), run.is_complete().to_string()),
        ("valid".to_owned(), run.is_valid().to_string()),
    ];
    let mut add = |name: &str, value: Option<f64>| {
        let shown = value.map_or_else(String::new, |value| value.to_string());
        columns.push((name.to_owned(), shown));
    };
    let counted = |reading: Option<&CounterReading>| reading.and_then(|it| it.value);
    add("gbps", figures.map(|it| it.gbps));
    add("cpu_s_per_gb", figures.map(|it| it.cpu_s_per_gb));
    for role in COST_ROLES {
        let part: Option<Seconds> = figures.and_then(|it| it.parts_s_per_gb.get(role)).copied();
        add(&format!("{role}_user_s_per_gb"), part.map(|it| it.user_s));
        add(&format!("{role}_system_s_per_gb"), part.map(|it| it.system_s));
    }
    add("busy_cores", figures.map(|it| it.busy_cores()));
    add("packets_per_gb", counted(figures.map(|it| &it.packets.packets_per_gb)));
    add("packets_per_message", counted(figures.map(|it| &it.packets.packets_per_message)));
    add("acks_per_data_packet", counted(figures.map(|it| &it.packets.acks_per_data_packet)));
    for role in ROLES {
        let calls = figures.and_then(|it| it.extras.calls_per_gb.get(role));
        add(&format!("{role}_calls_per_gb"), counted(calls));
    }
    add("pacing_p99_us", counted(figures.map(|it| &it.extras.pacing_p99_us)));
    add("pacing_rate_error", counted(figures.map(|it| &it.extras.pacing_rate_error)));
    for role in ROLES {
        let memory = figures.and_then(|it| it.memory.get(role));
        add(&format!("{role}_opened_bytes"), memory.map(|it| it.opened_bytes));
        add(&format!("{role}_loaded_bytes"), memory.map(|it| it.loaded_bytes));
    }
    let segments = figures.and_then(|it| it.segments);
    add("segments", segments.map(|it| it.segments as f64));
    add("late_segments", segments.map(|it| it.late as f64));
    add("segment_p99_ms", segments.map(|it| it.p99_ms));
    add("fairness", figures.map(|it| it.fairness));
    add("others", figures.map(|it| it.others));
    add("steal", figures.map(|it| it.steal));
    columns.push(("remarks".to_owned(), quoted(&run.remarks().join("; "))));
    columns
}

/// RFC 4180, Section 2.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::plan::SweepWay;
    use crate::connections::record::samples;

    #[test]
    fn every_line_has_the_columns_of_the_header() {
        let mut failed = samples::run(1, SweepWay::Direct, 1.0, 1.0);
        failed.figures = None;
        failed.failure = Some("ended: exit status: 1".to_owned());
        let runs = [samples::run(1, SweepWay::PerFlow, 1.5, 9.25), failed];
        let text = lines(&runs);
        let counts: Vec<usize> = text.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(counts.len(), 3);
        assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}\n{text}");
        assert!(
            text.lines().nth(1).unwrap().starts_with("1,bulk,8,per_flow,8,0,true,true,1.5,9.25,")
        );
        assert!(text.ends_with("FAILED: ended: exit status: 1\n"));
    }

    #[test]
    fn commas_and_quotes_are_quoted() {
        assert_eq!(quoted("a, \"b\""), "\"a, \"\"b\"\"\"");
        assert_eq!(quoted("plain"), "plain");
    }
}
