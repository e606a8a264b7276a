//! SOCKS version 5 (RFC 1928), proxy side: CONNECT without authentication, or with a user name and a password (RFC 1929).
//!
//! The dialogue: the client's greeting ([`parse_greeting`]), [`METHOD_NO_AUTHENTICATION`] or
//! [`METHOD_UNACCEPTABLE`], or [`METHOD_PASSWORD`], the client's name and password ([`parse_password`]) and
//! [`PASSWORD_ACCEPTED`] or [`PASSWORD_REFUSED`]; the request ([`parse_request`]), a reply ([`encode_reply`]).

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::{ConnectFailure, Destination, Parsed};

/// The longest request, in bytes: header, length, a name of 255 bytes, port.
pub const MAX_REQUEST_BYTES: usize = 4 + 1 + 255 + 2;

/// The longest greeting, in bytes.
pub const MAX_GREETING_BYTES: usize = 2 + 255;

/// Answer to a greeting that offers to go without authentication (RFC 1928 §3).
pub const METHOD_NO_AUTHENTICATION: [u8; 2] = [5, 0x00];

/// Answer to a greeting that offers a user name and a password (RFC 1928 §3).
pub const METHOD_PASSWORD: [u8; 2] = [5, 0x02];

/// Answer to a user name and a password that are right (RFC 1929 §2).
pub const PASSWORD_ACCEPTED: [u8; 2] = [1, 0x00];

/// Answer to others; the server must then close (RFC 1929 §2).
pub const PASSWORD_REFUSED: [u8; 2] = [1, 0x01];

/// The longest user name with its password, in bytes.
pub const MAX_PASSWORD_BYTES: usize = 1 + 1 + 255 + 1 + 255;

/// Answer to a greeting that does not; the client must then close (RFC 1928 §3).
pub const METHOD_UNACCEPTABLE: [u8; 2] = [5, 0xff];

/// The code of a reply (RFC 1928 §6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Reply {
    /// The destination is connected.
    Succeeded = 0,
    /// Anything that no other code says.
    GeneralFailure = 1,
    /// Not allowed by the allow-list.
    NotAllowed = 2,
    /// Network unreachable.
    NetworkUnreachable = 3,
    /// Host unreachable, or its name does not resolve.
    HostUnreachable = 4,
    /// Connection refused.
    Refused = 5,
    /// TTL expired; said of a time-out.
    TtlExpired = 6,
    /// Not CONNECT.
    CommandNotSupported = 7,
    /// An address type that RFC 1928 does not have.
    AddressTypeNotSupported = 8,
}

impl From<ConnectFailure> for Reply {
    fn from(failure: ConnectFailure) -> Self {
        match failure.socks5_code() {
            2 => Self::NotAllowed,
            3 => Self::NetworkUnreachable,
            4 => Self::HostUnreachable,
            5 => Self::Refused,
            6 => Self::TtlExpired,
            _ => Self::GeneralFailure,
        }
    }
}

/// What a greeting offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Greeting {
    /// Whether "no authentication required" is among the methods offered. If not, the answer is
    /// [`METHOD_UNACCEPTABLE`] and a close.
    pub offers_no_authentication: bool,
    /// Whether "username/password" is among them.
    pub offers_password: bool,
}

/// What a client shows to be let in.
#[derive(Clone, PartialEq, Eq)]
pub struct SocksCredentials {
    /// The user name, of at most 255 bytes.
    pub name: Vec<u8>,
    /// The password, of at most 255 bytes.
    pub password: Vec<u8>,
}

impl fmt::Debug for SocksCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SocksCredentials")
    }
}

/// Why the bytes are no request that can be served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Socks5Error {
    /// The first byte is not 5.
    #[error("the client speaks SOCKS version {0}; expected 5")]
    UnsupportedVersion(u8),
    /// The first byte of the user name and password is not 1.
    #[error("the client's password message has version {0}; expected 1 (RFC 1929)")]
    UnsupportedPasswordVersion(u8),
    /// A command other than CONNECT: BIND, UDP ASSOCIATE or unknown.
    #[error("SOCKS command {0} is not supported; only 1 (CONNECT) is")]
    UnsupportedCommand(u8),
    /// The reserved byte is not 0.
    #[error("the reserved byte of the SOCKS request is {0:#04x}; expected 0")]
    ReservedByte(u8),
    /// An address type other than IPv4, name, IPv6.
    #[error("SOCKS address type {0} is unknown; expected 1 (IPv4), 3 (name) or 4 (IPv6)")]
    UnsupportedAddressType(u8),
    /// A name that no destination can have, or port 0.
    #[error("the SOCKS request's destination is not usable: {0}")]
    BadDestination(#[from] crate::AuthorityError),
    /// A name that is not even UTF-8.
    #[error("the SOCKS request's host name is not text")]
    NameNotText,
}

impl Socks5Error {
    /// The reply to send before closing; `None` for a peer that does not speak SOCKS5 and would not
    /// understand one.
    pub fn reply(&self) -> Option<Reply> {
        match self {
            Self::UnsupportedVersion(_) | Self::UnsupportedPasswordVersion(_) => None,
            Self::UnsupportedCommand(_) => Some(Reply::CommandNotSupported),
            Self::UnsupportedAddressType(_) => Some(Reply::AddressTypeNotSupported),
            Self::ReservedByte(_) | Self::BadDestination(_) | Self::NameNotText => {
                Some(Reply::GeneralFailure)
            }
        }
    }
}

/// Parses the greeting: version, number of methods, methods (RFC 1928 §3). A greeting of no methods
/// is whole, and offers nothing.
///
/// # Errors
/// [`Socks5Error::UnsupportedVersion`].
pub fn parse_greeting(buf: &[u8]) -> Result<Parsed<Greeting>, Socks5Error> {
    check_version(buf)?;
    let Some(&methods) = buf.get(1) else {
        return Ok(Parsed::Incomplete);
    };
    let consumed = 2 + usize::from(methods);
    Ok(match buf.get(2..consumed) {
        None => Parsed::Incomplete,
        Some(methods) => Parsed::Complete {
            value: Greeting {
                offers_no_authentication: methods.contains(&0),
                offers_password: methods.contains(&2),
            },
            consumed,
        },
    })
}

/// Parses a user name and a password: version, length, name, length, password (RFC 1929 §2).
///
/// # Errors
/// [`Socks5Error::UnsupportedPasswordVersion`].
pub fn parse_password(buf: &[u8]) -> Result<Parsed<SocksCredentials>, Socks5Error> {
    match buf.first() {
        None | Some(1) => {}
        Some(&version) => return Err(Socks5Error::UnsupportedPasswordVersion(version)),
    }
    let text_at = |at: usize| {
        let length = usize::from(*buf.get(at)?);
        buf.get(at + 1..at + 1 + length)
    };
    let Some(name) = text_at(1) else { return Ok(Parsed::Incomplete) };
    let Some(password) = text_at(2 + name.len()) else { return Ok(Parsed::Incomplete) };
    let consumed = 3 + name.len() + password.len();
    let value = SocksCredentials { name: name.to_vec(), password: password.to_vec() };
    Ok(Parsed::Complete { value, consumed })
}

/// Parses the request: version, command, reserved, address type, address, port (RFC 1928 §4). A
/// name that is the canonical text of an IP address counts as that address.
///
/// # Errors
/// The bytes are no request that can be served; [`Socks5Error::reply`] is the reply to send.
pub fn parse_request(buf: &[u8]) -> Result<Parsed<Destination>, Socks5Error> {
    check_version(buf)?;
    match buf.get(1) {
        None | Some(1) => {}
        Some(&command) => return Err(Socks5Error::UnsupportedCommand(command)),
    }
    match buf.get(2) {
        None | Some(0) => {}
        Some(&byte) => return Err(Socks5Error::ReservedByte(byte)),
    }
    let (address_at, address_bytes) = match buf.get(3) {
        None => return Ok(Parsed::Incomplete),
        Some(1) => (4, 4),
        Some(4) => (4, 16),
        Some(3) => match buf.get(4) {
            None => return Ok(Parsed::Incomplete),
            Some(&length) => (5, usize::from(length)),
        },
        Some(&kind) => return Err(Socks5Error::UnsupportedAddressType(kind)),
    };
    let port_at = address_at + address_bytes;
    let Some(&[high, low]) = buf.get(port_at..port_at + 2) else {
        return Ok(Parsed::Incomplete);
    };
    let port = u16::from_be_bytes([high, low]);
    let address = &buf[address_at..port_at];
    let value = if let Ok(ip) = <[u8; 4]>::try_from(address)
        && buf[3] == 1
    {
        Destination::from_address((Ipv4Addr::from(ip), port).into())?
    } else if let Ok(ip) = <[u8; 16]>::try_from(address)
        && buf[3] == 4
    {
        Destination::from_address((Ipv6Addr::from(ip), port).into())?
    } else {
        let host = std::str::from_utf8(address).map_err(|_| Socks5Error::NameNotText)?;
        Destination::from_host_port(host, port)?
    };
    Ok(Parsed::Complete { value, consumed: port_at + 2 })
}

fn check_version(buf: &[u8]) -> Result<(), Socks5Error> {
    match buf.first() {
        None | Some(5) => Ok(()),
        Some(&version) => Err(Socks5Error::UnsupportedVersion(version)),
    }
}

/// Encodes a reply (RFC 1928 §6) with the address that the proxy's own connection to the
/// destination is bound to, or 0.0.0.0:0 where that is unknown, as it is at this end of a tunnel.
pub fn encode_reply(reply: Reply, bound: Option<SocketAddr>) -> Vec<u8> {
    let bound = bound.unwrap_or((Ipv4Addr::UNSPECIFIED, 0).into());
    let mut bytes = vec![5, reply as u8, 0];
    match bound {
        SocketAddr::V4(v4) => {
            bytes.push(1);
            bytes.extend(v4.ip().octets());
        }
        SocketAddr::V6(v6) => {
            bytes.push(4);
            bytes.extend(v6.ip().octets());
        }
    }
    bytes.extend(bound.port().to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AuthorityError, test_support::assert_incremental};

    fn request(kind: u8, address: &[u8], port: u16) -> Vec<u8> {
        [&[5, 1, 0, kind][..], address, &port.to_be_bytes()].concat()
    }

    fn named(name: &[u8], port: u16) -> Vec<u8> {
        let length = u8::try_from(name.len()).unwrap();
        request(3, &[&[length][..], name].concat(), port)
    }

    #[test]
    fn greetings() {
        let both = |offers_no_authentication, offers_password| Greeting {
            offers_no_authentication,
            offers_password,
        };
        let offers = |offers_no_authentication| both(offers_no_authentication, false);
        assert_incremental(parse_greeting, &[5, 1, 0], &offers(true));
        assert_incremental(parse_greeting, &[5, 3, 2, 1, 0], &both(true, true));
        assert_incremental(parse_greeting, &[5, 1, 2], &both(false, true));
        assert_incremental(parse_greeting, &[5, 0], &offers(false));
        let all = [&[5, 255][..], &[3; 255]].concat();
        assert_eq!(all.len(), MAX_GREETING_BYTES);
        assert_incremental(parse_greeting, &all, &offers(false));
        for version in [0, 4, b'G', 0xff] {
            let error = parse_greeting(&[version]).unwrap_err();
            assert_eq!(error, Socks5Error::UnsupportedVersion(version));
            assert_eq!(error.reply(), None);
        }
    }

    #[test]
    fn passwords() {
        let credentials = |name: &[u8], password: &[u8]| SocksCredentials {
            name: name.to_vec(),
            password: password.to_vec(),
        };
        let message = |name: &[u8], password: &[u8]| {
            let length = |text: &[u8]| u8::try_from(text.len()).unwrap();
            [&[1, length(name)][..], name, &[length(password)], password].concat()
        };
        let longest = [b'x'; 255];
        for (name, password) in
            [(&b"anna"[..], &b"secret"[..]), (b"", b""), (b"a", b""), (&longest, &longest)]
        {
            let bytes = message(name, password);
            assert!(bytes.len() <= MAX_PASSWORD_BYTES);
            assert_incremental(parse_password, &bytes, &credentials(name, password));
        }
        assert_eq!(message(&longest, &longest).len(), MAX_PASSWORD_BYTES);
        let error = parse_password(&[5, 1]).unwrap_err();
        assert_eq!(error, Socks5Error::UnsupportedPasswordVersion(5));
        assert_eq!(error.reply(), None);
        assert!(!format!("{:?}", credentials(b"anna", b"secret")).contains("anna"));
    }

    #[test]
    fn requests() {
        let longest = format!("{0}.{0}.{0}.{1}.", "a".repeat(63), "b".repeat(61));
        for (bytes, authority) in [
            (request(1, &[192, 0, 2, 1], 80), "192.0.2.1:80"),
            (request(4, &Ipv6Addr::LOCALHOST.octets(), 443), "[::1]:443"),
            (named(b"origin.example", 554), "origin.example:554"),
            (named(b"Origin.EXAMPLE", 554), "origin.example:554"),
            (named(b"127.0.0.1", 80), "127.0.0.1:80"),
            (named(b"::1", 80), "[::1]:80"),
            (named(b"127.1", 80), "127.1:80"),
            (named(b"abcd", 80), "abcd:80"),
            (named(b"abcdefghijklmnop", 80), "abcdefghijklmnop:80"),
            (named(longest.as_bytes(), 65535), &format!("{longest}:65535")),
        ] {
            assert!(bytes.len() <= MAX_REQUEST_BYTES);
            assert_incremental(parse_request, &bytes, &authority.parse().unwrap());
        }
        // A name has at most 255 bytes, because its length is one (RFC 1928, Section 5).
        assert_eq!(named(&[b'a'; 255], 1).len(), MAX_REQUEST_BYTES);
    }

    #[test]
    fn requests_refused() {
        for (bytes, error, reply) in [
            (vec![4, 1], Socks5Error::UnsupportedVersion(4), None),
            (vec![5, 2], Socks5Error::UnsupportedCommand(2), Some(Reply::CommandNotSupported)),
            (
                vec![5, 3, 0, 1],
                Socks5Error::UnsupportedCommand(3),
                Some(Reply::CommandNotSupported),
            ),
            (vec![5, 0], Socks5Error::UnsupportedCommand(0), Some(Reply::CommandNotSupported)),
            (vec![5, 1, 1], Socks5Error::ReservedByte(1), Some(Reply::GeneralFailure)),
            (
                vec![5, 1, 0, 2],
                Socks5Error::UnsupportedAddressType(2),
                Some(Reply::AddressTypeNotSupported),
            ),
            (
                request(1, &[192, 0, 2, 1], 0),
                Socks5Error::BadDestination(AuthorityError::BadPort),
                Some(Reply::GeneralFailure),
            ),
            (
                named(b"", 80),
                Socks5Error::BadDestination(AuthorityError::EmptyHost),
                Some(Reply::GeneralFailure),
            ),
            (
                named(b"a b", 80),
                Socks5Error::BadDestination(AuthorityError::BadByte(b' ')),
                Some(Reply::GeneralFailure),
            ),
            (
                named(&[b'a'; 255], 80),
                Socks5Error::BadDestination(AuthorityError::TooLong),
                Some(Reply::GeneralFailure),
            ),
            (named(&[0xff, 0xfe], 80), Socks5Error::NameNotText, Some(Reply::GeneralFailure)),
        ] {
            assert_eq!(parse_request(&bytes), Err(error.clone()), "{bytes:?}");
            assert_eq!(error.reply(), reply, "{error}");
        }
    }

    #[test]
    fn replies() {
        assert_eq!(encode_reply(Reply::Succeeded, None), [5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        let bound = Some("[2001:db8::1]:258".parse().unwrap());
        let ipv6 = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        let want = [&[5, 0, 0, 4][..], &ipv6, &[1, 2]].concat();
        assert_eq!(encode_reply(Reply::Succeeded, bound), want);
        for failure in ConnectFailure::ALL {
            assert_eq!(encode_reply(failure.into(), None)[1], failure.socks5_code(), "{failure}");
        }
    }
}
