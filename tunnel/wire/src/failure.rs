//! Why a destination could not be connected: one table with the representation in each protocol.

use std::{fmt, io};

use sfv::{BareItem, List, ListEntry, Parser};

/// Longest `Proxy-Status` value looked at, in bytes; a longer one counts as absent.
const MAX_PROXY_STATUS_BYTES: usize = 1024;

/// Why a flow could not be connected to its destination.
///
/// Travels from the server to the client as an HTTP status with a `Proxy-Status` field (RFC 9209),
/// and from the client to its own client as a status, a SOCKS5 reply or a reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConnectFailure {
    /// The destination answered the connection attempt with a reset.
    Refused,
    /// No route to the destination's network.
    NetworkUnreachable,
    /// No route to the destination's host.
    HostUnreachable,
    /// The destination did not answer in time.
    TimedOut,
    /// The destination's name has no address, or its name server did not answer.
    NameNotResolved,
    /// The allow-list does not cover the destination.
    Forbidden,
    /// The server has reached a limit of the whole process and takes no flow of any client. The
    /// only failure that says something about the server and not about the one flow.
    ServerFull,
    /// The client has as many flows, names or ports as one client may; other clients are not
    /// affected.
    ClientLimitReached,
    /// A proxy lacks a resource for this flow, as room in a queue; worth a retry later.
    Overloaded,
    /// The machine of the proxy that connects has no port, descriptor or memory left, or not the
    /// source address; its log says which. Worth a retry later.
    LocalResources,
    /// The client has no healthy connection to a server; worth a retry later.
    TunnelUnavailable,
    /// Anything else; the log of the proxy that failed says what.
    Internal,
}

/// The representation of one failure in each protocol.
struct Row {
    failure: ConnectFailure,
    /// HTTP status, which RFC 9209 §2.3 recommends for the error type.
    status: u16,
    /// The `Proxy-Status` field's value; the error types are those of RFC 9209 §2.3.
    proxy_status: &'static str,
    /// The error type within `proxy_status`.
    token: &'static str,
    /// The `details` within `proxy_status`, where the token alone does not tell.
    details: Option<&'static str>,
    /// SOCKS5 reply code (RFC 1928 §6).
    socks5: u8,
    /// For people.
    text: &'static str,
}

/// RFC 9209 has one error type for both kinds of "unreachable"; the details tell them apart. Limits
/// have details too: a limit without known details, as from other proxies, concerns the one
/// request. SOCKS5 has no code for a time-out; 6 (TTL expired) is what its clients report as one.
#[rustfmt::skip]
const TABLE: [Row; 12] = [
    Row { failure: ConnectFailure::Refused, status: 502, socks5: 5,
          proxy_status: "millrace; error=connection_refused",
          token: "connection_refused", details: None, text: "connection refused" },
    Row { failure: ConnectFailure::NetworkUnreachable, status: 502, socks5: 3,
          proxy_status: "millrace; error=destination_ip_unroutable; details=\"network unreachable\"",
          token: "destination_ip_unroutable", details: Some("network unreachable"),
          text: "network unreachable" },
    Row { failure: ConnectFailure::HostUnreachable, status: 502, socks5: 4,
          proxy_status: "millrace; error=destination_ip_unroutable; details=\"host unreachable\"",
          token: "destination_ip_unroutable", details: Some("host unreachable"),
          text: "host unreachable" },
    Row { failure: ConnectFailure::TimedOut, status: 504, socks5: 6,
          proxy_status: "millrace; error=connection_timeout",
          token: "connection_timeout", details: None, text: "connection timed out" },
    Row { failure: ConnectFailure::NameNotResolved, status: 502, socks5: 4,
          proxy_status: "millrace; error=dns_error",
          token: "dns_error", details: None, text: "name not resolved" },
    Row { failure: ConnectFailure::Forbidden, status: 403, socks5: 2,
          proxy_status: "millrace; error=http_request_denied",
          token: "http_request_denied", details: None, text: "destination not allowed" },
    Row { failure: ConnectFailure::ServerFull, status: 503, socks5: 1,
          proxy_status: "millrace; error=connection_limit_reached; details=\"server full\"",
          token: "connection_limit_reached", details: Some("server full"),
          text: "server full" },
    Row { failure: ConnectFailure::ClientLimitReached, status: 503, socks5: 1,
          proxy_status: "millrace; error=connection_limit_reached; details=\"client limit\"",
          token: "connection_limit_reached", details: Some("client limit"),
          text: "client limit reached" },
    Row { failure: ConnectFailure::Overloaded, status: 503, socks5: 1,
          proxy_status: "millrace; error=connection_limit_reached",
          token: "connection_limit_reached", details: None, text: "proxy overloaded" },
    Row { failure: ConnectFailure::LocalResources, status: 503, socks5: 1,
          proxy_status: "millrace; error=connection_limit_reached; details=\"local resources exhausted\"",
          token: "connection_limit_reached", details: Some("local resources exhausted"),
          text: "local resources exhausted" },
    Row { failure: ConnectFailure::TunnelUnavailable, status: 503, socks5: 1,
          proxy_status: "millrace; error=destination_unavailable",
          token: "destination_unavailable", details: None, text: "tunnel unavailable" },
    Row { failure: ConnectFailure::Internal, status: 500, socks5: 1,
          proxy_status: "millrace; error=proxy_internal_error",
          token: "proxy_internal_error", details: None, text: "internal error" },
];

impl ConnectFailure {
    /// Every failure, for metrics and tests.
    pub const ALL: [Self; 12] = [
        Self::Refused,
        Self::NetworkUnreachable,
        Self::HostUnreachable,
        Self::TimedOut,
        Self::NameNotResolved,
        Self::Forbidden,
        Self::ServerFull,
        Self::ClientLimitReached,
        Self::Overloaded,
        Self::LocalResources,
        Self::TunnelUnavailable,
        Self::Internal,
    ];

    fn row(self) -> &'static Row {
        // `table_is_in_order` tests that row and variant agree.
        &TABLE[self as usize]
    }

    /// The HTTP status, 403 to 504.
    pub fn status(self) -> u16 {
        self.row().status
    }

    /// The value of the `Proxy-Status` response field (RFC 9209).
    pub fn proxy_status(self) -> &'static str {
        self.row().proxy_status
    }

    /// The RFC 9209 error type, a stable word for metrics' labels too (not unique: the two kinds of
    /// "unreachable" share one).
    pub fn token(self) -> &'static str {
        self.row().token
    }

    /// The SOCKS5 reply code (RFC 1928 §6), 1 to 6.
    pub fn socks5_code(self) -> u8 {
        self.row().socks5
    }

    /// Whether a proxy refused the flow before it dialled the destination, because of a limit of
    /// its own. Another server may have room for it.
    pub fn is_limit(self) -> bool {
        use ConnectFailure::{ClientLimitReached, LocalResources, Overloaded, ServerFull};
        matches!(self, ServerFull | ClientLimitReached | Overloaded | LocalResources)
    }

    /// Reads a failure back from a response's status and `Proxy-Status` value. Of several
    /// intermediaries' entries the first with an error counts: it is the one nearest the origin
    /// (RFC 9209 §2). Without a usable value, the status alone decides, as well as it can.
    pub fn from_response(status: u16, proxy_status: Option<&[u8]>) -> Self {
        proxy_status.and_then(from_proxy_status).unwrap_or(match status {
            403 | 407 => Self::Forbidden,
            429 | 503 => Self::Overloaded,
            408 | 504 => Self::TimedOut,
            502 => Self::HostUnreachable,
            _ => Self::Internal,
        })
    }
}

fn from_proxy_status(value: &[u8]) -> Option<ConnectFailure> {
    if value.len() > MAX_PROXY_STATUS_BYTES {
        return None;
    }
    let list: List = Parser::new(value).parse().ok()?;
    list.iter().find_map(|entry| {
        let params = match entry {
            ListEntry::Item(item) => &item.params,
            ListEntry::InnerList(inner) => &inner.params,
        };
        let Some(BareItem::Token(token)) = params.get("error") else {
            return None;
        };
        let details = match params.get("details") {
            Some(BareItem::String(details)) => Some(details.as_str()),
            _ => None,
        };
        Some(from_token(token.as_str(), details))
    })
}

fn from_token(token: &str, details: Option<&str>) -> ConnectFailure {
    let of_token = || TABLE.iter().filter(|row| row.token == token);
    let row = of_token()
        .find(|row| row.details == details)
        .or_else(|| of_token().find(|row| row.details.is_none()))
        .or_else(|| of_token().next_back());
    if let Some(row) = row {
        return row.failure;
    }
    // What other proxies say where we have no word of our own (RFC 9209 §2.3).
    match token {
        "dns_timeout" | "destination_not_found" => ConnectFailure::NameNotResolved,
        "destination_ip_prohibited" => ConnectFailure::Forbidden,
        "connection_terminated" => ConnectFailure::Refused,
        "connection_read_timeout" | "connection_write_timeout" | "http_response_timeout" => {
            ConnectFailure::TimedOut
        }
        _ => ConnectFailure::Internal,
    }
}

impl fmt::Display for ConnectFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().text)
    }
}

impl std::error::Error for ConnectFailure {}

/// What a failed `connect` says about the destination. Shortages of this machine (descriptors,
/// buffers, local ports) are [`ConnectFailure::LocalResources`], not the destination's fault.
impl From<&io::Error> for ConnectFailure {
    fn from(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM | libc::ENOSPC) => {
                return Self::LocalResources;
            }
            // connect(2): no local port is left; bind(2): the source address is not this machine's.
            Some(libc::EADDRINUSE | libc::EADDRNOTAVAIL | libc::EAGAIN) => {
                return Self::LocalResources;
            }
            Some(libc::EHOSTDOWN) => return Self::HostUnreachable,
            _ => {}
        }
        match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => Self::Refused,
            io::ErrorKind::NetworkUnreachable | io::ErrorKind::NetworkDown => {
                Self::NetworkUnreachable
            }
            io::ErrorKind::HostUnreachable => Self::HostUnreachable,
            io::ErrorKind::TimedOut => Self::TimedOut,
            // connect(2): a local firewall rule forbids it.
            io::ErrorKind::PermissionDenied => Self::Forbidden,
            _ => Self::Internal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_in_order() {
        for (index, failure) in ConnectFailure::ALL.into_iter().enumerate() {
            assert_eq!(failure as usize, index);
            assert_eq!(failure.row().failure, failure);
            let error = format!("; error={}", failure.token());
            assert!(format!("{};", failure.proxy_status()).contains(&format!("{error};")));
        }
    }

    #[test]
    fn each_has_its_own_text() {
        let texts: std::collections::HashSet<_> =
            ConnectFailure::ALL.iter().map(ToString::to_string).collect();
        assert_eq!(texts.len(), ConnectFailure::ALL.len());
        assert!(!texts.contains(""));
    }

    #[test]
    fn limits_of_a_proxy_are_told_from_failures_of_the_destination() {
        use ConnectFailure::*;
        let limits = ConnectFailure::ALL.into_iter().filter(|failure| failure.is_limit());
        let expected = [ServerFull, ClientLimitReached, Overloaded, LocalResources];
        assert_eq!(limits.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_value_of_the_greatest_length_is_read() {
        let of_length = |length: usize| {
            let start = "a; error=connection_refused; details=\"";
            format!("{start}{}\"", "x".repeat(length - start.len() - 1))
        };
        let read = |value: String| ConnectFailure::from_response(504, Some(value.as_bytes()));
        assert_eq!(read(of_length(MAX_PROXY_STATUS_BYTES)), ConnectFailure::Refused);
        assert_eq!(read(of_length(MAX_PROXY_STATUS_BYTES + 1)), ConnectFailure::TimedOut);
    }

    #[test]
    fn survives_the_round_trip() {
        for failure in ConnectFailure::ALL {
            let value = failure.proxy_status().as_bytes();
            assert_eq!(ConnectFailure::from_response(failure.status(), Some(value)), failure);
        }
    }

    #[test]
    fn reads_other_proxies_values() {
        use ConnectFailure::*;
        for (value, failure) in [
            ("proxy.example;error=connection_refused", Refused),
            ("\"a, b; error=x\"; error=connection_timeout;details=\"SYN; error=no\"", TimedOut),
            ("cache; hit, edge; error=dns_timeout; rcode=\"SERVFAIL\"", NameNotResolved),
            ("a; error=dns_error, b; error=connection_refused", NameNotResolved),
            ("p; error=destination_ip_unroutable", HostUnreachable),
            ("p; error=destination_ip_unroutable; details=\"weather\"", HostUnreachable),
            ("p; error=destination_ip_prohibited", Forbidden),
            ("p; error=connection_limit_reached", Overloaded),
            ("p; error=connection_limit_reached; details=\"weather\"", Overloaded),
            ("p; error=connection_limit_reached; details=\"server full\"", ServerFull),
            ("p; error=connection_limit_reached; details=\"9 of 9\"", Overloaded),
            ("p; error=connection_terminated", Refused),
            ("p; error=connection_read_timeout", TimedOut),
            ("p; error=connection_write_timeout", TimedOut),
            ("p; error=http_response_timeout", TimedOut),
            ("p; error=something_new", Internal),
        ] {
            let got = ConnectFailure::from_response(502, Some(value.as_bytes()));
            assert_eq!(got, failure, "{value}");
        }
    }

    #[test]
    fn falls_back_to_the_status() {
        use ConnectFailure::*;
        let too_long = format!("a; error=connection_refused; details=\"{}\"", "x".repeat(1024));
        let unusable: [Option<&[u8]>; 6] = [
            None,
            Some(b""),
            Some(b"p; error=\"connection_refused\""),
            Some(b"p; error="),
            Some(b"\xff\0;;"),
            Some(too_long.as_bytes()),
        ];
        for value in unusable {
            for (status, failure) in [
                (403, Forbidden),
                (502, HostUnreachable),
                (503, Overloaded),
                (504, TimedOut),
                (500, Internal),
                (404, Internal),
            ] {
                assert_eq!(ConnectFailure::from_response(status, value), failure, "{value:?}");
            }
        }
    }

    #[test]
    fn from_connect_errors() {
        use ConnectFailure::*;
        for (errno, failure) in [
            (libc::ECONNREFUSED, Refused),
            (libc::ECONNRESET, Refused),
            (libc::ENETUNREACH, NetworkUnreachable),
            (libc::EHOSTUNREACH, HostUnreachable),
            (libc::EHOSTDOWN, HostUnreachable),
            (libc::ETIMEDOUT, TimedOut),
            (libc::EPERM, Forbidden),
            (libc::EACCES, Forbidden),
            (libc::EMFILE, LocalResources),
            (libc::EADDRNOTAVAIL, LocalResources),
            (libc::EADDRINUSE, LocalResources),
            (libc::EINVAL, Internal),
        ] {
            let error = io::Error::from_raw_os_error(errno);
            assert_eq!(ConnectFailure::from(&error), failure, "{error}");
        }
        let timeout = io::Error::from(io::ErrorKind::TimedOut);
        assert_eq!(ConnectFailure::from(&timeout), TimedOut);
    }

    #[test]
    fn socks5_codes_are_those_of_rfc_1928() {
        use ConnectFailure::*;
        for (failure, code) in
            [(Refused, 5), (NetworkUnreachable, 3), (HostUnreachable, 4), (Forbidden, 2)]
        {
            assert_eq!(failure.socks5_code(), code);
        }
    }
}
