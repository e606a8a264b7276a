//! Signed access: requests without a valid token get nothing from /private/.

use std::fs;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use millrace_e2e::admin::Metrics;
use millrace_e2e::program::Program;
use millrace_e2e::wait::{self, DEFAULT_TIMEOUT};
use nix::sys::signal::Signal;

use crate::http::{Answer, get, request};
use crate::origin_files::{ORIGIN, OriginHost};
use crate::site::Site;

const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const OTHER_KEY: &str = "ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1eff";

fn with_keys(keys: &str) -> impl FnOnce(&Site) {
    move |site| {
        fs::write(site.path("etc/token.keys"), keys).unwrap();
        let path = site.path("etc/token.keys");
        let setting = format!("token_keys = {:?}", path.to_str().unwrap());
        site.edit("origin/settings.lua", "token_keys = nil", &setting);
        OriginHost::file(site, "private/film/1.m4s", b"segment");
        OriginHost::file(site, "private/other/1.m4s", b"other");
        OriginHost::file(site, "vod/1.m4s", b"free");
    }
}

/// Seconds since 1970, and so many more.
fn in_seconds(more: i64) -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64 + more
}

/// A token as docs/operate/nginx.md makes it: by the openssl program, in a shell.
fn sign(claims: &str, key: &str) -> String {
    let script = "b64() { openssl base64 -A | tr '+/' '-_' | tr -d =; }\n\
        text=$(printf %s '{\"alg\":\"HS256\",\"kid\":\"2026\"}' | b64).$(printf %s \"$1\" | b64)\n\
        mac=$(printf %s \"$text\" | openssl dgst -sha256 -mac HMAC -macopt \"hexkey:$2\" -binary | b64)\n\
        echo \"$text.$mac\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh", claims, key]);
    let ended = Program::run("openssl", command, Duration::from_secs(20));
    assert_eq!(ended.code, Some(0), "{}", ended.output);
    ended.output
}

fn film(more: i64) -> String {
    format!("{{\"exp\":{},\"path\":\"/private/film\"}}", in_seconds(more))
}

#[test]
#[ignore = "needs root and nginx; run by make test"]
fn a_token_opens_its_path_in_each_of_its_places() {
    let host = OriginHost::start(with_keys(&format!("2026 {KEY}\n")));
    let ask = |target: &str, headers: &[&str]| get(&host.namespace, ORIGIN, target, headers);
    let opened = |answer: Answer| (answer.status, answer.text() == "segment");
    let token = sign(&film(60), KEY);
    assert_eq!(opened(ask(&format!("/t/{token}/private/film/1.m4s"), &[])), (200, true));
    assert_eq!(opened(ask(&format!("/private/film/1.m4s?token={token}"), &[])), (200, true));
    let bearer = format!("Authorization: Bearer {token}");
    let answer = ask("/private/film/1.m4s", &[&bearer]);
    assert_eq!(answer.header("Cache-Control"), Some("private, max-age=60"));
    assert_eq!(opened(answer), (200, true));
    // What needs no token, and a preflight, which has none.
    assert_eq!(ask("/vod/1.m4s", &[]).status, 200);
    assert_eq!(
        request(&host.namespace, ORIGIN, "OPTIONS", "/private/film/1.m4s", &[], b"").status,
        204
    );

    let none = ask("/private/film/1.m4s", &[]);
    assert_eq!((none.status, none.header("WWW-Authenticate")), (401, Some("Bearer")));
    let signed_by_other = sign(&film(60), OTHER_KEY);
    let cases = [
        (format!("/private/film/1.m4s?token={}", sign(&film(-60), KEY)), 401, "expired"),
        (format!("/private/film/1.m4s?token={signed_by_other}"), 401, "signature"),
        (format!("/t/{signed_by_other}/private/film/1.m4s"), 401, "signature"),
        (format!("/private/film/1.m4s?token={token}x"), 401, "signature"),
        ("/private/film/1.m4s?token=a.b".to_owned(), 401, "malformed"),
        (format!("/private/other/1.m4s?token={token}"), 403, "path"),
        // Another spelling of the path is the same path.
        (format!("/t/{token}/private/film/../other/1.m4s"), 403, "path"),
        (format!("/t/{token}/private/film/%2e%2e/other/1.m4s"), 403, "path"),
        (format!("/private/film/..%2fother/1.m4s?token={token}"), 403, "path"),
    ];
    for (target, status, reason) in &cases {
        let answer = ask(target, &[]);
        assert_eq!(answer.status, *status, "{target}");
        assert!(!answer.text().contains("other"), "{target}");
        let told = answer.header("WWW-Authenticate").unwrap_or_default();
        assert!(*status == 403 || told.contains(reason), "{told}");
    }
    let metrics = get(&host.namespace, "127.0.0.1:9466", "/metrics", &[]);
    let metrics = Metrics::parse(metrics.text()).unwrap();
    for reason in ["expired", "signature", "malformed", "path"] {
        let expected = cases.iter().filter(|case| case.2 == reason).count() as f64;
        assert_eq!(metrics.sum("millrace_token_refused_total", &[("reason", reason)]), expected);
    }
    // Tokens are in no log.
    let log = format!("{:?}", host.site.log("origin"));
    assert!(log.contains("/private/film/1.m4s") && !log.contains(&token), "{log}");
}

#[test]
#[ignore = "needs root and nginx; run by make test"]
fn keys_are_changed_by_a_reload_and_a_bad_file_changes_nothing() {
    let host = OriginHost::start(with_keys(&format!("2026 {KEY}\n")));
    let status = |key: &str| {
        let target = format!("/private/film/1.m4s?token={}", sign(&film(60), key));
        get(&host.namespace, ORIGIN, &target, &[]).status
    };
    assert_eq!((status(KEY), status(OTHER_KEY)), (200, 401));
    let keys = host.site.path("etc/token.keys");
    fs::write(&keys, "2026 00ff\n").unwrap();
    let wanted = "token.keys, line 1: the key has fewer than 32 bytes";
    host.nginx.signal(Signal::SIGHUP);
    wait::for_true("the bad file", DEFAULT_TIMEOUT, || host.site.errors("origin").contains(wanted));
    assert_eq!((status(KEY), status(OTHER_KEY)), (200, 401));
    fs::write(&keys, format!("2026 {OTHER_KEY}\n")).unwrap();
    host.nginx.signal(Signal::SIGHUP);
    wait::for_true("the new key", DEFAULT_TIMEOUT, || status(OTHER_KEY) == 200);
    assert_eq!(status(KEY), 401);
}

/// A location that asks for tokens and a host that has no keys: nothing is open.
#[test]
#[ignore = "needs root and nginx; run by make test"]
fn without_keys_nothing_is_open() {
    let host = OriginHost::start(|site| OriginHost::file(site, "private/film/1.m4s", b"segment"));
    let target = format!("/private/film/1.m4s?token={}", sign(&film(60), KEY));
    assert_eq!(get(&host.namespace, ORIGIN, &target, &[]).status, 500);
}
