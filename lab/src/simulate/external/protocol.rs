//! The lines: JSON objects, one for each event, and one for each decision.

use millrace_cc::{AckedPacket, Bandwidth, LostPacket, RttSample};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

/// Version of the protocol. The first answer of a program has to name it.
pub(super) const PROTOCOL_VERSION: u64 = 1;

/// What a decision may be; more than the fastest and longest path needs, and a bound for what is in flight.
const WINDOW_BYTES: std::ops::RangeInclusive<f64> = 1.0..=1e9;
const PACING_BITS_PER_S: std::ops::RangeInclusive<f64> = 1e3..=1e12;

/// A line from the lab to the program.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ExternalMessage<'a> {
    /// The first line.
    Start {
        protocol: u64,
        flow: usize,
        now_ns: u64,
        mtu_bytes: u64,
        initial_window_bytes: u64,
        initial_rtt_ns: u64,
        seed: u64,
        parameters: &'a Map<String, Value>,
    },
    /// Packets were acknowledged or declared lost.
    Event {
        now_ns: u64,
        #[serde(serialize_with = "acked_packets")]
        acked: &'a [AckedPacket],
        #[serde(serialize_with = "lost_packets")]
        lost: &'a [LostPacket],
        rtt: Option<ExternalRtt>,
        ecn_ce: u64,
        prior_in_flight_bytes: u64,
        in_flight_bytes: u64,
        app_limited: bool,
        sent_packets: u64,
        sent_bytes: u64,
    },
    /// No acknowledgement came for a probe timeout.
    ProbeTimeout { now_ns: u64 },
    /// A packet that had been declared lost was acknowledged after all.
    SpuriousLoss { now_ns: u64, packet: (u64, u64, u64) },
}

/// A round-trip sample with the sender's estimates after it.
#[derive(Debug, Serialize)]
pub(super) struct ExternalRtt {
    latest_ns: u64,
    smoothed_ns: u64,
    variation_ns: u64,
    min_ns: u64,
}

impl From<RttSample> for ExternalRtt {
    fn from(sample: RttSample) -> Self {
        // The times of a run fit.
        let ns = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self {
            latest_ns: ns(sample.latest),
            smoothed_ns: ns(sample.smoothed),
            variation_ns: ns(sample.variation),
            min_ns: ns(sample.min),
        }
    }
}

/// Number, time of sending and size of each packet.
fn acked_packets<S: Serializer>(packets: &[AckedPacket], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(packets.iter().map(|it| (it.number, it.sent.as_nanos(), it.bytes)))
}

fn lost_packets<S: Serializer>(packets: &[LostPacket], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(packets.iter().map(|it| (it.number, it.sent.as_nanos(), it.bytes)))
}

/// A line from the program to the lab.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExternalAnswer {
    window_bytes: f64,
    pacing_bits_per_s: f64,
    #[serde(rename = "protocol")]
    _protocol: Option<u64>,
}

/// The version in a program's first line, whatever else that has.
#[derive(Debug, Deserialize)]
struct VersionOnly {
    protocol: Option<Value>,
}

/// Window and rate until the next answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ExternalDecision {
    pub(super) window_bytes: u64,
    pub(super) pacing_rate: Bandwidth,
}

/// What an answer has to look like, for errors.
pub(super) const EXPECTED: &str =
    "expected a line as {\"window_bytes\": 15000, \"pacing_bits_per_s\": 2000000}";

/// # Errors
/// The version of a program's first line is missing or not ours.
pub(super) fn check_version(line: &str) -> Result<(), String> {
    // A line that is no object is reported as any other.
    let Ok(VersionOnly { protocol }) = serde_json::from_str(line) else { return Ok(()) };
    match protocol {
        Some(version) if version.as_u64() == Some(PROTOCOL_VERSION) => Ok(()),
        Some(version) => Err(format!(
            "the program speaks protocol {version}, this lab {PROTOCOL_VERSION}: {}",
            shown(line)
        )),
        None => Err(format!(
            "the first answer lacks \"protocol\": {PROTOCOL_VERSION}, the version that the program \
             speaks: {}",
            shown(line)
        )),
    }
}

/// # Errors
/// The line is no answer, or window or rate are out of range.
pub(super) fn read_answer(line: &str) -> Result<ExternalDecision, String> {
    let answer: ExternalAnswer = serde_json::from_str(line)
        .map_err(|error| format!("bad line {}: {error}; {EXPECTED}", shown(line)))?;
    let in_range = |key: &str, value: f64, range: std::ops::RangeInclusive<f64>| {
        if range.contains(&value) {
            return Ok(value);
        }
        let (low, high) = (range.start(), range.end());
        Err(format!("{key} is {value}; allowed are {low} to {high}"))
    };
    let window_bytes = in_range("window_bytes", answer.window_bytes, WINDOW_BYTES)?;
    let pacing = in_range("pacing_bits_per_s", answer.pacing_bits_per_s, PACING_BITS_PER_S)?;
    // Both are in range.
    let pacing_rate = Bandwidth::from_bits_per_s(pacing as u64);
    Ok(ExternalDecision { window_bytes: window_bytes as u64, pacing_rate })
}

/// The beginning of a line.
fn shown(line: &str) -> String {
    const MAX_CHARS: usize = 120;
    let start: String = line.chars().take(MAX_CHARS).collect();
    if start.len() < line.len() { format!("{start:?}...") } else { format!("{start:?}") }
}

#[cfg(test)]
mod tests {
    use millrace_cc::Time;

    use super::*;

    #[test]
    fn an_event_is_a_line_with_its_packets() {
        let acked = [AckedPacket { number: 7, sent: Time::from_nanos(5), bytes: 1452 }];
        let event = ExternalMessage::Event {
            now_ns: 9,
            acked: &acked,
            lost: &[],
            rtt: None,
            ecn_ce: 0,
            prior_in_flight_bytes: 2904,
            in_flight_bytes: 1452,
            app_limited: false,
            sent_packets: 1,
            sent_bytes: 1452,
        };
        let expected = r#"{"type":"event","now_ns":9,"acked":[[7,5,1452]],"lost":[],"rtt":null,"ecn_ce":0,"prior_in_flight_bytes":2904,"in_flight_bytes":1452,"app_limited":false,"sent_packets":1,"sent_bytes":1452}"#;
        assert_eq!(serde_json::to_string(&event).unwrap(), expected);
    }

    #[test]
    fn answers_are_read_and_wrong_ones_say_what_is_allowed() {
        let decision = read_answer(r#"{"window_bytes": 15000.9, "pacing_bits_per_s": 2e6}"#);
        let rate = Bandwidth::from_mbps(2.0);
        let expected = ExternalDecision { window_bytes: 15_000, pacing_rate: rate };
        assert_eq!(decision.unwrap(), expected);
        for (line, problem) in [
            (
                r#"{"window_bytes": 0, "pacing_bits_per_s": 2e6}"#,
                "window_bytes is 0; allowed are 1 to",
            ),
            (
                r#"{"window_bytes": 1, "pacing_bits_per_s": 1e13}"#,
                "allowed are 1000 to 1000000000000",
            ),
            (r#"{"window_bytes": 1}"#, "missing field `pacing_bits_per_s`"),
            (r#"{"window": 1, "pacing_bits_per_s": 1e6}"#, "unknown field `window`"),
            (r#"{"window_bytes": NaN, "pacing_bits_per_s": 1e6}"#, "expected a line as {"),
            ("window 15000", "bad line \"window 15000\""),
        ] {
            let error = read_answer(line).unwrap_err();
            assert!(error.contains(problem), "{line}: {error}");
        }
    }

    #[test]
    fn versions_must_be_equal() {
        check_version(r#"{"protocol": 1, "window_bytes": 1}"#).unwrap();
        let error = check_version(r#"{"protocol": 2, "cwnd": 1}"#).unwrap_err();
        assert!(error.starts_with("the program speaks protocol 2, this lab 1"), "{error}");
        let error = check_version(r#"{"window_bytes": 1}"#).unwrap_err();
        assert!(error.contains("lacks \"protocol\": 1"), "{error}");
    }
}
