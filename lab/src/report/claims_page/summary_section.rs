//! How many claims hold with which settings, and in words what differs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::claim_table::ClaimTable;

const VERDICTS: [&str; 6] =
    ["holds", "fails", "undecided", "not measured", "no such preset", "not run"];

/// A claim: its scenario and its number there.
type ClaimKey<'a> = (&'a str, usize);

pub(super) fn text(table: &ClaimTable) -> String {
    let claims = claims(table);
    let total = claims.len();
    let mut text = format!("\n## Summary\n\n{total} claims.\n\n");
    let used: Vec<&str> = VERDICTS
        .into_iter()
        .filter(|verdict| {
            each(table).any(|(column, row)| count(table, &claims, column, row, verdict) > 0)
        })
        .collect();
    let head = ["settings", "baselines"].into_iter().chain(used.iter().copied());
    let head: Vec<_> = head.collect();
    let _ = writeln!(text, "| {} |\n|{}", head.join(" | "), "---|".repeat(head.len()));
    for (column, row) in each(table) {
        let counts = used.iter().map(|it| count(table, &claims, column, row, it).to_string());
        let cells = [column.to_owned(), row.unwrap_or("default").to_owned()].into_iter();
        let cells: Vec<_> = cells.chain(counts).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    let _ = write!(text, "\n{}", differences(table, &claims));
    text
}

/// Columns and rows for which there are results.
fn each(table: &ClaimTable) -> impl Iterator<Item = (&str, Option<&str>)> {
    let rows = move |column| table.rows.iter().map(move |row| (column, row.as_deref()));
    let all = table.columns.iter().flat_map(move |column| rows(column.as_str()));
    all.filter(move |(column, row)| table.get(column, *row).is_some())
}

fn claims(table: &ClaimTable) -> Vec<ClaimKey<'_>> {
    let number = |name: &str| table.summaries(name).map(|it| it.claims.len()).max().unwrap_or(0);
    let all = table.scenarios().into_iter();
    all.flat_map(|name| (0..number(name)).map(move |claim| (name, claim))).collect()
}

fn count(
    table: &ClaimTable,
    claims: &[ClaimKey<'_>],
    column: &str,
    row: Option<&str>,
    verdict: &str,
) -> usize {
    let verdicts = claims.iter().filter(|(name, number)| {
        table.effective_cell(name, *number, column, row).verdict() == verdict
    });
    verdicts.count()
}

/// What each column has other than the last one, and each row of the last column other than the first.
fn differences(table: &ClaimTable, claims: &[ClaimKey<'_>]) -> String {
    let mut text = String::new();
    let Some((last, others)) = table.columns.split_last() else { return text };
    let last = last.as_str();
    let place = |column: &str, row: Option<&str>| match row {
        None => format!("**{column}**"),
        Some(row) => format!("**{column}** with the baselines *{row}*"),
    };
    let columns = others.iter().map(|other| (other.as_str(), None));
    let rows = table.rows.iter().flatten().map(|row| (last, Some(row.as_str())));
    for (column, row) in
        columns.chain(rows).filter(|(column, row)| table.get(column, *row).is_some())
    {
        let holds = |column: &str, row: Option<&str>, (name, number): ClaimKey<'_>| match table
            .effective_cell(name, number, column, row)
            .verdict()
        {
            "holds" => Some(true),
            "fails" | "undecided" => Some(false),
            _ => None,
        };
        let pairs =
            claims.iter().map(|key| (*key, holds(last, None, *key), holds(column, row, *key)));
        let (mut lost, mut gained, mut both) = (Vec::new(), Vec::new(), 0);
        for (key, by_default, here) in pairs {
            match (by_default, here) {
                (Some(true), Some(false)) => lost.push(key),
                (Some(false), Some(true)) => gained.push(key),
                (Some(_), Some(_)) => both += 1,
                _ => {}
            }
        }
        let compared = both + lost.len() + gained.len();
        let _ = writeln!(
            text,
            "- {}, {compared} claims that are judged here and by **{last}**: {} of them hold by **{last}** alone{}, {} here \
             alone{}.",
            place(column, row),
            lost.len(),
            listed(&lost),
            gained.len(),
            listed(&gained)
        );
    }
    text
}

/// ` (vivace-fig02: 2, vivace-fig05: 1)`.
fn listed(claims: &[ClaimKey<'_>]) -> String {
    let mut by_scenario: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, _) in claims {
        *by_scenario.entry(*name).or_default() += 1;
    }
    let words: Vec<_> = by_scenario.iter().map(|(name, n)| format!("{name}: {n}")).collect();
    if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) }
}
