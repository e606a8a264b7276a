//! The origin of a web page.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer};

use crate::value::{Host, from_string};

/// Where a web page comes from, as a browser writes it in the `Origin` field (RFC 6454, Section 6.2):
/// `http://198.18.3.2`, `https://video.example:8443`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebOrigin(String);

impl WebOrigin {
    /// As in the `Origin` field.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WebOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Not written as a browser would.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected an origin as a browser sends it, as \"http://198.18.3.2\"")]
pub struct InvalidOrigin;

impl FromStr for WebOrigin {
    type Err = InvalidOrigin;

    /// Takes only what a browser sends, byte for byte: the two are compared as texts.
    fn from_str(text: &str) -> Result<Self, InvalidOrigin> {
        let (scheme, authority) = text.split_once("://").ok_or(InvalidOrigin)?;
        let own_port = match scheme {
            "http" => 80,
            "https" => 443,
            _ => return Err(InvalidOrigin),
        };
        // The last colon may be part of an IPv6 address.
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (authority, None),
        };
        let host = match host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')) {
            Some(inner) => {
                let address: Ipv6Addr = inner.parse().map_err(|_| InvalidOrigin)?;
                format!("[{address}]")
            }
            None if host.contains(':') => return Err(InvalidOrigin),
            None => host.parse::<Host>().map_err(|_| InvalidOrigin)?.to_string(),
        };
        let port = match port.map(str::parse::<u16>) {
            None => String::new(),
            Some(Ok(port)) if port != own_port && port != 0 => format!(":{port}"),
            Some(_) => return Err(InvalidOrigin),
        };
        let as_sent = format!("{scheme}://{}{port}", host.to_ascii_lowercase());
        if as_sent == text { Ok(Self(as_sent)) } else { Err(InvalidOrigin) }
    }
}

impl<'de> Deserialize<'de> for WebOrigin {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "the origin of a web page as a browser sends it: http:// or https://, a \
                        lower-case host, a port if it is not the scheme's own and nothing else, as \
                        \"http://198.18.3.2\" or \"https://video.example:8443\"";
        from_string(deserializer, expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_browser_sends_is_taken() {
        let origins = [
            "http://198.18.3.2",
            "https://video.example:8443",
            "http://localhost:8081",
            "http://[::1]:8081",
            "https://[2001:2::1]",
            "https://a.example:80",
        ];
        for text in origins {
            assert_eq!(text.parse::<WebOrigin>().unwrap().as_str(), text);
        }
    }

    #[test]
    fn what_no_browser_sends_is_refused() {
        let texts = [
            "",
            "*",
            "null",
            "198.18.3.2",
            "http://",
            "http://198.18.3.2/",
            "http://198.18.3.2/page",
            "http://198.18.3.2:80",
            "https://a.example:443",
            "http://a.example:0",
            "http://a.example:08081",
            "http://a.example:",
            "http://a.example:65536",
            "http://Video.example",
            "HTTP://a.example",
            "ftp://a.example",
            "http://user@a.example",
            "http://*.a.example",
            "http://a b",
            "http://::1",
            "http://[::1",
            "http://[2001:2:0:0::1]",
            "http://a.example\r\nX: y",
        ];
        for text in texts {
            assert_eq!(text.parse::<WebOrigin>(), Err(InvalidOrigin), "{text}");
        }
    }
}
