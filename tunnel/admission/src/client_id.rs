//! A client of the server, as tokens and limits tell it from others.

use boring::sha::sha256;

/// Bytes of a [`ClientId`]. Two clients with the same one only share a limit of handshakes.
pub const CLIENT_ID_BYTES: usize = 8;

/// Part of the digest of the name in a client's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientId(pub [u8; CLIENT_ID_BYTES]);

impl ClientId {
    /// The client whose certificate has this name.
    pub fn of_name(name: &str) -> Self {
        let [a, b, c, d, e, f, g, h, ..] = sha256(name.as_bytes());
        Self([a, b, c, d, e, f, g, h])
    }
}
