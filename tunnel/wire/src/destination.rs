//! Where a flow wants to go: an address, or a name that the server resolves.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    str::FromStr,
};

/// Longest host name, in bytes, without a trailing dot (RFC 1035 §2.3.4 in text form).
pub const MAX_HOST_BYTES: usize = 253;

/// Longest label of a host name, in bytes (RFC 1035 §2.3.4).
const MAX_LABEL_BYTES: usize = 63;

/// Where a flow wants to go.
///
/// Only the canonical text of an IP address becomes [`Destination::Address`]. Other spellings that
/// some resolvers take for an address (`127.1`, `0177.0.0.1`, `0x7f.1`, `2130706433`, `10.0.0.1.`)
/// stay a [`Destination::Name`], so a resolver's caller must check the *resolved* address against
/// its allow-list, as for every name. An IPv4-mapped IPv6 address stays IPv6 for the same reason:
/// the check, not this type, decides what it stands for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Destination {
    /// An IP address and a port that is not 0.
    Address(SocketAddr),
    /// A host name in lower case, one to [`MAX_HOST_BYTES`] bytes of letters, digits, `-`, `_` and
    /// `.`, and a port that is not 0. May end in a dot (an absolute name).
    Name {
        /// The name, in lower case.
        host: String,
        /// The TCP port, never 0.
        port: u16,
    },
}

/// Why a text is no authority that a CONNECT may name (RFC 9110 §7.2, §9.3.6; RFC 3986 §3.2).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthorityError {
    /// Nothing before the port.
    #[error("the host is empty; expected host:port")]
    EmptyHost,
    /// No `:port`.
    #[error("the port is missing; expected host:port, with an IPv6 address in brackets")]
    MissingPort,
    /// The port is not 1 to 65535 in plain decimal.
    #[error("the port is not a decimal number from 1 to 65535")]
    BadPort,
    /// There is an `@`.
    #[error("user information before the host is not allowed")]
    UserInfo,
    /// The host is longer than [`MAX_HOST_BYTES`].
    #[error("the host is longer than {MAX_HOST_BYTES} bytes")]
    TooLong,
    /// A label is empty or longer than 63 bytes.
    #[error("a label of the host is empty or longer than {MAX_LABEL_BYTES} bytes")]
    BadLabel,
    /// A byte that no host name has.
    #[error(
        "the host has the byte {0:#04x}; only letters, digits, '-', '_' and '.' are allowed \
         (write an international name in its xn-- form)"
    )]
    BadByte(u8),
    /// What is in brackets is no IPv6 address (zone identifiers are not allowed either).
    #[error("the text in brackets is not an IPv6 address without a zone")]
    BadIpv6,
}

/// Parses `host:port` or `[IPv6]:port`, the form a CONNECT request names its destination in
/// (RFC 9110 §9.3.6). The port must be there, in plain decimal without leading zeros, and not 0.
///
/// # Errors
/// Everything else, with the reason; nothing is trimmed or guessed.
pub fn parse_authority(text: &str) -> Result<Destination, AuthorityError> {
    if text.contains('@') {
        return Err(AuthorityError::UserInfo);
    }
    if let Some(rest) = text.strip_prefix('[') {
        let (inside, after) = rest.split_once(']').ok_or(AuthorityError::BadIpv6)?;
        // Ipv6Addr's parser takes no zone, unlike SocketAddrV6's.
        let address: Ipv6Addr = inside.parse().map_err(|_| AuthorityError::BadIpv6)?;
        let port = after.strip_prefix(':').ok_or(AuthorityError::MissingPort)?;
        return Ok(Destination::Address((address, parse_port(port)?).into()));
    }
    let (host, port) = text.rsplit_once(':').ok_or(AuthorityError::MissingPort)?;
    let port = parse_port(port)?;
    if let Ok(address) = host.parse::<Ipv4Addr>() {
        return Ok(Destination::Address((address, port).into()));
    }
    Ok(Destination::Name { host: parse_name(host)?, port })
}

impl Destination {
    /// A destination from a host and a port that arrived apart (SOCKS5). The host may be an IPv4 or
    /// IPv6 address in its canonical text, without brackets, or a name.
    ///
    /// # Errors
    /// [`AuthorityError`] as for [`parse_authority`].
    pub fn from_host_port(host: &str, port: u16) -> Result<Self, AuthorityError> {
        if port == 0 {
            return Err(AuthorityError::BadPort);
        }
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(Self::Address((address, port).into()));
        }
        Ok(Self::Name { host: parse_name(host)?, port })
    }

    /// A destination from a socket address, without its IPv6 zone and flow label, which mean
    /// nothing on another machine.
    ///
    /// # Errors
    /// [`AuthorityError::BadPort`] if the port is 0.
    pub fn from_address(address: SocketAddr) -> Result<Self, AuthorityError> {
        if address.port() == 0 {
            return Err(AuthorityError::BadPort);
        }
        Ok(Self::Address((address.ip(), address.port()).into()))
    }

    /// The same host with another port, which must not be 0.
    #[must_use]
    pub fn with_port(&self, port: u16) -> Self {
        debug_assert_ne!(port, 0);
        match self {
            Self::Address(address) => Self::Address((address.ip(), port).into()),
            Self::Name { host, .. } => Self::Name { host: host.clone(), port },
        }
    }

    /// The TCP port, never 0.
    pub fn port(&self) -> u16 {
        match self {
            Self::Address(address) => address.port(),
            Self::Name { port, .. } => *port,
        }
    }
}

/// The authority form: `host:port`, IPv6 in brackets. [`parse_authority`] reads it back.
impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Name { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

impl FromStr for Destination {
    type Err = AuthorityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_authority(text)
    }
}

fn parse_port(text: &str) -> Result<u16, AuthorityError> {
    // u16's own parser takes "+80" and "0080"; a port has only one spelling here.
    if !text.bytes().all(|b| b.is_ascii_digit()) || text.starts_with('0') {
        return Err(AuthorityError::BadPort);
    }
    text.parse().map_err(|_| AuthorityError::BadPort)
}

fn parse_name(host: &str) -> Result<String, AuthorityError> {
    if host.is_empty() {
        return Err(AuthorityError::EmptyHost);
    }
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if let Some(bad) = host.bytes().find(|&b| !allowed(b)) {
        return Err(AuthorityError::BadByte(bad));
    }
    let relative = host.strip_suffix('.').unwrap_or(host);
    if relative.len() > MAX_HOST_BYTES {
        return Err(AuthorityError::TooLong);
    }
    if relative.split('.').any(|label| label.is_empty() || label.len() > MAX_LABEL_BYTES) {
        return Err(AuthorityError::BadLabel);
    }
    Ok(host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(host: &str, port: u16) -> Destination {
        Destination::Name { host: host.into(), port }
    }

    #[test]
    fn both_kinds_have_their_port() {
        let port = |text: &str| text.parse::<Destination>().unwrap().port();
        assert_eq!(["192.0.2.1:80", "[::1]:443", "origin.example:8554"].map(port), [80, 443, 8554]);
    }

    #[test]
    fn addresses_are_canonical_only() {
        for (text, address) in [
            ("192.0.2.1:80", "192.0.2.1:80"),
            ("255.255.255.255:65535", "255.255.255.255:65535"),
            ("[::1]:443", "[::1]:443"),
            ("[2001:DB8:0:0::1]:1", "[2001:db8::1]:1"),
            ("[::ffff:127.0.0.1]:80", "[::ffff:127.0.0.1]:80"),
        ] {
            let want = Destination::Address(address.parse().unwrap());
            assert_eq!(parse_authority(text), Ok(want.clone()), "{text}");
            assert_eq!(parse_authority(&want.to_string()), Ok(want), "{text}");
        }
    }

    #[test]
    fn numeric_looking_hosts_stay_names() {
        for host in ["0x7f.1", "2130706433", "127.1", "0177.0.0.1", "127.0.0.1.", "1.2.3.4.5"] {
            assert_eq!(parse_authority(&format!("{host}:80")), Ok(name(host, 80)), "{host}");
        }
    }

    #[test]
    fn names() {
        let longest_label = "a".repeat(63);
        let longest = format!("{0}.{0}.{0}.{1}", longest_label, "b".repeat(61));
        assert_eq!(longest.len(), MAX_HOST_BYTES);
        for host in ["localhost", "a", "xn--bcher-kva.example", "_srv.example", "example.org."] {
            assert_eq!(parse_authority(&format!("{host}:8080")), Ok(name(host, 8080)), "{host}");
        }
        assert_eq!(parse_authority(&format!("{longest}:1")), Ok(name(&longest, 1)));
        let rooted = format!("{longest}.");
        assert_eq!(parse_authority(&format!("{rooted}:1")), Ok(name(&rooted, 1)));
        assert_eq!(parse_authority("EXAMPLE.Org:443"), Ok(name("example.org", 443)));
    }

    #[test]
    fn refused() {
        use AuthorityError::*;
        let over_long = format!("{0}.{0}.{0}.{1}:80", "a".repeat(63), "b".repeat(62));
        let long_label = format!("{}:80", "a".repeat(64));
        for (text, error) in [
            ("", MissingPort),
            ("example.org", MissingPort),
            (":80", EmptyHost),
            ("example.org:", BadPort),
            ("example.org:0", BadPort),
            ("example.org:00080", BadPort),
            ("example.org:+80", BadPort),
            ("example.org:-1", BadPort),
            ("example.org:65536", BadPort),
            ("example.org:99999999999999999999", BadPort),
            ("example.org:80 ", BadPort),
            ("example.org:8O", BadPort),
            ("example.org:80/", BadPort),
            ("example.org:\u{664}", BadPort),
            ("user@example.org:80", UserInfo),
            ("user:password@example.org:80", UserInfo),
            ("@:80", UserInfo),
            (" example.org:80", BadByte(b' ')),
            ("exa mple.org:80", BadByte(b' ')),
            ("example.org\t:80", BadByte(b'\t')),
            ("exa\0mple.org:80", BadByte(0)),
            ("exa\r\nmple.org:80", BadByte(b'\r')),
            ("ex\u{7f}:80", BadByte(0x7f)),
            ("b\u{fc}cher.example:80", BadByte(0xc3)),
            ("exam%70le.org:80", BadByte(b'%')),
            ("http://example.org:80", BadByte(b':')),
            ("example.org/path:80", BadByte(b'/')),
            ("::1:80", BadByte(b':')),
            ("*:80", BadByte(b'*')),
            (".:80", BadLabel),
            ("..:80", BadLabel),
            (".example.org:80", BadLabel),
            ("a..b:80", BadLabel),
            ("a..:80", BadLabel),
            (&long_label, BadLabel),
            (&over_long, TooLong),
            ("[::1]", MissingPort),
            ("[::1]80", MissingPort),
            ("[::1]:0", BadPort),
            ("[::1:80", BadIpv6),
            ("[]:80", BadIpv6),
            ("[127.0.0.1]:80", BadIpv6),
            ("[fe80::1%1]:80", BadIpv6),
            ("[fe80::1%25eth0]:80", BadIpv6),
            ("[v1.a]:80", BadIpv6),
            ("[[::1]]:80", BadIpv6),
        ] {
            assert_eq!(parse_authority(text), Err(error), "{text:?}");
        }
    }

    #[test]
    fn host_and_port_apart() {
        let v6: SocketAddr = "[2001:db8::1]:80".parse().unwrap();
        assert_eq!(
            Destination::from_host_port("2001:db8::1", 80),
            Ok(Destination::Address(v6)),
            "no brackets where the port is apart"
        );
        assert_eq!(Destination::from_host_port("127.1", 80), Ok(name("127.1", 80)));
        assert_eq!(Destination::from_host_port("a", 0), Err(AuthorityError::BadPort));
        assert_eq!(Destination::from_host_port("", 80), Err(AuthorityError::EmptyHost));
        assert_eq!(Destination::from_host_port("a:80", 80), Err(AuthorityError::BadByte(b':')));
    }

    #[test]
    fn socket_addresses_lose_their_zone() {
        let zoned = "[fe80::1%3]:80".parse().unwrap();
        let plain = Destination::Address("[fe80::1]:80".parse().unwrap());
        assert_eq!(Destination::from_address(zoned), Ok(plain));
        let no_port = "192.0.2.1:0".parse().unwrap();
        assert_eq!(Destination::from_address(no_port), Err(AuthorityError::BadPort));
    }
}
