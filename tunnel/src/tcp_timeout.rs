//! Errors that say that a TCP peer has disappeared.

use std::io;

/// Whether an error of a TCP socket says that the kernel has given the peer up: no keep-alive probe
/// or retransmission was answered (RFC 1122 §4.2.3.5). What ICMP said last takes the place of a
/// time-out.
pub fn is_tcp_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::TimedOut
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
    )
}
