//! HTTP requests, one a connection, and their whole answers.

use std::io::{Read, Write};
use std::net::SocketAddr;

use millrace_e2e::{listeners, tcp};
use millrace_lab::netns::Namespace;

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    head: String,
    pub body: Vec<u8>,
}

impl Answer {
    /// The value of a header; `None` when it is not there.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// Sends a request from a namespace. `headers` are lines without their ends.
pub fn request(
    from: &Namespace,
    to: &str,
    method: &str,
    target: &str,
    headers: &[&str],
    body: &[u8],
) -> Answer {
    let to: SocketAddr = to.parse().unwrap();
    let mut socket = from.inside(|| Ok(tcp::connect(to)?)).unwrap();
    let mut head = format!("{method} {target} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n");
    for header in headers {
        head.push_str(&format!("{header}\r\n"));
    }
    if !body.is_empty() {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    socket.write_all(format!("{head}\r\n").as_bytes()).unwrap();
    socket.write_all(body).unwrap();
    let head = listeners::read_head(&mut socket).unwrap();
    let mut body = Vec::new();
    socket.read_to_end(&mut body).unwrap();
    Answer { status: listeners::status_of(&head), head, body }
}

/// A GET.
pub fn get(from: &Namespace, to: &str, target: &str, headers: &[&str]) -> Answer {
    request(from, to, "GET", target, headers, b"")
}
