//! The list of resources against what the listener answers.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use millrace_config::AdminToken;

use super::tests::{Fixture, OneFlow, send, start_bound};
use super::*;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

fn start_with_token() -> Fixture {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), TOKEN).unwrap();
    fs::set_permissions(file.path(), fs::Permissions::from_mode(0o600)).unwrap();
    let token = Some(AdminToken::read(file.path()).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let access = Access { token, ..Access::default() };
    start_bound(Box::new(OneFlow), BoundListener { listener, access })
}

#[test]
fn the_listed_resources_have_the_methods_and_the_access_that_are_listed() {
    let fixture = start_with_token();
    let token = format!("Authorization: Bearer {TOKEN}\r\n");
    let ask = |method: &str, path: &str, fields: &str| {
        let request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
        let (status, head, _) = send(&fixture.server, &request);
        let allow = head.lines().find_map(|line| line.strip_prefix("allow: ").map(str::to_owned));
        (status, allow)
    };
    for resource in ADMIN_RESOURCES {
        let path = resource.path.replace("CONNECTION", "0a0b");
        assert_eq!(ask("GET", &path, "").0 == 401, resource.needs_token, "{path}");
        let (status, allow) = ask("POST", &path, &token);
        assert_eq!(status, 405, "{path}");
        let listed = resource.methods.join(", ").to_ascii_lowercase();
        assert_eq!(allow, Some(listed), "{path}");
        for (used, _) in resource.uses {
            let (method, path) = used.split_once(' ').unwrap();
            assert!(resource.methods.contains(&method), "{used}");
            let values = [("CONNECTION", "0a0b"), ("NAME", "bbr"), ("=S", "=0.5"), ("=R", "=4")];
            let path = values
                .iter()
                .fold(path.to_owned(), |path, (name, value)| path.replace(name, value));
            let (status, _) = ask(method, &path, &token);
            let is_listed = resource.errors.iter().any(|(error, _)| *error == status);
            assert!(status == 200 || is_listed, "{used}: {status}");
        }
    }
}
