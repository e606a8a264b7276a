//! The claims as Markdown, for documents.

use std::fmt::Write as _;

use super::document::{Document, ReportedClaim};

/// A heading for each scenario with claims, and below it a table of them. In brackets: the 95 % bootstrap interval.
pub(super) fn text(document: &Document) -> String {
    let mut text = String::new();
    for figure in document.figures.iter().filter(|figure| !figure.claims.is_empty()) {
        // Writing to a string can't fail.
        let _ = writeln!(text, "### {}: {}\n", figure.id, figure.title);
        text.push_str("| claim | bound | measured | |\n|---|---|---|---|\n");
        for claim in &figure.claims {
            let (words, measured) = (cell(&claim.text), cell(&measured(claim)));
            let verdict = match claim.verdict.as_str() {
                "holds" => "holds".to_owned(),
                other => format!("**{other}**"),
            };
            let _ = writeln!(text, "| {words} | {} | {measured} | {verdict} |", cell(&claim.bound));
        }
        text.push('\n');
    }
    text
}

fn measured(claim: &ReportedClaim) -> String {
    let Some(value) = claim.measured else { return String::new() };
    let unit = if claim.unit.is_empty() { String::new() } else { format!(" {}", claim.unit) };
    let interval = match claim.spread {
        Some([low, high]) if low != high => format!(" [{low} to {high}]"),
        _ => String::new(),
    };
    let at = if claim.at.is_empty() { String::new() } else { format!(" ({})", claim.at) };
    format!("{value}{unit}{interval}{at}")
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::document::ScenarioFigure;

    #[test]
    fn each_claim_is_a_row_with_its_verdict() {
        let claim = |verdict: &str, measured| ReportedClaim {
            text: "a | b".to_owned(),
            source: None,
            metric: "throughput_mbps".to_owned(),
            bound: "at least 90".to_owned(),
            verdict: verdict.to_owned(),
            measured,
            spread: Some([90.5, 92.25]),
            unit: "Mbit/s",
            at: "bbr".to_owned(),
            reason: None,
            points: Vec::new(),
        };
        let figure = ScenarioFigure {
            id: "fig".to_owned(),
            title: "A figure".to_owned(),
            source: None,
            about: None,
            notes: Vec::new(),
            claims: vec![claim("holds", Some(91.5)), claim("not measured", None)],
            plots: Vec::new(),
            gallery: None,
            csv: None,
        };
        let figures = vec![figure];
        let document = Document { figures, ..Document::default() };
        let text = text(&document);
        assert!(text.starts_with("### fig: A figure\n\n"), "{text}");
        assert!(
            text.contains("| a \\| b | at least 90 | 91.5 Mbit/s [90.5 to 92.25] (bbr) | holds |"),
            "{text}"
        );
        assert!(text.contains("| at least 90 |  | **not measured** |"), "{text}");
    }
}
