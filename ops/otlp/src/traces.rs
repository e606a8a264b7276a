//! Finished traces as OTLP spans: one of the whole set-up, and below it one for each step.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use millrace_tunnel::flow_trace::{FlowTraceRecord, SetupStep};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{Span, Status};

use crate::resource::{attribute, text_attribute};

/// Name of the span of the whole set-up.
pub const SET_UP_SPAN: &str = "flow set-up";

/// Nanoseconds since 1970-01-01T00:00:00Z; 0 before, and the largest value after the year 2554.
pub fn unix_nano(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Number of spans of a trace.
pub(crate) fn span_count(record: &FlowTraceRecord) -> u64 {
    record.steps.len() as u64 + 1
}

/// The spans of a trace, that of the set-up first.
pub fn convert(record: &FlowTraceRecord) -> Vec<Span> {
    let whole = SpanTimes { record, start: Duration::ZERO, end: record.duration };
    let mut attributes = Vec::new();
    attributes.extend(record.class.map(|class| text_attribute("millrace.class", class.as_str())));
    attributes.extend(
        record
            .destination_port
            .map(|port| attribute("destination.port", any_value::Value::IntValue(i64::from(port)))),
    );
    let set_up = Span {
        name: SET_UP_SPAN.to_owned(),
        span_id: record.span_id.to_be_bytes().to_vec(),
        parent_span_id: record.parent.map_or_else(Vec::new, |it| it.to_be_bytes().to_vec()),
        kind: SpanKind::Server as i32,
        ..whole.span(attributes, record.failure)
    };
    let steps = record.steps.iter().map(|step| {
        let end = step.end.unwrap_or(record.duration);
        let kind = match step.step {
            SetupStep::Tunnel | SetupStep::Dial => SpanKind::Client,
            _ => SpanKind::Internal,
        };
        Span {
            name: step.step.as_str().to_owned(),
            span_id: step.span_id.to_be_bytes().to_vec(),
            parent_span_id: record.span_id.to_be_bytes().to_vec(),
            kind: kind as i32,
            ..SpanTimes { record, start: step.start, end }.span(Vec::new(), step.failure)
        }
    });
    std::iter::once(set_up).chain(steps).collect()
}

/// Beginning and end of a span, counted from the beginning of its trace.
struct SpanTimes<'a> {
    record: &'a FlowTraceRecord,
    start: Duration,
    end: Duration,
}

impl SpanTimes<'_> {
    fn span(&self, mut attributes: Vec<KeyValue>, failure: Option<&'static str>) -> Span {
        let began = unix_nano(self.record.began);
        let at = |since: Duration| {
            began.saturating_add(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
        };
        attributes.extend(failure.map(|failure| text_attribute("error.type", failure)));
        Span {
            trace_id: self.record.trace_id.to_be_bytes().to_vec(),
            start_time_unix_nano: at(self.start),
            end_time_unix_nano: at(self.end),
            attributes,
            status: failure.map(|failure| Status {
                message: failure.to_owned(),
                code: StatusCode::Error as i32,
            }),
            ..Span::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use millrace_config::Class;
    use millrace_tunnel::flow_trace::StepSpan;

    use super::*;

    #[test]
    fn trace_becomes_a_span_of_the_set_up_with_its_steps_below() {
        let ms = Duration::from_millis;
        let step =
            |step, span_id, start, end, failure| StepSpan { step, span_id, start, end, failure };
        let record = FlowTraceRecord {
            trace_id: 0x0102,
            parent: Some(9),
            span_id: 3,
            began: UNIX_EPOCH + Duration::from_secs(1),
            duration: ms(20),
            steps: vec![
                step(SetupStep::Admission, 4, ms(0), Some(ms(1)), None),
                step(SetupStep::Dial, 5, ms(1), None, Some("refused")),
            ],
            class: Some(Class::Dash),
            destination_port: Some(443),
            failure: Some("refused"),
        };
        let spans = convert(&record);
        assert_eq!(spans.len() as u64, span_count(&record));
        let names: Vec<_> = spans.iter().map(|span| &*span.name).collect();
        assert_eq!(names, [SET_UP_SPAN, "admission", "dial"]);
        let id = |id: u64| id.to_be_bytes().to_vec();
        let parents: Vec<_> = spans.iter().map(|span| span.parent_span_id.clone()).collect();
        assert_eq!(parents, [id(9), id(3), id(3)]);
        assert!(spans.iter().all(|span| span.trace_id == 0x0102_u128.to_be_bytes()));
        let times = |span: &Span| (span.start_time_unix_nano, span.end_time_unix_nano);
        assert_eq!(times(&spans[0]), (1_000_000_000, 1_020_000_000));
        assert_eq!(times(&spans[1]), (1_000_000_000, 1_001_000_000));
        assert_eq!(times(&spans[2]), (1_001_000_000, 1_020_000_000));
        let expected = [
            text_attribute("millrace.class", "dash"),
            attribute("destination.port", any_value::Value::IntValue(443)),
            text_attribute("error.type", "refused"),
        ];
        assert_eq!(spans[0].attributes, expected);
        assert_eq!(spans[1].status, None);
        assert_eq!(spans[2].status.as_ref().unwrap().code, StatusCode::Error as i32);
    }
}
