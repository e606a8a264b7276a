//! Traces of connections: on demand, in their own file, and no longer than allowed.

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;

use millrace_e2e::origin::{Origin, source};
use millrace_e2e::pair::{Pair, PairBuilder};
use millrace_e2e::{admin, data, wait};
use serde_json::{Value, json};
use tempfile::TempDir;

const MB: u64 = 1_000_000;

fn traced() -> (TempDir, PairBuilder) {
    let dir = tempfile::tempdir().unwrap();
    let pair = Pair::builder()
        .both("admin.qlog_dir", format!("\"{}\"", dir.path().display()))
        .both("admin.qlog_max_mb", 1);
    (dir, pair)
}

fn connection(at: SocketAddr) -> String {
    admin::flows(at)["flows"][0]["connection"].as_str().unwrap().to_owned()
}

fn ask(at: SocketAddr, method: &str, connection: &str) -> (u16, String) {
    admin::request(at, method, &format!("/qlog/{connection}")).unwrap()
}

fn file(answer: &(u16, String)) -> PathBuf {
    assert_eq!(answer.0, 200, "{answer:?}");
    let json: Value = serde_json::from_str(&answer.1).unwrap();
    json["file"].as_str().unwrap().into()
}

/// The records of a JSON text sequence (RFC 7464); the last one may be cut off.
fn records(path: &PathBuf) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    let records: Vec<_> = text.split('\u{1e}').skip(1).collect();
    let whole = records.iter().filter_map(|record| serde_json::from_str(record).ok());
    let whole: Vec<_> = whole.collect();
    assert!(whole.len() + 1 >= records.len(), "{} of {} records", whole.len(), records.len());
    whole
}

fn events(records: &[Value], name: &str) -> usize {
    records.iter().filter(|it| it["name"].as_str().is_some_and(|it| it.ends_with(name))).count()
}

#[test]
fn a_connection_is_traced_while_it_is_asked_for() {
    let origin = Origin::echo();
    let (dir, pair) = traced();
    let pair = pair.start();
    let mut flow = pair.http().open(&origin.address().to_string()).unwrap();
    let mut echoes = || {
        flow.write_all(b"ping").unwrap();
        flow.read_exact(&mut [0; 4]).unwrap();
    };
    for at in [pair.addresses.server_admin, pair.addresses.client_admin] {
        let name = connection(at);
        echoes();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count() % 2, 0, "an unrequested trace");
        let begun = file(&ask(at, "PUT", &name));
        assert_eq!(ask(at, "PUT", &name).0, 409);
        let running: Value = serde_json::from_str(&admin::get(at, "/qlog").unwrap().1).unwrap();
        assert_eq!(running["traces"][0]["connection"], name.as_str());
        echoes();
        assert_eq!(file(&ask(at, "DELETE", &name)), begun);
        assert_eq!(ask(at, "DELETE", &name).0, 404);
        let sent = wait::until(wait::DEFAULT_TIMEOUT, || {
            let records = records(&begun);
            (events(&records, "packet_sent") > 0).then_some(records)
        });
        let traced = sent.expect("packets in the trace");
        assert!(events(&traced, "packet_received") > 0);
        wait::for_true("the trace has ended", wait::DEFAULT_TIMEOUT, || {
            !admin::get(at, "/qlog").unwrap().1.contains(&name)
        });
        let length = fs::metadata(&begun).unwrap().len();
        echoes();
        assert_eq!(fs::metadata(&begun).unwrap().len(), length);
        // And again, in another file.
        assert_ne!(file(&ask(at, "PUT", &name)), begun);
        ask(at, "DELETE", &name);
    }
}

#[test]
fn a_change_of_congestion_control_is_in_the_trace() {
    let origin = Origin::echo();
    let (_dir, pair) = traced();
    let pair = pair.server("tunnel.congestion_control", "\"cubic\"").start();
    let mut flow = pair.http().open(&origin.address().to_string()).unwrap();
    flow.write_all(b"ping").unwrap();
    flow.read_exact(&mut [0; 4]).unwrap();
    let at = pair.addresses.server_admin;
    let name = connection(at);
    let file = file(&ask(at, "PUT", &name));
    let path = format!("/congestion_control/{name}?algorithm=iris-min");
    assert_eq!(admin::request(at, "PUT", &path).unwrap().0, 200);
    flow.write_all(b"ping").unwrap();
    flow.read_exact(&mut [0; 4]).unwrap();
    // What waits for a chunk to be full is written then.
    ask(at, "DELETE", &name);
    let is_change = |it: &Value| it["name"] == "millrace:congestion_control_changed";
    let change = wait::until(wait::DEFAULT_TIMEOUT, || records(&file).into_iter().find(is_change));
    assert_eq!(
        change.expect("the change in the trace")["data"],
        json!({ "old": "cubic", "new": "iris-min", "trigger": "hand" })
    );
}

#[test]
fn a_trace_is_no_longer_than_allowed() {
    let bytes = 100 * MB;
    let origin = Origin::start(source(3, bytes));
    let (_dir, pair) = traced();
    let pair = pair.start();
    let flow = pair.http().open(&origin.address().to_string()).unwrap();
    let at = pair.addresses.server_admin;
    let name = connection(at);
    let file = file(&ask(at, "PUT", &name));
    assert_eq!(data::receive(&flow).unwrap(), data::send(std::io::sink(), 3, bytes).unwrap());
    ask(at, "DELETE", &name);
    wait::for_true("the trace has ended", wait::DEFAULT_TIMEOUT, || {
        !admin::get(at, "/qlog").unwrap().1.contains(&name)
    });
    let length = fs::metadata(&file).unwrap().len();
    assert!((MB / 2..=MB).contains(&length), "{length} bytes");
    assert!(events(&records(&file), "packet_sent") > 100);
}

#[test]
fn nobody_is_traced_unless_that_is_configured() {
    let origin = Origin::echo();
    let pair = Pair::builder().start();
    let _flow = pair.http().open(&origin.address().to_string()).unwrap();
    let at = pair.addresses.server_admin;
    let (status, why) = ask(at, "PUT", &connection(at));
    assert!(status == 403 && why.contains("admin.qlog_dir"), "{status} {why}");
}

#[test]
fn what_is_no_connection_or_no_method_is_refused() {
    let (_dir, pair) = traced();
    let pair = pair.start();
    let at = pair.addresses.server_admin;
    assert_eq!(ask(at, "PUT", "00112233445566778899aabbccddeeff").0, 404);
    for name in ["..%2f..%2fetc", "../../etc/passwd", "zz", &"a".repeat(41)] {
        assert_eq!(ask(at, "PUT", name).0, 400, "{name}");
    }
    // What a web page could send without asking.
    for method in ["GET", "POST"] {
        assert_eq!(ask(at, method, "0011").0, 405, "{method}");
    }
    assert_eq!(admin::request(at, "PUT", "/qlog").unwrap().0, 405);
}
