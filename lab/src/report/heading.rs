//! The heading of the page: title, facts and warnings.

use std::collections::{BTreeMap, BTreeSet};

use time::OffsetDateTime;

use super::document::Fact;
use super::summary::{StoredStamp, StoredSummary};

/// The title of one scenario, or how many there are.
pub(super) fn title(summaries: &[&StoredSummary]) -> String {
    let of = |summary: &StoredSummary| {
        let scenario = &summary.scenario;
        scenario.title.clone().unwrap_or_else(|| scenario.name.clone())
    };
    let mut titles: Vec<String> = summaries.iter().map(|summary| of(summary)).collect();
    titles.sort_unstable();
    titles.dedup();
    match &titles[..] {
        [one] => one.clone(),
        all => format!("Results of {} scenarios", all.len()),
    }
}

/// What was run, with what, when and where.
pub(super) fn facts(summaries: &[&StoredSummary]) -> Vec<Fact> {
    let all = |of: fn(&StoredStamp) -> Option<String>| {
        let values: BTreeSet<_> = summaries.iter().filter_map(|s| of(&s.stamp)).collect();
        values.into_iter().collect::<Vec<_>>().join("; ")
    };
    let runs: u64 = summaries.iter().map(|summary| summary.counts.runs).sum();
    let machine = |stamp: &StoredStamp| {
        let cpus = stamp.cpus.map_or_else(String::new, |cpus| format!(", {cpus} CPUs"));
        Some(format!("{}{cpus}", stamp.architecture.clone()?))
    };
    let command = |stamp: &StoredStamp| match stamp.command.clone()? {
        serde_json::Value::Array(words) => {
            let words = words.iter().map(|word| word.as_str().unwrap_or_default());
            Some(words.collect::<Vec<_>>().join(" "))
        }
        other => other.as_str().map(str::to_owned),
    };
    let finished = summaries.iter().filter_map(|summary| summary.stamp.finished_unix_s);
    let date = finished.reduce(f64::max).and_then(date).unwrap_or_default();
    let mut taken: BTreeMap<String, u64> = BTreeMap::new();
    for (commit, runs) in summaries.iter().flat_map(|summary| &summary.reused) {
        *taken.entry(short(commit)).or_default() += runs;
    }
    let taken = taken.iter().map(|(commit, runs)| format!("{runs} of commit {commit}"));
    let facts = [
        ("Commit", all(|stamp| stamp.commit.as_deref().map(short))),
        ("Version", all(|stamp| stamp.version.clone())),
        ("Command", all(command)),
        ("Finished", date),
        ("Machine", all(machine)),
        ("Kernel", all(|stamp| stamp.kernel.clone())),
        ("Scenarios", summaries.len().to_string()),
        ("Runs", runs.to_string()),
        ("Of these run earlier", taken.collect::<Vec<_>>().join("; ")),
    ];
    let facts = facts.into_iter().filter(|(_, value)| !value.is_empty());
    facts.map(|(name, value)| Fact { name, value }).collect()
}

/// Twelve digits; with the `+` that stands for changes since.
pub(super) fn short(commit: &str) -> String {
    let changed = if commit.ends_with('+') { "+" } else { "" };
    format!("{:.12}{changed}", commit.trim_end_matches('+'))
}

fn date(unix_s: f64) -> Option<String> {
    // Whole seconds are enough, and in range for any clock that is nearly right.
    let at = OffsetDateTime::from_unix_timestamp(unix_s as i64).ok()?;
    let (month, minute) = (u8::from(at.month()), at.minute());
    Some(format!("{}-{month:02}-{:02} {:02}:{minute:02} UTC", at.year(), at.day(), at.hour()))
}

/// What a reader must know before believing a figure.
pub(super) fn warnings(summaries: &[&StoredSummary]) -> Vec<String> {
    let named = |wanted: fn(&StoredSummary) -> bool| {
        let names = summaries.iter().filter(|s| wanted(s)).map(|s| s.scenario.name.as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    let mut warnings = Vec::new();
    let quick = named(|summary| summary.quick.as_ref().is_some_and(|quick| !quick.is_null()));
    if !quick.is_empty() {
        warnings.push(format!("A quick run, shortened, proves nothing: {quick}."));
    }
    let commits = summaries.iter().flat_map(|s| s.stamp.commit.iter().chain(s.reused.keys()));
    let commits: BTreeSet<_> = commits.collect();
    if commits.len() > 1 {
        warnings.push("The results are of different commits.".to_owned());
    }
    let broken = named(|summary| summary.counts.failed > 0);
    if !broken.is_empty() {
        warnings.push(format!("Runs failed in {broken}."));
    }
    warnings
}
