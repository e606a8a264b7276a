//! A minimal HTTP client for admin listeners: requests without a body.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::netns::Namespace;

const TIMEOUT: Duration = Duration::from_secs(2);

/// Longest answer that is read.
const MAX_ANSWER_BYTES: u64 = 4 << 20;

/// The body of `http://address/path`, asked from inside `namespace`. `None` while nothing listens
/// or the answer is not 2xx.
///
/// # Errors
/// When the connection fails in another way than by being refused.
pub fn get(namespace: &Namespace, address: SocketAddr, path: &str) -> Result<Option<String>> {
    namespace.inside(|| get_in_namespace(address, path))
}

/// The same for a thread that is in the right namespace already.
///
/// # Errors
/// As [`get`].
pub fn get_in_namespace(address: SocketAddr, path: &str) -> Result<Option<String>> {
    let answer =
        request("GET", address, path).with_context(|| format!("http://{address}{path}"))?;
    Ok(answer.filter(|answer| answer.good).map(|answer| answer.body))
}

/// Sends a PUT from the calling thread's network.
///
/// # Errors
/// When the answer is not 2xx: the answer.
pub fn put_in_namespace(address: SocketAddr, path: &str) -> Result<()> {
    let place = || format!("PUT http://{address}{path}");
    match request("PUT", address, path).with_context(place)? {
        Some(answer) if answer.good => Ok(()),
        Some(answer) => bail!("{}: {}", place(), answer.body.trim()),
        None => bail!("{}: nothing listens", place()),
    }
}

struct HttpAnswer {
    good: bool,
    body: String,
}

/// Sends a request; `None` while nothing listens.
fn request(method: &str, address: SocketAddr, path: &str) -> Result<Option<HttpAnswer>> {
    let stream = match TcpStream::connect_timeout(&address, TIMEOUT) {
        Ok(stream) => stream,
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Ok(None),
        Err(error) => return Err(error).context("connect"),
    };
    let answer = exchange(stream, method, address, path)?;
    let Some((status, rest)) = answer.split_once("\r\n") else { bail!("no HTTP answer") };
    let good = status.split_ascii_whitespace().nth(1).is_some_and(|code| code.starts_with('2'));
    let body = rest.split_once("\r\n\r\n").map_or("", |(_, body)| body).to_owned();
    Ok(Some(HttpAnswer { good, body }))
}

fn exchange(mut stream: TcpStream, method: &str, host: SocketAddr, path: &str) -> Result<String> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    // HTTP/1.0: the end of the connection is the end of the answer.
    write!(stream, "{method} {path} HTTP/1.0\r\nHost: {host}\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER_BYTES).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
