//! Values that check themselves while they are read, so that the parser knows their line.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use serde::de::{self, Deserialize, Deserializer, Unexpected, Visitor};

/// An integer with its default and its bounds, both inclusive.
#[derive(Clone, Copy)]
pub(crate) struct Int<const DEFAULT: u64, const MIN: u64, const MAX: u64>(u64);

impl<const DEFAULT: u64, const MIN: u64, const MAX: u64> Int<DEFAULT, MIN, MAX> {
    /// The value in a type whose range the caller knows to hold `MIN..=MAX`.
    pub(crate) fn get<T: TryFrom<u64>>(self) -> T {
        match T::try_from(self.0) {
            Ok(value) => value,
            Err(_) => unreachable!("MAX is within the type's range"),
        }
    }

    pub(crate) fn seconds(self) -> Duration {
        Duration::from_secs(self.0)
    }

    pub(crate) fn milliseconds(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl<const DEFAULT: u64, const MIN: u64, const MAX: u64> Default for Int<DEFAULT, MIN, MAX> {
    fn default() -> Self {
        const { assert!(MIN <= DEFAULT && DEFAULT <= MAX) };
        Self(DEFAULT)
    }
}

impl<'de, const DEFAULT: u64, const MIN: u64, const MAX: u64> Deserialize<'de>
    for Int<DEFAULT, MIN, MAX>
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Range<const MIN: u64, const MAX: u64>;
        impl<const MIN: u64, const MAX: u64> Visitor<'_> for Range<MIN, MAX> {
            type Value = u64;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "an integer from {MIN} to {MAX}")
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<u64, E> {
                match u64::try_from(value) {
                    Ok(value) => self.visit_u64(value),
                    Err(_) => Err(E::invalid_value(Unexpected::Signed(value), &self)),
                }
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<u64, E> {
                if (MIN..=MAX).contains(&value) {
                    Ok(value)
                } else {
                    Err(E::invalid_value(Unexpected::Unsigned(value), &self))
                }
            }
        }
        deserializer.deserialize_u64(Range::<MIN, MAX>).map(Self)
    }
}

/// Deserializes a string through `FromStr`; `expected` says what would be right.
pub(crate) fn from_string<'de, D: Deserializer<'de>, T: FromStr>(
    deserializer: D,
    expected: &'static str,
) -> Result<T, D::Error> {
    struct Text<T>(&'static str, std::marker::PhantomData<T>);
    impl<T: FromStr> Visitor<'_> for Text<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_str<E: de::Error>(self, value: &str) -> Result<T, E> {
            value.parse().map_err(|_| E::invalid_value(Unexpected::Str(value), &self))
        }
    }
    deserializer.deserialize_str(Text(expected, std::marker::PhantomData))
}

/// An address to bind, port 0 included.
#[derive(Clone, Copy)]
pub(crate) struct BindAddress(pub(crate) SocketAddr);

impl<'de> Deserialize<'de> for BindAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "an IP address and port, as \"127.0.0.1:8080\" or \"[::1]:8080\"";
        from_string(deserializer, expected).map(Self)
    }
}

/// A host as it is written: an address, or a name that is still to be resolved.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// An IP address.
    Ip(IpAddr),
    /// A DNS name, at most 253 characters; never a legacy spelling of an address such as `0x7f.1`.
    Name(String),
}

impl FromStr for Host {
    type Err = InvalidHost;

    fn from_str(text: &str) -> Result<Self, InvalidHost> {
        if let Ok(address) = text.parse() {
            return Ok(Self::Ip(address));
        }
        if is_dns_name(text) { Ok(Self::Name(text.to_owned())) } else { Err(InvalidHost) }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl<'de> Deserialize<'de> for Host {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_string(deserializer, "a DNS name or an IP address")
    }
}

/// Not an IP address and not a DNS name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a DNS name or an IP address, with a port as \"host:4433\" or \"[::1]:4433\"")]
pub struct InvalidHost;

/// A host and a port from 1 to 65535, written `host:4433`, `198.18.2.2:4433` or `[::1]:4433`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// Name or address.
    pub host: Host,
    /// Port, never 0.
    pub port: u16,
}

impl FromStr for HostPort {
    type Err = InvalidHost;

    fn from_str(text: &str) -> Result<Self, InvalidHost> {
        let (host, port) = text.rsplit_once(':').ok_or(InvalidHost)?;
        if !port.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(InvalidHost);
        }
        let port = port.parse().ok().filter(|port| *port != 0).ok_or(InvalidHost)?;
        let host = match host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')) {
            Some(inner) => Host::Ip(inner.parse::<Ipv6Addr>().map_err(|_| InvalidHost)?.into()),
            // Without brackets the port of "::1:4433" could be part of the address.
            None if host.contains(':') => return Err(InvalidHost),
            None => host.parse()?,
        };
        Ok(Self { host, port })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Ip(address) => SocketAddr::new(*address, self.port).fmt(f),
            Host::Name(name) => write!(f, "{name}:{}", self.port),
        }
    }
}

impl<'de> Deserialize<'de> for HostPort {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "a host and a port from 1 to 65535, as \"host:4433\" or \"[::1]:4433\"";
        from_string(deserializer, expected)
    }
}

// RFC 1123 §2.1 host names, underscore too. A last label that is a number makes resolvers read the
// whole as an IPv4 address in a legacy form (0x7f.1, 2130706433), which is never intended here.
fn is_dns_name(text: &str) -> bool {
    let name = text.strip_suffix('.').unwrap_or(text);
    let label_is_valid = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    let last = name.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    let last_is_number = last.bytes().all(|byte| byte.is_ascii_digit())
        || last
            .strip_prefix("0x")
            .is_some_and(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
    name.len() <= 253 && name.split('.').all(label_is_valid) && !last_is_number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_with_ports_are_read_and_shown_alike() {
        for text in ["198.18.2.2:4433", "[::1]:80", "edge.example.net:1", "localhost:65535"] {
            assert_eq!(text.parse::<HostPort>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_host_with_port_is_refused() {
        let cases = [
            "",
            ":",
            "host",
            "host:",
            ":80",
            "host:0",
            "host:65536",
            "host:+80",
            "::1:80",
            "[::1]",
            "[::1]:",
            "[host]:80",
            "a b:80",
            "-a:80",
            "a..b:80",
            "0x7f.1:80",
            "2130706433:80",
            "127.1:80",
            "1.2.3.256:80",
        ];
        for text in cases {
            assert_eq!(text.parse::<HostPort>(), Err(InvalidHost), "{text}");
        }
    }
}
