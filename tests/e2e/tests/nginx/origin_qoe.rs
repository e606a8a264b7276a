//! What players report, counted by real requests: both forms, malformed ones, a bounded table.

use millrace_e2e::admin::Metrics;
use millrace_e2e::wait::{self, DEFAULT_TIMEOUT};
use serde_json::Value;

use crate::http::get;
use crate::origin_files::{ORIGIN, OriginHost};

const REPORTS: &str = "127.0.0.1:9466";

fn sessions(host: &OriginHost) -> Value {
    let answer = get(&host.namespace, REPORTS, "/sessions", &[]);
    assert_eq!((answer.status, answer.header("Content-Type")), (200, Some("application/json")));
    serde_json::from_str(answer.text()).unwrap()
}

fn metrics(host: &OriginHost) -> Metrics {
    let answer = get(&host.namespace, REPORTS, "/metrics", &[]);
    Metrics::parse(answer.text()).unwrap()
}

/// Waits until so many requests with CMCD were counted, which is after their answers.
fn counted(host: &OriginHost, requests: f64) -> Metrics {
    wait::until(DEFAULT_TIMEOUT, || {
        let now = metrics(host);
        let names = [
            "millrace_qoe_requests_total",
            "millrace_cmcd_ignored_total",
            "millrace_cmcd_without_session_total",
        ];
        (names.iter().map(|name| now.sum(name, &[])).sum::<f64>() >= requests).then_some(now)
    })
    .unwrap_or_else(|| panic!("{:?}", metrics(host)))
}

#[test]
#[ignore = "needs root and nginx; run by make test"]
fn queries_and_headers_become_sessions() {
    let host = OriginHost::start(|site| OriginHost::file(site, "vod/1.m4s", &[7; 5000]));
    assert_eq!(sessions(&host)["sessions"], serde_json::json!([]));
    let query = |cmcd: &str| {
        let answer = get(&host.namespace, ORIGIN, &format!("/vod/1.m4s?CMCD={cmcd}"), &[]);
        assert_eq!((answer.status, answer.body.len()), (200, 5000), "{cmcd}");
    };
    // As dash.js writes them.
    query(
        "bl%3D4000%2Cbr%3D620%2Ccid%3D%22film%22%2Cd%3D2000%2Cmtp%3D9000%2Cot%3Dv%2Csf%3Dd%2Csid%3D%22a%22%2Cst%3Dv%2Csu%2Ctb%3D3600",
    );
    query("bl%3D2500%2Cbr%3D3600%2Cbs%2Cd%3D2000%2Cot%3Dv%2Csid%3D%22a%22");
    let answer = get(
        &host.namespace,
        ORIGIN,
        "/vod/1.m4s",
        &["CMCD-Object: br=128,d=2000,ot=a", "CMCD-Session: sid=\"b\",st=l", "cmcd-status: bs"],
    );
    assert_eq!(answer.status, 200);
    let now = counted(&host, 3.0);
    let all = sessions(&host);
    assert_eq!((&all["opened"], &all["evicted"]), (&2.into(), &0.into()));
    let [a, b] = all["sessions"].as_array().unwrap().as_slice() else { panic!("{all}") };
    for (key, value) in [
        ("requests", 2.0),
        ("media_s", 4.0),
        ("mean_bitrate_kbps", 2110.0),
        ("switches", 1.0),
        ("starvations", 1.0),
        ("urgent_requests", 1.0),
        ("buffer_s", 2.5),
        ("least_buffer_s", 2.5),
        ("throughput_kbps", 9000.0),
        ("top_bitrate_kbps", 3600.0),
        ("errors", 0.0),
    ] {
        assert_eq!(a[key].as_f64(), Some(value), "{key} of {a}");
    }
    assert!(a["bytes"].as_u64().unwrap() > 10_000, "{a}");
    assert_eq!(
        (&a["sid"], &a["content"], &b["sid"], &b["kind"]),
        (&"a".into(), &"film".into(), &"b".into(), &"l".into())
    );
    assert_eq!(now.sum("millrace_qoe_requests_total", &[]), 3.0);
    assert_eq!(
        now.sum("millrace_qoe_session_requests_total", &[("sid", "a"), ("cid", "film")]),
        2.0
    );
    assert_eq!(now.sum("millrace_qoe_starvations_total", &[]), 2.0);
    // Not for viewers: they would see each other's sessions.
    assert_eq!(get(&host.namespace, ORIGIN, "/sessions", &[]).status, 404);
}

#[test]
#[ignore = "needs root and nginx; run by make test"]
fn version_2_and_content_in_utf_8_are_read_in_both_forms() {
    let host = OriginHost::start(|site| OriginHost::file(site, "vod/1.m4s", &[7; 5000]));
    let target = "/vod/1.m4s?CMCD=bl%3D(2100%3Bv+1800%3Ba)%2Cbr%3D(3000%3Bv+164%3Ba)%2C\
         cid%3D%22K%C3%B6ln%22%2Cd%3D4000%2Cot%3Dv%2Csid%3D%22a%22%2Cst%3Dll%2Csta%3Dp%2Cv%3D2";
    assert_eq!(get(&host.namespace, ORIGIN, target, &[]).status, 200);
    // Of several header lines with one name all are read, and with any of them no query.
    let headers = [
        "CMCD-Request: bl=(500;a)",
        "CMCD-Request: mtp=(9000)",
        "CMCD-Object: ot=a",
        "CMCD-Session: cid=\"Köln\",sid=\"b\",v=2",
    ];
    assert_eq!(get(&host.namespace, ORIGIN, target, &headers).status, 200);
    let now = counted(&host, 2.0);
    assert_eq!(now.sum("millrace_cmcd_ignored_total", &[]), 0.0);
    let all = sessions(&host);
    let [a, b] = all["sessions"].as_array().unwrap().as_slice() else { panic!("{all}") };
    assert_eq!((&a["sid"], &a["content"], &a["kind"]), (&"a".into(), &"Köln".into(), &"ll".into()));
    assert_eq!(
        (a["buffer_s"].as_f64(), a["mean_bitrate_kbps"].as_f64()),
        (Some(2.1), Some(3000.0))
    );
    assert_eq!((&b["sid"], &b["content"]), (&"b".into(), &"Köln".into()));
    assert_eq!((b["buffer_s"].as_f64(), b["throughput_kbps"].as_f64()), (Some(0.5), Some(9000.0)));
}

#[test]
#[ignore = "needs root and nginx; run by make test"]
fn malformed_keys_count_as_such_and_discard_no_others() {
    let host = OriginHost::start(|site| OriginHost::file(site, "vod/1.m4s", b"segment"));
    let long = "a".repeat(6000);
    let query = |cmcd: &str| (format!("/vod/1.m4s?CMCD={cmcd}"), String::new());
    let header = |line: &str| ("/vod/1.m4s".to_owned(), line.to_owned());
    // The reasons, and whether the session `x` counts.
    let cases = [
        (query("br%3Dfast%2Csid%3D%22x%22"), Some("value"), true),
        (query("cid%3D%22a%2Csid%3D%22x%22"), Some("syntax"), true),
        (query("%00%2Csid%3D%22x%22"), Some("syntax"), true),
        (query("sid%3D%22y%22%2Csid%3D%22x%22"), Some("duplicate"), true),
        (query("v%3D3%2Csid%3D%22x%22"), Some("version"), false),
        (query(&long), Some("too_long"), false),
        (query(&format!("com.example-k%3D{}", "b".repeat(5000))), Some("too_long"), false),
        (header("CMCD-Object: sid=\"x\",br=-1"), Some("value"), true),
        (query("sid%3D%22x%22"), None, true),
    ];
    for ((target, line), ..) in &cases {
        let headers: &[&str] = if line.is_empty() { &[] } else { &[line.as_str()] };
        let answer = get(&host.namespace, ORIGIN, target, headers);
        assert_eq!((answer.status, answer.text()), (200, "segment"), "{target}");
    }
    let of_session = cases.iter().filter(|(_, _, counts)| *counts).count() as f64;
    let ignored = cases.iter().filter(|(_, why, _)| why.is_some()).count() as f64;
    let now = counted(&host, of_session + ignored);
    for reason in ["value", "syntax", "duplicate", "version", "too_long"] {
        let expected = cases.iter().filter(|(_, why, _)| *why == Some(reason)).count() as f64;
        assert_eq!(
            now.sum("millrace_cmcd_ignored_total", &[("reason", reason)]),
            expected,
            "{reason}"
        );
    }
    let all = sessions(&host);
    let [x] = all["sessions"].as_array().unwrap().as_slice() else { panic!("{all}") };
    assert_eq!((&x["sid"], x["requests"].as_f64()), (&"x".into(), Some(of_session)));
}

#[test]
#[ignore = "needs root and nginx; run by make test"]
fn invented_sessions_fill_no_more_than_the_table() {
    let host = OriginHost::start(|site| {
        OriginHost::file(site, "vod/1.m4s", b"segment");
        site.edit("origin/settings.lua", "max_sessions = 1000", "max_sessions = 20");
        let labelled = "max_labelled_sessions = 50";
        site.edit("origin/settings.lua", labelled, "max_labelled_sessions = 5");
    });
    for number in 0..200 {
        let target = format!("/vod/1.m4s?CMCD=sid%3D%22invented-{number}%22");
        assert_eq!(get(&host.namespace, ORIGIN, &target, &[]).status, 200);
    }
    let now = counted(&host, 200.0);
    assert_eq!(now.sum("millrace_qoe_sessions", &[]), 20.0);
    let series = now.0.iter().filter(|it| it.name == "millrace_qoe_session_requests_total");
    assert!(series.count() <= 5);
    assert_eq!(now.sum("millrace_qoe_sessions_opened_total", &[]), 200.0);
    assert_eq!(now.sum("millrace_qoe_sessions_evicted_total", &[]), 180.0);
    assert_eq!(sessions(&host)["sessions"].as_array().unwrap().len(), 20);
}
