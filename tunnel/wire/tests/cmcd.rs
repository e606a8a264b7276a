//! The cases that `nginx-conf/lua/spec/cmcd_spec.lua` reads too: both ends find the same in a request.

use millrace_wire::Parsed;
use millrace_wire::cmcd::{Request, parse};
use serde_json::{Value, json};

/// A request with the target, the fields, and a field of `pad_bytes`.
fn head(case: &Value) -> Vec<u8> {
    let mut lines = vec![format!("GET {} HTTP/1.1", case["target"].as_str().unwrap_or("/"))];
    for field in case["fields"].as_array().into_iter().flatten() {
        let text = |index: usize| field[index].as_str().expect("name and value are text");
        lines.push(format!("{}: {}", text(0), text(1)));
    }
    if let Some(bytes) = case["pad_bytes"].as_u64() {
        lines.push(format!("CMCD-Request: x={}", "a".repeat(bytes as usize - 2)));
    }
    (lines.join("\r\n") + "\r\n\r\n").into_bytes()
}

fn request(case: &Value) -> Request {
    match parse(&head(case)) {
        Ok(Parsed::Complete { value, .. }) => value,
        other => panic!("{}: {other:?}", case["name"]),
    }
}

/// The report as the cases have it: without what was not said.
fn report(request: &Request) -> Value {
    let mut found = json!({});
    let Some(report) = request.report else { return found };
    let mut add = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            found[key] = value;
        }
    };
    add("buffer_ms", report.buffer_ms.map(Value::from));
    add("bitrate_kbps", report.bitrate_kbps.map(Value::from));
    add("top_bitrate_kbps", report.top_bitrate_kbps.map(Value::from));
    add("throughput_kbps", report.throughput_kbps.map(Value::from));
    add("requested_kbps", report.requested_kbps.map(Value::from));
    add("starved", report.starved.then_some(true.into()));
    add("urgent", report.urgent.then_some(true.into()));
    add("session", report.session.map(|session| session.as_str().into()));
    found
}

#[test]
fn requests_are_read_as_the_origin_reads_them() {
    let cases: Vec<Value> =
        serde_json::from_str(include_str!("../../../tests/data/cmcd.json")).unwrap();
    assert!(cases.len() > 50, "{} cases", cases.len());
    for case in &cases {
        let request = request(case);
        let expected = case.get("report").cloned().unwrap_or(json!({}));
        assert_eq!(report(&request), expected, "{}", case["name"]);
        let is_live = matches!(case["origin"]["kind"].as_str(), Some("l" | "ll"));
        assert_eq!(request.report.is_some_and(|it| it.live), is_live, "{}", case["name"]);
        let ignored: Vec<_> =
            request.ignored.iter().map(|it| format!("{} {}", it.key, it.reason.as_str())).collect();
        let expected = case.get("ignored").cloned().unwrap_or(json!([]));
        assert_eq!(json!(ignored), expected, "{}", case["name"]);
    }
}
