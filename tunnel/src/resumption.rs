//! What a client keeps from its connections to a server for the next one, in memory.

/// Both are offered by several connections, which an observer can thereby link (RFC 8446, Appendix C.4; RFC 9000,
/// Section 8.1.3): it can do so by their addresses too.
#[derive(Debug, Default)]
pub struct Resumption {
    /// The newest session ticket (RFC 8446, Section 2.2).
    pub session: Option<Vec<u8>>,
    /// The newest token (RFC 9000, Section 8.1.3), of at most [`quiche::MAX_NEW_TOKEN_LEN`] bytes.
    pub token: Option<Vec<u8>>,
}
