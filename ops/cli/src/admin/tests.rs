use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::Ordering;

use hyper::{Method, StatusCode};
use millrace_config::{Admin, AdminToken};
use serde_json::Value;

use super::api::{AdminApi, path_segment};
use super::endpoint::AdminEndpoint;
use super::error::AdminApiError;
use super::test_listener::{AdminFixture, TOKEN, flow};
use super::token_users::{TokenUsers, user_name};

fn at(address: &str) -> AdminApi {
    AdminApi::new(AdminEndpoint::given(address.parse().unwrap(), None))
}

fn configured(address: &str) -> anyhow::Result<AdminEndpoint> {
    let address = (address != "none").then(|| address.parse().unwrap());
    let admin = Admin {
        address,
        qlog_dir: None,
        qlog_max_bytes: 0,
        cors_allow_origins: Vec::new(),
        allowed_hosts: Vec::new(),
        token_file: None,
    };
    AdminEndpoint::configured(&admin, Path::new("client.toml"))
}

#[test]
fn a_listener_answers_with_and_without_a_token() {
    let open = AdminFixture::start(vec![flow(1, 2.0)]);
    let json: Value = open.api(None).json(Method::GET, "/flows").unwrap();
    assert_eq!(json["flows"][0]["id"], 1);
    let guarded = AdminFixture::start_with_token(vec![flow(1, 2.0)]);
    guarded.api(Some(TOKEN)).get("/flows").unwrap();
    let error = guarded.api(None).get("/flows").unwrap_err();
    assert!(error.to_string().contains("--token-file"), "{error}");
    let error = guarded.api(Some(&TOKEN.replace('f', "e"))).get("/flows").unwrap_err();
    assert!(matches!(error, AdminApiError::WrongToken { .. }), "{error}");
    assert!(error.to_string().contains(&guarded.address().to_string()), "{error}");
}

/// A listener of a user that can't read the token, as while the program is down.
#[test]
fn the_token_does_not_go_to_a_listener_of_another_user() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let received = std::thread::spawn(move || {
        let mut received = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut received).unwrap();
        received
    });
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "{TOKEN}").unwrap();
    let token = AdminToken::read(file.path()).unwrap();
    let mut endpoint = AdminEndpoint::given(address.parse().unwrap(), Some(token));
    endpoint.token_users = TokenUsers::default();
    let error = AdminApi::new(endpoint).get("/flows").unwrap_err();
    let AdminApiError::OtherUser { at, user } = &error else { panic!("{error}") };
    assert_eq!(*at, address);
    assert_eq!(*user, user_name(nix::unistd::geteuid().as_raw()));
    assert_eq!(received.join().unwrap(), b"");
}

#[test]
fn health_is_a_reason_or_none() {
    let fixture = AdminFixture::start(Vec::new());
    assert_eq!(fixture.api(None).health_problem(), Ok(None));
    fixture.healthy.store(false, Ordering::Relaxed);
    let reason = Some("no connection to a server".to_owned());
    assert_eq!(fixture.api(None).health_problem(), Ok(reason));
}

#[test]
fn a_refusal_has_the_text_of_the_answer() {
    let fixture = AdminFixture::start(Vec::new());
    let error = fixture.api(None).get("/nothing").unwrap_err();
    let AdminApiError::Refused { status, answer, .. } = &error else { panic!("{error}") };
    assert_eq!(*status, StatusCode::NOT_FOUND);
    assert!(answer.starts_with("there are / "), "{answer}");
}

#[test]
fn a_listener_that_is_not_there_and_another_service_are_told_apart() {
    let gone = AdminFixture::start(Vec::new());
    let (address, api) = (gone.address(), gone.api(None));
    drop(gone);
    let error = api.get("/flows").unwrap_err();
    assert!(matches!(error, AdminApiError::NotListening { .. }), "{error}");
    assert!(error.to_string().starts_with(&format!("nothing listens at {address}")), "{error}");

    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let service = std::thread::spawn(move || {
        for answer in ["", "SSH-2.0-server\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nno"] {
            let (mut connection, _) = other.accept().unwrap();
            let request = connection.read(&mut [0; 1024]).unwrap();
            assert!(request > 0);
            connection.write_all(answer.as_bytes()).unwrap();
        }
    });
    let words = ["closes the connection", "not HTTP/1.1", "expected"];
    for word in words {
        let error = at(&address).json::<Value>(Method::GET, "/flows").unwrap_err();
        assert!(matches!(error, AdminApiError::OtherService { .. }), "{error}");
        assert!(error.to_string().contains(word), "{word}: {error}");
    }
    service.join().unwrap();
}

#[test]
fn the_address_of_a_configuration_can_be_connected_to() {
    let of = |address: &str| configured(address).unwrap().address.to_string();
    assert_eq!(of("127.0.0.1:9464"), "127.0.0.1:9464");
    assert_eq!(of("0.0.0.0:9464"), "127.0.0.1:9464");
    assert_eq!(of("[::]:9464"), "[::1]:9464");
    let shown = configured("127.0.0.1:9464").unwrap().to_string();
    assert_eq!(shown, "127.0.0.1:9464 (admin.address of client.toml)");
    for (address, word) in [("none", "no admin listener"), ("127.0.0.1:0", "--admin")] {
        let error = configured(address).unwrap_err().to_string();
        assert!(error.starts_with("client.toml: ") && error.contains(word), "{error}");
    }
}

#[test]
fn parts_of_a_path_can_not_become_another_path() {
    assert_eq!(path_segment("a/../b c?d"), "a%2F..%2Fb%20c%3Fd");
    assert_eq!(path_segment("vivace-latency_1.0~"), "vivace-latency_1.0~");
}
