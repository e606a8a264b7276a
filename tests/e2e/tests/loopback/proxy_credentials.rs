//! Explicit proxies that ask for a user name and a password.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use millrace_e2e::admin::Metrics;
use millrace_e2e::listeners::TestListener;
use millrace_e2e::origin::Origin;
use millrace_e2e::pair::Pair;
use millrace_e2e::wait::{self, DEFAULT_TIMEOUT};
use nix::sys::signal::Signal;

/// Longest time of one run of curl, in seconds.
const CURL_SECONDS: &str = "30";

fn write_users(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// Runs curl through one of the two proxies, with the credentials `user`, if any.
fn curl(proxy: &str, user: Option<&str>, more: &[&str], url: &str) -> Output {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--max-time", CURL_SECONDS, "--noproxy", ""]);
    command.args(["--write-out", "%{http_code} %{http_connect}", "-x", proxy]);
    if let Some(user) = user {
        command.args(["--proxy-user", user]);
    }
    command.args(more).arg(url).output().expect("curl is installed")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn refused(pair: &Pair) -> f64 {
    let metrics = Metrics::fetch(pair.addresses.client_admin);
    metrics.sum("millrace_drops_total", &[("reason", "wrong_credentials")])
}

#[test]
fn explicit_proxies_let_in_who_shows_the_right_credentials() {
    let origin = Origin::start(|mut stream| {
        millrace_e2e::listeners::read_head(&mut stream).ok();
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
            .ok();
    });
    let dir = tempfile::tempdir().unwrap();
    let users = dir.path().join("proxy-users");
    write_users(&users, "# players\nanna:pass:word\n");
    let key = format!("credentials_file = \"{}\"", users.display());
    let pair = Pair::builder().listener(1, &key).listener(2, &key).start();
    let (TestListener::Http(http), TestListener::Socks(socks)) =
        (&pair.listeners[1], &pair.listeners[2])
    else {
        panic!("listeners 1 and 2 are explicit proxies")
    };
    let (http, socks) = (format!("http://{http}"), format!("socks5://{socks}"));
    let url = format!("http://{}/", origin.address());
    let right = Some("anna:pass:word");
    assert_eq!(text(&curl(&http, right, &[], &url)), "ok200 000");
    assert_eq!(text(&curl(&http, right, &["--proxytunnel"], &url)), "ok200 200");
    assert_eq!(text(&curl(&socks, right, &[], &url)), "ok200 000");
    assert_eq!(refused(&pair), 0.0);
    // Without credentials HTTP clients are asked for them, which is no refusal yet.
    assert!(text(&curl(&http, None, &[], &url)).ends_with("407 000"));
    assert!(text(&curl(&http, None, &["--proxytunnel"], &url)).ends_with("000 407"));
    assert_eq!(refused(&pair), 0.0);
    let mut count = 0.0;
    for wrong in ["anna:pass", "anna:", "bert:pass:word"] {
        assert!(text(&curl(&http, Some(wrong), &[], &url)).ends_with("407 000"), "{wrong}");
        assert!(
            text(&curl(&http, Some(wrong), &["--proxytunnel"], &url)).ends_with("000 407"),
            "{wrong}"
        );
        assert!(!curl(&socks, Some(wrong), &[], &url).status.success(), "{wrong}");
        count += 3.0;
        assert_eq!(refused(&pair), count, "{wrong}");
    }
    assert!(!curl(&socks, None, &[], &url).status.success());
    assert_eq!(refused(&pair), count + 1.0);
    assert_eq!(origin.accepted(), 3, "nothing else has reached the origin");
    let lines = || pair.client.log_text();
    wait::for_true("the refusals are logged", DEFAULT_TIMEOUT, || {
        lines().contains("client of an explicit proxy refused")
    });
    let logged = lines().matches("client of an explicit proxy refused").count();
    // Three a reason at once, then one a minute.
    assert!(logged <= 8, "{logged} lines for {count} refusals");
    assert!(!lines().contains("pass:word"), "a password is in the log");
    // The file is read again.
    write_users(&users, "bert:other\n");
    pair.client.signal(Signal::SIGHUP);
    wait::for_true("the new user", DEFAULT_TIMEOUT, || {
        text(&curl(&http, Some("bert:other"), &[], &url)) == "ok200 000"
    });
    assert!(text(&curl(&http, right, &[], &url)).ends_with("407 000"));
}

#[test]
fn credentials_file_that_others_can_read_is_refused() {
    let pair = Pair::builder().start();
    let config = pair.dir().join("client.toml");
    let users = pair.dir().join("proxy-users");
    fs::write(&users, "anna:secret\n").unwrap();
    fs::set_permissions(&users, fs::Permissions::from_mode(0o644)).unwrap();
    let text = fs::read_to_string(&config).unwrap();
    let with_key = text.replacen(
        "mode = \"socks5\"",
        "mode = \"socks5\"\ncredentials_file = \"proxy-users\"",
        1,
    );
    assert_ne!(with_key, text);
    fs::write(&config, with_key).unwrap();
    let check = || {
        let mut command = millrace_e2e::binaries::client();
        command.args(["check", "--config"]).arg(&config).output().unwrap()
    };
    let output = check();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(64), "{error}");
    assert!(error.contains("credentials_file") && error.contains("chmod 600"), "{error}");
    assert!(!error.contains("secret"), "{error}");
    fs::set_permissions(&users, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(check().status.success());
}
