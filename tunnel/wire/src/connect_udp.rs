//! The path of a CONNECT-UDP request (RFC 9298 §2, §3): the default template,
//! `/.well-known/masque/udp/{target_host}/{target_port}/`.

use std::fmt::Write;

use crate::{AuthorityError, Destination};

/// The `:protocol` of the request (RFC 9298 §3.4).
pub const PROTOCOL: &str = "connect-udp";

/// The field that says that the stream carries capsules, and what it says (RFC 9297 §3.4).
pub const CAPSULE_PROTOCOL: (&str, &str) = ("capsule-protocol", "?1");

const PREFIX: &str = "/.well-known/masque/udp/";

/// Why a path names no destination.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It is another path.
    #[error("the :path is not {PREFIX}{{target_host}}/{{target_port}}/")]
    OtherPath,
    /// A `%` without two hexadecimal digits, or what they stand for is not ASCII.
    #[error("the target_host in :path has a percent-encoding that stands for no ASCII character")]
    BadEncoding,
    /// The host or the port is not valid.
    #[error("the target in :path is not usable: {0}")]
    BadTarget(#[from] AuthorityError),
}

/// Reads the destination from a path.
///
/// # Errors
/// The path is another one, or names no valid destination.
pub fn parse_path(path: &[u8]) -> Result<Destination, PathError> {
    let rest = path.strip_prefix(PREFIX.as_bytes()).ok_or(PathError::OtherPath)?;
    let mut parts = rest.split(|byte| *byte == b'/');
    let (Some(host), Some(port), Some(b""), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(PathError::OtherPath);
    };
    let host = decode(host)?;
    let port = decode(port)?;
    // As in an authority: one spelling of each port.
    let plain = port.bytes().all(|byte| byte.is_ascii_digit()) && !port.starts_with('0');
    let port = plain.then(|| port.parse().ok()).flatten().ok_or(AuthorityError::BadPort)?;
    Ok(Destination::from_host_port(&host, port)?)
}

/// The path for a destination.
pub fn path(destination: &Destination) -> String {
    let (host, port) = match destination {
        Destination::Address(address) => (address.ip().to_string(), address.port()),
        Destination::Name { host, port } => (host.clone(), *port),
    };
    let mut path = PREFIX.to_owned();
    for byte in host.bytes() {
        // RFC 6570 §3.2.2: all but the unreserved characters of RFC 3986; of those a host has these.
        match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'-' | b'.' | b'_' => path.push(byte.into()),
            _ => write!(path, "%{byte:02X}").expect("a String takes all"),
        }
    }
    write!(path, "/{port}/").expect("a String takes all");
    path
}

fn decode(encoded: &[u8]) -> Result<String, PathError> {
    let mut text = String::with_capacity(encoded.len());
    let mut bytes = encoded.iter();
    while let Some(byte) = bytes.next() {
        let byte = match byte {
            b'%' => {
                let mut digit =
                    || bytes.next().and_then(|it| char::from(*it).to_digit(16)).map(|it| it as u8);
                match (digit(), digit()) {
                    (Some(high), Some(low)) => high << 4 | low,
                    _ => return Err(PathError::BadEncoding),
                }
            }
            byte => *byte,
        };
        if !byte.is_ascii() {
            return Err(PathError::BadEncoding);
        }
        text.push(byte.into());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(path: &str) -> Result<Destination, PathError> {
        parse_path(path.as_bytes())
    }

    fn target(rest: &str) -> Result<Destination, PathError> {
        parse(&format!("{PREFIX}{rest}"))
    }

    #[test]
    fn destinations() {
        for (rest, want) in [
            ("192.0.2.6/443/", "192.0.2.6:443"),
            // RFC 9298 §2 has this very one.
            ("2001%3Adb8%3A%3A42/443/", "[2001:db8::42]:443"),
            ("2001%3adb8%3a%3a42/443/", "[2001:db8::42]:443"),
            ("2001:db8::42/443/", "[2001:db8::42]:443"),
            ("Target.Example/53/", "target.example:53"),
            ("%74arget.example/65535/", "target.example:65535"),
            ("192.0.2.6/%34%343/", "192.0.2.6:443"),
        ] {
            assert_eq!(target(rest).map(|it| it.to_string()), Ok(want.to_owned()), "{rest}");
        }
    }

    #[test]
    fn own_paths_are_read_back() {
        for text in ["192.0.2.6:1", "[2001:db8::42]:443", "target_1.example.:65535"] {
            let destination: Destination = text.parse().unwrap();
            assert_eq!(parse(&path(&destination)), Ok(destination), "{text}");
        }
        let six: Destination = "[2001:db8::42]:443".parse().unwrap();
        assert_eq!(path(&six), "/.well-known/masque/udp/2001%3Adb8%3A%3A42/443/");
    }

    #[test]
    fn other_paths() {
        for path in [
            "",
            "/",
            "*",
            "/.well-known/masque/udp/192.0.2.6/443",
            "/.well-known/masque/udp/192.0.2.6/443//",
            "/.well-known/masque/udp/192.0.2.6/443/?x=y",
            "/.well-known/masque/udp/192.0.2.6/443/more/",
            "/.well-known/masque/udp/192.0.2.6/",
            "/.well-known/masque/ip/192.0.2.6/443/",
            "/masque?h=192.0.2.6&p=443",
        ] {
            assert_eq!(parse(path), Err(PathError::OtherPath), "{path}");
        }
    }

    #[test]
    fn bad_targets() {
        use AuthorityError as A;
        for (rest, error) in [
            ("/443/", A::EmptyHost),
            ("192.0.2.6//", A::BadPort),
            ("192.0.2.6/0/", A::BadPort),
            ("192.0.2.6/65536/", A::BadPort),
            ("192.0.2.6/+53/", A::BadPort),
            ("192.0.2.6/053/", A::BadPort),
            ("192.0.2.6/443%20/", A::BadPort),
            ("fe80%3A%3A1%25eth0/443/", A::BadByte(b':')),
            ("a%00b/443/", A::BadByte(0)),
            ("a%2Fb/443/", A::BadByte(b'/')),
        ] {
            assert_eq!(target(rest), Err(PathError::BadTarget(error)), "{rest}");
        }
        for rest in ["a%/443/", "a%2/443/", "a%zz/443/", "a%C3%A4/443/", "%+1/443/"] {
            assert_eq!(target(rest), Err(PathError::BadEncoding), "{rest}");
        }
    }
}
