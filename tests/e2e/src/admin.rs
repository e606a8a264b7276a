//! The admin listener, read back.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;

use crate::tcp;

/// Fetches `path` and answers status and body.
///
/// # Errors
/// When the connection is refused or the answer is not HTTP.
pub fn get(from: SocketAddr, path: &str) -> io::Result<(u16, String)> {
    request(from, "GET", path)
}

/// The same with another method.
///
/// # Errors
/// When the connection is refused or the answer is not HTTP.
pub fn request(from: SocketAddr, method: &str, path: &str) -> io::Result<(u16, String)> {
    let mut socket = tcp::connect_within(from, Duration::from_secs(5))?;
    write!(socket, "{method} {path} HTTP/1.1\r\nHost: {from}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .ok_or_else(|| io::Error::other(format!("no HTTP answer: {answer:?}")))?;
    Ok((crate::listeners::status_of(head), body.to_owned()))
}

/// One sample of `/metrics`.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The sample's name, which for histograms ends in `_bucket`, `_sum` or `_count`.
    pub name: String,
    /// Labels with their values.
    pub labels: BTreeMap<String, String>,
    /// Its value.
    pub value: f64,
}

/// Everything at `/metrics` at one moment.
#[derive(Clone, Debug, Default)]
pub struct Metrics(pub Vec<Sample>);

impl Metrics {
    /// Fetches them.
    ///
    /// # Panics
    /// When they can't be fetched or are not in the Prometheus text format.
    #[must_use]
    pub fn fetch(from: SocketAddr) -> Self {
        let (status, body) = get(from, "/metrics").unwrap_or_else(|e| panic!("/metrics: {e}"));
        assert_eq!(status, 200, "/metrics: {body}");
        Self::parse(&body).unwrap_or_else(|error| panic!("/metrics: {error}\n{body}"))
    }

    /// Reads the Prometheus text format (version 0.0.4): each sample belongs to a family with a
    /// TYPE line above it, names and labels have the allowed characters, values are numbers.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut kinds: BTreeMap<&str, &str> = BTreeMap::new();
        let mut samples = Vec::new();
        if !text.ends_with('\n') {
            return Err("the last line does not end with a line feed".to_owned());
        }
        for line in text.lines().filter(|line| !line.is_empty()) {
            let wrong = |why: &str| Err(format!("{why}: {line}"));
            if let Some(kind) = line.strip_prefix("# TYPE ") {
                let Some((family, kind)) = kind.split_once(' ') else { return wrong("no type") };
                if !["counter", "gauge", "histogram", "summary", "untyped"].contains(&kind) {
                    return wrong("unknown type");
                }
                if kinds.insert(family, kind).is_some() {
                    return wrong("second TYPE of a family");
                }
            } else if !line.starts_with('#') {
                let sample = parse_sample(line).map_err(|why| format!("{why}: {line}"))?;
                let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| {
                    let base = sample.name.strip_suffix(end)?;
                    matches!(kinds.get(base), Some(&"histogram" | &"summary")).then_some(base)
                });
                if base.is_none() && !kinds.contains_key(sample.name.as_str()) {
                    return wrong("sample without TYPE");
                }
                samples.push(sample);
            }
        }
        Ok(Self(samples))
    }

    /// The sum of all samples called `name` that have all of `labels`.
    #[must_use]
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let has = |sample: &Sample| {
            labels.iter().all(|(key, value)| sample.labels.get(*key).is_some_and(|v| v == value))
        };
        self.0.iter().filter(|s| s.name == name && has(s)).map(|s| s.value).sum()
    }

    /// Flows that carried no data or ended early.
    #[must_use]
    pub fn failed_flows(&self) -> f64 {
        let finished = |labels: &[_]| self.sum("millrace_flows_finished_total", labels);
        finished(&[]) - finished(&[("outcome", "complete")])
    }

    /// Whether there is a sample called `name`.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|sample| sample.name == name)
    }
}

fn parse_sample(line: &str) -> Result<Sample, &'static str> {
    let name_end = line.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
    let (name, rest) = line.split_at(name_end.ok_or("no value")?);
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return Err("bad name");
    }
    let (labels, rest) = match rest.strip_prefix('{') {
        None => (BTreeMap::new(), rest),
        Some(rest) => parse_labels(rest)?,
    };
    let value = rest.strip_prefix(' ').ok_or("no value")?;
    let value = match value {
        "+Inf" => f64::INFINITY,
        "-Inf" => f64::NEG_INFINITY,
        _ => value.parse().map_err(|_| "the value is no number")?,
    };
    Ok(Sample { name: name.to_owned(), labels, value })
}

fn parse_labels(mut rest: &str) -> Result<(BTreeMap<String, String>, &str), &'static str> {
    let mut labels = BTreeMap::new();
    loop {
        if let Some(rest) = rest.strip_prefix('}') {
            return Ok((labels, rest));
        }
        let (key, after) = rest.split_once("=\"").ok_or("a label without value")?;
        if key.is_empty() || !key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err("bad label name");
        }
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next().ok_or("a label value without end")? {
                (at, '"') => break at,
                (_, '\\') => match chars.next() {
                    Some((_, 'n')) => value.push('\n'),
                    Some((_, c @ ('"' | '\\'))) => value.push(c),
                    _ => return Err("bad escape in a label value"),
                },
                (_, c) => value.push(c),
            }
        };
        labels.insert(key.to_owned(), value);
        rest = &after[end + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
}

/// `/flows`.
///
/// # Panics
/// When it can't be fetched or is no JSON.
#[must_use]
pub fn flows(from: SocketAddr) -> Value {
    json(from, "/flows")
}

/// The JSON at `path`.
///
/// # Panics
/// When it can't be fetched or is no JSON.
#[must_use]
pub fn json(from: SocketAddr, path: &str) -> Value {
    let (status, body) = get(from, path).unwrap_or_else(|error| panic!("{path}: {error}"));
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_prometheus_reads() {
        let text = "# HELP a_total Things.\n# TYPE a_total counter\na_total{x=\"1\",y=\"q\\\"\"} 3\n\
                    a_total{x=\"2\"} 4\n# TYPE h histogram\nh_bucket{le=\"+Inf\"} 1\nh_sum 0.5\n";
        let metrics = Metrics::parse(text).unwrap();
        assert_eq!(metrics.sum("a_total", &[]), 7.0);
        assert_eq!(metrics.sum("a_total", &[("x", "2")]), 4.0);
        assert_eq!(metrics.0[0].labels["y"], "q\"");
        assert!(metrics.has("h_sum"));
    }

    #[test]
    fn refuses_what_prometheus_refuses() {
        for text in ["a 1\n", "# TYPE a counter\na x\n", "# TYPE a counter\na{b=c} 1\n", "a 1"] {
            assert!(Metrics::parse(text).is_err(), "{text:?}");
        }
    }
}
