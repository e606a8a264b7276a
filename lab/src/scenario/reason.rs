//! Why a claim fails: a text that refers to measured values instead of quoting them, so that it can't go stale.

use super::filter::{self, Where};
use super::reader::TableReader;
use super::tree::{ScenarioResult, ScenarioText};
use crate::results::metric;

/// Between a figure and the cells and flows that are meant.
const WHERE: &str = " where ";
/// Before what is no measurement of the scenario.
const FIXED: &str = "fixed ";

/// A text with references.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimReason(pub Vec<ReasonPart>);

/// A part of a reason.
#[derive(Debug, Clone, PartialEq)]
pub enum ReasonPart {
    /// Words.
    Text(String),
    /// `{fixed 16.7 Mbit/s}`: a number that the scenario does not measure, such as the paper's.
    Fixed(String),
    /// `{value}`: what decides on the claim.
    Value,
    /// `{loss_rate where cc = 'bbr'}`: a figure of the same results.
    Figure {
        /// Which.
        metric: String,
        /// Of which cells and flows.
        filter: Where,
    },
}

impl ClaimReason {
    /// The words that quote a number where a reference belongs.
    pub fn literal_numbers(&self) -> impl Iterator<Item = &str> {
        let words = self.0.iter().flat_map(|part| match part {
            ReasonPart::Text(text) => text.split_whitespace().collect::<Vec<_>>(),
            _ => Vec::new(),
        });
        // `live555` is a name.
        let first =
            |word: &str| word.trim_start_matches(|c: char| !c.is_alphanumeric()).chars().next();
        words.filter(move |word| first(word).is_some_and(|c| c.is_ascii_digit()))
    }
}

/// The value of `reason`.
pub(super) fn read(
    reader: &mut TableReader<'_>,
    keys: &[String],
) -> ScenarioResult<Option<ClaimReason>> {
    let Some(text) = reader.maybe_text("reason")? else { return Ok(None) };
    let mut parts = Vec::new();
    let mut rest = text.as_str();
    while let Some((words, after)) = rest.split_once('{') {
        let Some((inside, after)) = after.split_once('}') else {
            return Err(reader.error("reason", format!("no }} after {{{after}")));
        };
        parts.push(ReasonPart::Text(words.to_owned()));
        parts.push(reference(inside.trim(), keys).map_err(|problem| {
            reader.error("reason", format!("{{{}}}: {problem}", inside.trim()))
        })?);
        rest = after;
    }
    if rest.contains('}') {
        return Err(reader.error("reason", format!("no {{ before the }} in {rest:?}")));
    }
    parts.push(ReasonPart::Text(rest.to_owned()));
    parts.retain(|part| !matches!(part, ReasonPart::Text(text) if text.is_empty()));
    Ok(Some(ClaimReason(parts)))
}

fn reference(inside: &str, keys: &[String]) -> Result<ReasonPart, String> {
    if inside == "value" {
        return Ok(ReasonPart::Value);
    }
    if let Some(fixed) = inside.strip_prefix(FIXED) {
        return Ok(ReasonPart::Fixed(fixed.trim().to_owned()));
    }
    let (name, tests) = inside.split_once(WHERE).unwrap_or((inside, ""));
    if !metric::is_known(name) {
        return Err("expected value, `fixed TEXT`, or `FIGURE where KEY = VALUE`".to_owned());
    }
    let filter = filter(tests, keys)?;
    Ok(ReasonPart::Figure { metric: name.to_owned(), filter })
}

/// The tests, as in a claim's `where`.
fn filter(tests: &str, keys: &[String]) -> Result<Where, String> {
    let table = format!("where = {{ {tests} }}");
    let text = ScenarioText { file: std::path::Path::new(""), text: &table, keys: None };
    let read = || filter::filter(&mut TableReader::new(&text, "", &text.parse()?)?, keys);
    read().map_err(|error| error.problem)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::scenario::ScenarioFile;

    fn reason(text: &str) -> Result<ClaimReason, String> {
        let text = format!(
            "name = \"a\"\ntitle = \"A\"\nduration_s = 10\n\
             link = {{ rate_mbps = 1, rtt_ms = 10, buffer_bytes = 15000 }}\n[sweep]\n\"link.loss\" = [0, 0.01]\n\
             [[flow]]\ncc = \"cubic\"\n[[claim]]\ntext = \"a\"\nmetric = \"loss_rate\"\nat_most = 1\n\
             reason = \"{text}\"\n"
        );
        let file = ScenarioFile::parse(&text, Path::new("a")).map_err(|error| error.to_string())?;
        Ok(file.claims[0].reason.clone().unwrap())
    }

    #[test]
    fn references_stand_between_words() {
        let reason = reason(
            "It has {value}, {fixed 5} in the paper; {loss_rate where cc = 'cubic', 'link.loss' = 0.01} elsewhere",
        )
        .unwrap();
        let kinds: Vec<_> = reason.0.iter().map(std::mem::discriminant).collect();
        assert_eq!(kinds.len(), 7);
        assert_eq!(reason.0[1], ReasonPart::Value);
        assert_eq!(reason.0[3], ReasonPart::Fixed("5".to_owned()));
        let ReasonPart::Figure { metric, filter } = &reason.0[5] else { panic!("{reason:?}") };
        assert_eq!((metric.as_str(), filter.0.len()), ("loss_rate", 2));
        assert_eq!(reason.literal_numbers().count(), 0);
    }

    #[test]
    fn numbers_outside_of_references_are_found() {
        let reason = reason("It has 5 % (-9) and {fixed 7}, with live555.").unwrap();
        assert_eq!(reason.literal_numbers().collect::<Vec<_>>(), ["5", "(-9)"]);
    }

    #[test]
    fn references_to_nothing_are_refused() {
        for (text, problem) in [
            ("{valeu}", "expected value"),
            ("{loss_rate where 'link.los' = 1}", "is not swept here"),
            ("{loss_rate where cc}", "{loss_rate where cc}"),
            ("{value", "no } after"),
            ("value}", "no { before"),
        ] {
            let error = reason(text).unwrap_err();
            assert!(error.contains("claim[0].reason") && error.contains(problem), "{error}");
        }
    }
}
