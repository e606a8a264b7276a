//! Recorded links: packet-delivery opportunities (mahimahi) and piecewise constant throughput.

use std::path::Path;

use millrace_cc::Bandwidth;
use thiserror::Error;

/// A recording that repeats.
///
/// - *mahimahi*: each line is a millisecond at which [`OPPORTUNITY_BYTES`] may leave the queue; the
///   same millisecond repeats for more. Unused opportunities are lost. The last line's millisecond is
///   the period.
/// - *throughput*: lines of `seconds Mbit/s`, each in force until the next one's time. The last line
///   is in force for as long as the one before it. CSV is the same with commas, semicolons or tabs, and
///   may begin with a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateTrace {
    pub(crate) kind: TraceKind,
    /// Time after which it repeats.
    pub(crate) period_ns: u64,
}

/// Bytes that leave at one opportunity of a mahimahi trace.
pub const OPPORTUNITY_BYTES: u64 = 1500;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TraceKind {
    /// Times at which bytes may leave, ascending, and how many.
    Opportunities(Vec<(u64, u64)>),
    /// Times from which a rate in bit/s holds, ascending, the first being 0.
    Steps(Vec<(u64, u64)>),
}

/// A malformed line, or a file that can't be read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{file}:{line}: {problem}")]
pub struct TraceError {
    /// Name of the file as given.
    pub file: String,
    /// Line number from 1; 0 if the error is not about one line.
    pub line: usize,
    /// Description of the error.
    pub problem: String,
}

/// Latest time of a line, s: Unix times of today are below it.
const MAX_SECONDS: f64 = 1e10;
/// Longest recording: three years. With [`MAX_MBPS`] it bounds sums.
const MAX_SPAN_NS: u64 = 100_000_000_000_000_000;
/// Highest rate of a line.
const MAX_MBPS: f64 = 100_000.0;

impl RateTrace {
    /// Parses mahimahi's format; `file` is named in errors.
    ///
    /// # Errors
    /// The first line that is no whole number of milliseconds or lies before the one above it, or
    /// that there is no line, or that all are at 0.
    pub fn mahimahi(file: &str, text: &str) -> Result<Self, TraceError> {
        let fail = |line, problem: String| TraceError { file: file.to_owned(), line, problem };
        let mut moments: Vec<(u64, u64)> = Vec::new();
        for (line, content) in (1..).zip(text.lines()) {
            let milliseconds: u32 = content.trim().parse().map_err(|_| {
                let hint = match columns(content).len() {
                    2 => "; seconds and Mbit/s are trace_format = \"throughput\"",
                    _ => "",
                };
                fail(line, format!("{content:?} is no whole number of milliseconds{hint}"))
            })?;
            let at_ns = u64::from(milliseconds) * 1_000_000;
            match moments.last_mut() {
                Some((last_ns, _)) if *last_ns > at_ns => {
                    return Err(fail(line, format!("time goes back to {milliseconds} ms")));
                }
                Some((last_ns, bytes)) if *last_ns == at_ns => *bytes += OPPORTUNITY_BYTES,
                _ => moments.push((at_ns, OPPORTUNITY_BYTES)),
            }
        }
        match moments.last() {
            None => Err(fail(0, "the file is empty".to_owned())),
            Some((0, _)) => Err(fail(0, "all opportunities are at 0 ms".to_owned())),
            Some(&(period_ns, _)) => {
                Ok(Self { kind: TraceKind::Opportunities(moments), period_ns })
            }
        }
    }

    /// Parses lines of `seconds Mbit/s`, or CSV of these two columns; `file` is named in errors. Times count from the
    /// first line of numbers.
    ///
    /// # Errors
    /// The first line that is not two numbers, is negative or lies before the one above it, a header with
    /// another unit, or that there is no line, or that no line has a rate above zero.
    pub fn throughput(file: &str, text: &str) -> Result<Self, TraceError> {
        let fail = |line, problem: String| TraceError { file: file.to_owned(), line, problem };
        let mut steps: Vec<(u64, u64)> = Vec::new();
        let mut first_ns = None;
        // Spreadsheets begin their files with a byte order mark.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        for (line, content) in (1..).zip(text.lines()) {
            if line == 1 && is_header(content) {
                check_header(content).map_err(|problem| fail(line, problem))?;
                continue;
            }
            let (at_ns, rate_bps) = step(content).map_err(|problem| fail(line, problem))?;
            let at_ns = at_ns
                .checked_sub(*first_ns.get_or_insert(at_ns))
                .filter(|at_ns| steps.last().is_none_or(|(last_ns, _)| last_ns <= at_ns))
                .ok_or_else(|| fail(line, format!("time goes back: {content:?}")))?;
            if at_ns > MAX_SPAN_NS {
                return Err(fail(line, format!("too long: {content:?} is years after line 1")));
            }
            match steps.last_mut() {
                Some(last) if last.0 == at_ns => last.1 = rate_bps,
                _ => steps.push((at_ns, rate_bps)),
            }
        }
        let Some(&(last_ns, _)) = steps.last() else {
            return Err(fail(0, "the file is empty".to_owned()));
        };
        let before_ns = steps.iter().rev().nth(1).map(|(at_ns, _)| *at_ns);
        let period_ns = last_ns + before_ns.map_or(1_000_000_000, |before| last_ns - before);
        let trace = Self { kind: TraceKind::Steps(steps), period_ns };
        if trace.is_dead() {
            return Err(fail(0, "no line has a rate above zero".to_owned()));
        }
        Ok(trace)
    }

    /// Reads a file in mahimahi's format.
    ///
    /// # Errors
    /// As [`RateTrace::mahimahi`], or when the file can't be read.
    pub fn mahimahi_file(path: &Path) -> Result<Self, TraceError> {
        Self::mahimahi(&path.display().to_string(), &read(path)?)
    }

    /// Reads a file of `seconds Mbit/s` lines.
    ///
    /// # Errors
    /// As [`RateTrace::throughput`], or when the file can't be read.
    pub fn throughput_file(path: &Path) -> Result<Self, TraceError> {
        Self::throughput(&path.display().to_string(), &read(path)?)
    }

    /// Its mean rate over a period.
    #[must_use]
    pub fn mean_rate(&self) -> Bandwidth {
        let period_s = self.period_ns as f64 / 1e9;
        let bits: f64 = match &self.kind {
            TraceKind::Opportunities(opportunities) => {
                opportunities.iter().map(|(_, bytes)| *bytes as f64 * 8.0).sum()
            }
            TraceKind::Steps(steps) => {
                let ends = steps.iter().skip(1).map(|(at, _)| *at).chain([self.period_ns]);
                let span = |((from, rate_bps), to): (&(u64, u64), u64)| {
                    *rate_bps as f64 * (to.saturating_sub(*from)) as f64 / 1e9
                };
                steps.iter().zip(ends).map(span).sum()
            }
        };
        Bandwidth::from_mbps(bits / period_s / 1e6)
    }

    fn is_dead(&self) -> bool {
        match &self.kind {
            TraceKind::Opportunities(_) => false,
            TraceKind::Steps(steps) => steps.iter().all(|(_, rate_bps)| *rate_bps == 0),
        }
    }
}

fn read(path: &Path) -> Result<String, TraceError> {
    std::fs::read_to_string(path).map_err(|error| TraceError {
        file: path.display().to_string(),
        line: 0,
        problem: error.to_string(),
    })
}

/// The columns of a line: of CSV those between its separators, else the words.
fn columns(content: &str) -> Vec<&str> {
    let between = |separator| content.split(separator).map(|it: &str| it.trim().trim_matches('"'));
    match content.chars().find(|it| [',', ';', '\t'].contains(it)) {
        // Tabs may align columns.
        Some('\t') => between('\t').filter(|it| !it.is_empty()).collect(),
        Some(separator) => between(separator).collect(),
        None => content.split_whitespace().collect(),
    }
}

/// Whether a line is the header of CSV: a name, and no number, in each column.
fn is_header(content: &str) -> bool {
    let columns = columns(content);
    let is_name =
        |it: &&str| it.starts_with(|c: char| c.is_ascii_alphabetic()) && it.parse::<f64>().is_err();
    columns.len() > 1 && columns.iter().all(is_name)
}

/// # Errors
/// The header has other columns, or names a unit that is not ours.
fn check_header(content: &str) -> Result<(), String> {
    let columns = columns(content);
    let [time, rate] = columns[..] else {
        let count = columns.len();
        return Err(format!("{content:?} names {count} columns, expected 2: seconds and Mbit/s"));
    };
    let has = |name: &str, units: &[&str]| {
        let name = name.to_ascii_lowercase();
        let mut words = name.split(|c: char| !c.is_ascii_alphanumeric() && c != '/');
        words.any(|word| units.contains(&word))
    };
    if has(time, &OTHER_TIMES) {
        return Err(format!("the header says {time:?}, expected seconds in the first column"));
    }
    if has(rate, &OTHER_RATES) {
        return Err(format!("the header says {rate:?}, expected Mbit/s in the second column"));
    }
    Ok(())
}

/// Units of time in headers that are not seconds.
const OTHER_TIMES: [&str; 7] =
    ["ms", "msec", "millis", "milliseconds", "us", "microseconds", "minutes"];
/// Units of rate in headers that are not Mbit/s.
const OTHER_RATES: [&str; 12] = [
    "bps", "bit/s", "bits", "kbps", "kbit/s", "kbit", "kb/s", "gbps", "gbit/s", "bytes", "b/s",
    "mbyte/s",
];

/// Nanoseconds and bit/s of a throughput line.
fn step(content: &str) -> Result<(u64, u64), String> {
    let [seconds, mbps] = columns(content)[..] else {
        return Err(format!("{content:?} is not \"seconds Mbit/s\""));
    };
    let number = |word: &str, most: f64| match word.parse::<f64>() {
        Ok(value) if (0.0..=most).contains(&value) => Ok(value),
        Ok(value) => Err(format!("{value} is out of range: allowed are 0 to {most}")),
        Err(_) => Err(format!("{word:?} is no number")),
    };
    let (seconds, mbps) = (number(seconds, MAX_SECONDS)?, number(mbps, MAX_MBPS)?);
    // Both fit: 10^19 ns and 10^11 bit/s.
    Ok(((seconds * 1e9).round() as u64, (mbps * 1e6).round() as u64))
}
