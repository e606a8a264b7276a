//! The rows of one claim: for each row of the table, what each column has.

use super::claim_table::ClaimTable;
use crate::report::claims;
use crate::report::document::ReportedClaim;
use crate::report::summary::{StoredClaim, StoredSummary};
use crate::report::units::shown;
use crate::scenario::AlgorithmPreset;

/// What a column has for a claim in a row.
#[derive(Debug)]
pub(super) enum ClaimCell<'a> {
    /// The claim as judged.
    Judged(&'a StoredSummary, &'a StoredClaim),
    /// No algorithm of the scenario has the column's preset.
    NoPreset,
    /// There are no such results.
    NotRun,
}

impl ClaimTable {
    /// What a column has for the claim of this number.
    pub(super) fn cell(
        &self,
        name: &str,
        number: usize,
        column: &str,
        row: Option<&str>,
    ) -> ClaimCell<'_> {
        if let Some(summary) = self.summary(name, column, row)
            && let Some(claim) = summary.claims.get(number)
        {
            return ClaimCell::Judged(summary, claim);
        }
        match self.missing_preset(name, column) {
            Some(_) => ClaimCell::NoPreset,
            None => ClaimCell::NotRun,
        }
    }

    /// The preset that a column was run with, if no algorithm of the scenario has it.
    pub(super) fn missing_preset(&self, name: &str, column: &str) -> Option<AlgorithmPreset> {
        self.preset(column).filter(|preset| !self.has_preset(name, *preset))
    }

    /// The cell that counts for a row: the first row's where the row changes nothing.
    pub(super) fn effective_cell(
        &self,
        name: &str,
        number: usize,
        column: &str,
        row: Option<&str>,
    ) -> ClaimCell<'_> {
        match self.cell(name, number, column, row) {
            found @ ClaimCell::Judged(..) => found,
            _ => self.cell(name, number, column, None),
        }
    }

    /// The rows of a claim: the first, and each that has another value than the one before it, in some column.
    pub(super) fn rows_of(&self, name: &str, number: usize) -> Vec<Option<&str>> {
        let mut shown: Vec<Option<&str>> = vec![None];
        for row in self.rows.iter().filter_map(|row| row.as_deref()) {
            let before = shown[shown.len() - 1];
            let differs = |column: &String| {
                let changed = self.cell(name, number, column, Some(row));
                match (changed, self.effective_cell(name, number, column, before)) {
                    (ClaimCell::Judged(_, changed), ClaimCell::Judged(_, before)) => {
                        changed.points != before.points
                    }
                    _ => false,
                }
            };
            if self.columns.iter().any(differs) {
                shown.push(Some(row));
            }
        }
        shown
    }

    /// The preset that the results of a column were run with.
    fn preset(&self, column: &str) -> Option<AlgorithmPreset> {
        let results = self.get(column, None)?;
        let names = results.summaries.values().map(|it| it.scenario.variant.preset.as_deref());
        names.flatten().find_map(AlgorithmPreset::named)
    }

    fn has_preset(&self, name: &str, preset: AlgorithmPreset) -> bool {
        let cells = self.summaries(name).flat_map(|summary| &summary.cells);
        cells.flat_map(|cell| &cell.groups).any(|group| preset.is_of(&group.cc))
    }
}

impl ClaimCell<'_> {
    /// Its verdict.
    pub(super) fn verdict(&self) -> &str {
        match self {
            Self::Judged(_, claim) => &claim.verdict,
            Self::NoPreset => "no such preset",
            Self::NotRun => "not run",
        }
    }

    /// Verdict, value, interval and place.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Judged(summary, claim) => judged(&claims::of(summary, claim)),
            Self::NoPreset => "–".to_owned(),
            Self::NotRun => "not run".to_owned(),
        }
    }
}

fn judged(claim: &ReportedClaim) -> String {
    let verdict = match claim.verdict.as_str() {
        "holds" => "holds".to_owned(),
        other => format!("**{other}**"),
    };
    // A time that never came has no number.
    let number = |value: f64| shown(value, "");
    let value = match claim.measured {
        Some(value) => shown(value, claim.unit),
        None if claim.verdict == "not measured" => return verdict,
        None => "never".to_owned(),
    };
    let interval = match claim.spread.map(|ends| ends.map(number)) {
        Some([low, high]) if low != high => format!(" [{low} to {high}]"),
        _ => String::new(),
    };
    let at = if claim.at.is_empty() { String::new() } else { format!(" ({})", claim.at) };
    format!("{verdict} {value}{interval}{at}")
}
