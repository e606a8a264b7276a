//! The programs' own metrics.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use millrace_lab::netns::Namespace;

/// How long a scrape may take.
const SCRAPE_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest answer that is read.
const MAX_SCRAPE_BYTES: u64 = 4 << 20;

/// Series of one or more programs, by name with labels, added up.
#[derive(Debug, Clone, Default)]
pub struct MetricValues {
    values: BTreeMap<String, f64>,
}

impl MetricValues {
    /// The series of the programs that serve metrics at `addresses` in `host`.
    ///
    /// # Errors
    /// When one does not answer.
    pub fn scrape(host: &Namespace, addresses: &[SocketAddrV4]) -> Result<Self> {
        host.inside(|| {
            let mut sum = Self::default();
            for address in addresses {
                let text = get(*address).with_context(|| format!("metrics of {address}"))?;
                sum.add(&text);
            }
            Ok(sum)
        })
    }

    /// Adds what a scrape has (Prometheus text format).
    pub fn add(&mut self, text: &str) {
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((series, value)) = line.rsplit_once(' ') else { continue };
            if let Ok(value) = value.parse::<f64>() {
                *self.values.entry(series.to_owned()).or_default() += value;
            }
        }
    }

    /// The value of a series; `None` if the programs have no such metric.
    pub fn value(&self, series: &str) -> Option<f64> {
        self.values.get(series).copied()
    }

    /// How much it has grown since `earlier`.
    pub fn growth(&self, earlier: &Self, series: &str) -> Option<f64> {
        Some(self.value(series)? - earlier.value(series)?)
    }

    /// What was refused, failed or reset, by reason: series that count such things and are not 0.
    pub fn refusals(&self) -> BTreeMap<String, u64> {
        const FAMILIES: [(&str, &str); 3] = [
            ("millrace_drops_total{reason=\"", "drops"),
            ("millrace_handshake_failures_total{reason=\"", "handshake failures"),
            ("millrace_flows_finished_total{outcome=\"", "flows finished"),
        ];
        let mut refusals = BTreeMap::new();
        for (family, words) in FAMILIES {
            for (series, value) in self.values.range(family.to_owned()..) {
                let Some(label) = series.strip_prefix(family) else { break };
                let label = label.trim_end_matches("\"}");
                if *value > 0.0 && label != "complete" {
                    refusals.insert(format!("{words}, {label}"), *value as u64);
                }
            }
        }
        refusals
    }
}

/// `GET /metrics`, without a library: the programs close the connection after the answer.
fn get(address: SocketAddrV4) -> Result<String> {
    let mut stream = TcpStream::connect_timeout(&SocketAddr::V4(address), SCRAPE_TIMEOUT)?;
    stream.set_read_timeout(Some(SCRAPE_TIMEOUT))?;
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(MAX_SCRAPE_BYTES).read_to_string(&mut answer)?;
    let Some((head, body)) = answer.split_once("\r\n\r\n") else { bail!("no HTTP answer") };
    if !head.starts_with("HTTP/1.1 200") {
        bail!("{}", head.lines().next().unwrap_or_default());
    }
    Ok(body.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRAPE: &str = "# HELP millrace_packets_sent_total QUIC packets sent\n\
        # TYPE millrace_packets_sent_total counter\n\
        millrace_packets_sent_total 120\n\
        millrace_drops_total{reason=\"malformed\"} 0\n\
        millrace_drops_total{reason=\"memory_cap\"} 7\n\
        millrace_flows_finished_total{outcome=\"complete\"} 3\n\
        millrace_flows_finished_total{outcome=\"memory\"} 2\n\
        millrace_handshake_failures_total{reason=\"overloaded\"} 7\n";

    #[test]
    fn series_of_several_programs_are_added_up() {
        let mut values = MetricValues::default();
        values.add(SCRAPE);
        let earlier = values.clone();
        values.add(SCRAPE);
        assert_eq!(values.value("millrace_packets_sent_total"), Some(240.0));
        assert_eq!(values.growth(&earlier, "millrace_packets_sent_total"), Some(120.0));
        assert_eq!(values.value("millrace_ack_only_packets_sent_total"), None);
    }

    #[test]
    fn refusals_have_what_was_counted_and_nothing_that_went_well() {
        let mut values = MetricValues::default();
        values.add(SCRAPE);
        let shown: Vec<(String, u64)> = values.refusals().into_iter().collect();
        let expected = [
            ("drops, memory_cap", 7),
            ("flows finished, memory", 2),
            ("handshake failures, overloaded", 7),
        ];
        assert_eq!(shown, expected.map(|(words, count)| (words.to_owned(), count)));
    }
}
