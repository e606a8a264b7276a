//! Several results of the same scenarios, as columns and rows.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};

use crate::report::Labelled;
use crate::report::summary::{self, StoredSummary};

/// The results of one directory, by scenario.
#[derive(Debug)]
pub(super) struct ClaimResults {
    pub(super) column: String,
    /// `None` for the first row.
    pub(super) row: Option<String>,
    pub(super) summaries: BTreeMap<String, StoredSummary>,
}

/// All results, with the columns and rows in the order in which they were given.
#[derive(Debug)]
pub(super) struct ClaimTable {
    pub(super) results: Vec<ClaimResults>,
    pub(super) columns: Vec<String>,
    /// The first is that of results without a row.
    pub(super) rows: Vec<Option<String>>,
}

impl ClaimTable {
    /// # Errors
    /// When results can't be read, are labelled alike, or a row has a column without a first row.
    pub(super) fn read(labelled: &[Labelled]) -> Result<Self> {
        let mut table = Self { results: Vec::new(), columns: Vec::new(), rows: vec![None] };
        for Labelled { label, directory } in labelled {
            let (column, row) = match label.split_once('/') {
                Some((column, row)) => (column.to_owned(), Some(row.to_owned())),
                None => (label.clone(), None),
            };
            if table.results.iter().any(|it| it.column == column && it.row == row) {
                bail!("two results are called {label:?}");
            }
            if !table.columns.contains(&column) {
                if row.is_some() {
                    bail!("{label:?}: results labelled {column:?} alone come first");
                }
                table.columns.push(column.clone());
            }
            if !table.rows.contains(&row) {
                table.rows.push(row.clone());
            }
            let summaries = summary::read_all(directory)?.into_iter();
            let summaries = summaries.map(|it| (it.scenario.name.clone(), it)).collect();
            table.results.push(ClaimResults { column, row, summaries });
        }
        Ok(table)
    }

    pub(super) fn get(&self, column: &str, row: Option<&str>) -> Option<&ClaimResults> {
        self.results.iter().find(|it| it.column == column && it.row.as_deref() == row)
    }

    /// The results of a scenario in a column and a row.
    pub(super) fn summary(
        &self,
        name: &str,
        column: &str,
        row: Option<&str>,
    ) -> Option<&StoredSummary> {
        self.get(column, row)?.summaries.get(name)
    }

    /// The summaries of a scenario, in the order of the results.
    pub(super) fn summaries<'a>(
        &'a self,
        name: &'a str,
    ) -> impl Iterator<Item = &'a StoredSummary> {
        self.results.iter().filter_map(move |results| results.summaries.get(name))
    }

    /// The scenarios that have claims.
    pub(super) fn scenarios(&self) -> BTreeSet<&str> {
        let all = self.results.iter().flat_map(|results| &results.summaries);
        let claimed = all.filter(|(_, summary)| !summary.claims.is_empty());
        claimed.map(|(name, _)| name.as_str()).collect()
    }
}

/// For a cell of a table.
pub(super) fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
