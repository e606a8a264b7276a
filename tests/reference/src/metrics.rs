//! The metrics that a process registers.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result};
use millrace_config::Log;
use millrace_enrolment::OpenInvitations;
use millrace_ops::logging;
use millrace_tunnel::metrics::Metrics;

use crate::markdown::{code, head, table};
use crate::source::{LabelEnum, label_enums};

/// Name of a server that stands for any.
const SERVER: &str = "server-1";
/// Labels whose values differ from process to process.
const VARIABLE: [(&str, &str); 3] = [
    ("server", "address of the server, as the configuration has it"),
    ("program", "`millrace-client` or `millrace-server`"),
    ("version", "version of the program"),
];

/// A family of series.
#[derive(Default)]
struct MetricFamily {
    name: String,
    kind: String,
    help: String,
    /// Each label with its values, in the order of the samples.
    labels: BTreeMap<String, Vec<String>>,
}

pub(crate) fn page() -> Result<String> {
    let families = parse(&registered()?);
    let known = label_enums()?;
    let mut page = head("Metrics", "the families that the programs register");
    page.push_str(
        "\n`GET /metrics` of the admin listener has them in the text format of Prometheus. Both programs have all series from \
         their start, at 0; some never count at one of the two ends. [Monitoring](../operate/monitoring.md) has the \
         set-up, alerts and a dashboard, and [Metrics](../operate/operations.md#metrics) what the help text can't say.\n",
    );
    let rows: Vec<_> = families
        .iter()
        .map(|family| {
            let labels: Vec<_> = family.labels.keys().map(|label| code(label)).collect();
            [code(&family.name), family.kind.clone(), labels.join(", "), family.help.clone()]
        })
        .collect();
    page.push_str(&table(["series", "type", "labels", "meaning"], &rows));
    page.push_str("\n## Labels\n");
    let variable: Vec<_> =
        VARIABLE.iter().map(|(label, meaning)| [code(label), (*meaning).to_owned()]).collect();
    page.push_str(&table(["label", "value"], &variable));
    for family in &families {
        for (label, values) in &family.labels {
            if VARIABLE.iter().any(|(variable, _)| variable == label) {
                continue;
            }
            page.push_str(&format!("\n### {} by {label}\n", family.name));
            let rows: Vec<_> = values
                .iter()
                .map(|value| [code(value), meaning(&known, values, value).unwrap_or_default()])
                .collect();
            page.push_str(&table([label, "meaning"], &rows));
        }
    }
    Ok(page)
}

/// Of an enum that has all of the values.
fn meaning(known: &[LabelEnum], values: &[String], value: &str) -> Option<String> {
    let has = |it: &&LabelEnum, value: &str| it.values.iter().any(|(known, _)| known == value);
    let of = known.iter().find(|it| values.iter().all(|value| has(it, value)))?;
    of.values.iter().find(|(known, _)| known == value).map(|(_, meaning)| meaning.clone())
}

/// The text of a process with a server, rules and a log.
fn registered() -> Result<String> {
    let metrics = Metrics::new("millrace-client", "0")?;
    let _servers = metrics.servers(&[SERVER.to_owned()])?;
    metrics.watch_selector(Arc::default());
    metrics.register(Box::new(OpenInvitations::new(None)?))?;
    // A second page of the same process has its log already.
    static LOGGING: std::sync::OnceLock<Option<logging::Logging>> = std::sync::OnceLock::new();
    let logging = LOGGING.get_or_init(|| logging::init(&Log::default()).ok());
    logging.as_ref().context("the log was started before")?.show_in(&metrics)?;
    Ok(metrics.render()?)
}

fn parse(text: &str) -> Vec<MetricFamily> {
    let mut families: Vec<MetricFamily> = Vec::new();
    for line in text.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|it| it.split_once(' ')) {
            let (name, help) = (name.to_owned(), help.to_owned());
            families.push(MetricFamily { name, help, ..MetricFamily::default() });
            continue;
        }
        let Some(family) = families.last_mut() else { continue };
        if let Some((_, kind)) = line.strip_prefix("# TYPE ").and_then(|it| it.split_once(' ')) {
            family.kind = kind.to_owned();
        } else if let Some((_, rest)) = line.split_once('{') {
            let labels = rest.split_once('}').map_or("", |(labels, _)| labels);
            for pair in labels.split(',').filter(|pair| !pair.is_empty()) {
                let (label, value) = pair.split_once('=').unwrap_or((pair, ""));
                // The bounds of a histogram are no label to select by.
                if label != "le" {
                    let values = family.labels.entry(label.to_owned()).or_default();
                    let value = value.trim_matches('"').to_owned();
                    if !values.contains(&value) {
                        values.push(value);
                    }
                }
            }
        }
    }
    families.sort_by(|one, other| one.name.cmp(&other.name));
    families
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_read_from_the_text_of_a_process() {
        let text = "# HELP a_total What it is\n# TYPE a_total counter\na_total{reason=\"x\"} 0\na_total{reason=\"y\"} 0\n";
        let families = parse(text);
        assert_eq!(
            (families[0].kind.as_str(), families[0].help.as_str()),
            ("counter", "What it is")
        );
        assert_eq!(families[0].labels["reason"], ["x", "y"]);
    }
}
