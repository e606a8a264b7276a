//! Error codes of HTTP/3 (RFC 9114, Section 8.1).

/// The connection or stream ends without an error.
pub const H3_NO_ERROR: u64 = 0x100;
/// The TCP connection of a CONNECT request was reset or closed abnormally.
pub const H3_CONNECT_ERROR: u64 = 0x10f;
