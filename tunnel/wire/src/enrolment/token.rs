//! The token of an invitation, one word of text.

use std::fmt;
use std::str::FromStr;

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};

use crate::destination::{Destination, MAX_HOST_BYTES, parse_authority};

/// Bytes of the identifier of an invitation.
pub const INVITE_ID_BYTES: usize = 8;
/// Bytes of its secret: 128 bits can't be guessed.
pub const INVITE_SECRET_BYTES: usize = 16;
/// Bytes of the fingerprint of an authority's certificate: SHA-256.
pub const FINGERPRINT_BYTES: usize = 32;

/// What each token begins with; the digit is the version of the format.
const PREFIX: &str = "millrace1_";
/// Bytes before the two texts, and the lengths of these.
const FIXED_BYTES: usize = INVITE_ID_BYTES + INVITE_SECRET_BYTES + FINGERPRINT_BYTES + 8 + 4;
/// Two names that may end with a dot, a colon and a port.
const MAX_TEXT_BYTES: usize = 2 * (MAX_HOST_BYTES + 1) + 6;
/// Longest token, in characters: longer texts are refused before they are decoded.
pub const MAX_TOKEN_CHARS: usize = PREFIX.len() + (FIXED_BYTES + MAX_TEXT_BYTES).div_ceil(3) * 4;

/// Which invitation it is. Not a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InviteId(pub [u8; INVITE_ID_BYTES]);

/// In hexadecimal digits.
impl fmt::Display for InviteId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

/// What proves that a client was invited.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct InviteSecret(pub [u8; INVITE_SECRET_BYTES]);

/// Without its bytes.
impl fmt::Debug for InviteSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InviteSecret")
    }
}

/// All that a new client needs: where the server is, how to recognise it, and a secret that is valid once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InviteToken {
    /// The invitation.
    pub invite: InviteId,
    /// Its secret.
    pub secret: InviteSecret,
    /// SHA-256 of the authority's certificate in DER.
    pub authority: [u8; FINGERPRINT_BYTES],
    /// Until when it is valid, in seconds since 1970-01-01T00:00:00Z.
    pub expires: u64,
    /// Address of the server: enrolment on TCP, the tunnel on UDP.
    pub server: Destination,
    /// The name that the server's certificate is for, where it is not the host of `server`.
    pub server_name: Option<String>,
}

/// Why a text is no token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InviteTokenError {
    /// It does not begin as one.
    #[error("a token begins with {PREFIX:?}; `millrace-server invite` prints one")]
    Prefix,
    /// It is cut, or some of its characters are others.
    #[error("the token is incomplete or has a wrong character; copy the whole line")]
    Malformed,
}

impl FromStr for InviteToken {
    type Err = InviteTokenError;

    fn from_str(text: &str) -> Result<Self, InviteTokenError> {
        let encoded = text.strip_prefix(PREFIX).ok_or(InviteTokenError::Prefix)?;
        if text.len() > MAX_TOKEN_CHARS {
            return Err(InviteTokenError::Malformed);
        }
        let decoded = BASE64URL_NOPAD.decode(encoded.as_bytes());
        let decoded = decoded.map_err(|_| InviteTokenError::Malformed)?;
        parse(&decoded).ok_or(InviteTokenError::Malformed)
    }
}

fn parse(bytes: &[u8]) -> Option<InviteToken> {
    let (invite, rest) = bytes.split_first_chunk()?;
    let (secret, rest) = rest.split_first_chunk()?;
    let (authority, rest) = rest.split_first_chunk()?;
    let (expires, rest) = rest.split_first_chunk()?;
    let (address, rest) = text(rest)?;
    let (name, rest) = text(rest)?;
    let server = parse_authority(address).ok()?;
    let is_canonical =
        |name: &str| Destination::from_host_port(name, 1).is_ok_and(|it| host(&it) == name);
    let is_valid =
        rest.is_empty() && server.to_string() == address && (name.is_empty() || is_canonical(name));
    is_valid.then(|| InviteToken {
        invite: InviteId(*invite),
        secret: InviteSecret(*secret),
        authority: *authority,
        expires: u64::from_be_bytes(*expires),
        server,
        server_name: (!name.is_empty()).then(|| name.to_owned()),
    })
}

fn host(destination: &Destination) -> String {
    match destination {
        Destination::Address(address) => address.ip().to_string(),
        Destination::Name { host, .. } => host.clone(),
    }
}

/// A text with its length in two bytes before it, and the bytes behind it.
fn text(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (text, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    Some((std::str::from_utf8(text).ok()?, rest))
}

/// One word of letters, digits, `-` and `_`.
impl fmt::Display for InviteToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = [&self.invite.0[..], &self.secret.0, &self.authority].concat();
        bytes.extend(self.expires.to_be_bytes());
        for text in
            [self.server.to_string().as_str(), self.server_name.as_deref().unwrap_or_default()]
        {
            bytes.extend(u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes());
            bytes.extend(text.as_bytes());
        }
        write!(f, "{PREFIX}{}", BASE64URL_NOPAD.encode(&bytes))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn token(server: &str, server_name: Option<&str>) -> InviteToken {
        InviteToken {
            invite: InviteId([1; INVITE_ID_BYTES]),
            secret: InviteSecret([2; INVITE_SECRET_BYTES]),
            authority: [3; FINGERPRINT_BYTES],
            expires: 1_800_000_000,
            server: parse_authority(server).unwrap(),
            server_name: server_name.map(str::to_owned),
        }
    }

    #[test]
    fn longest_token_is_within_the_limit() {
        let label = "a".repeat(63);
        let host = format!("{label}.{label}.{label}.{}", "a".repeat(61));
        let name = format!("{label}.{label}.{label}.{}", "b".repeat(61));
        let longest = token(&format!("{host}.:65535"), Some(&format!("{name}.")));
        assert!((MAX_TOKEN_CHARS - 3..=MAX_TOKEN_CHARS).contains(&longest.to_string().len()));
        assert_eq!(longest.to_string().parse(), Ok(longest));
    }

    #[test]
    fn token_is_one_word_and_shows_no_secret_when_debugged() {
        let token = token("[2001:db8::1]:4433", Some("millrace-server"));
        let text = token.to_string();
        assert!(text.bytes().all(|it| it.is_ascii_alphanumeric() || b"-_".contains(&it)), "{text}");
        assert!(!format!("{token:?}").contains("2, 2"), "{token:?}");
    }

    #[test]
    fn other_texts_are_refused() {
        let good = token("server.example:4433", None).to_string();
        assert_eq!(good.parse::<InviteToken>().unwrap().to_string(), good);
        assert_eq!("".parse::<InviteToken>(), Err(InviteTokenError::Prefix));
        assert_eq!("millrace2_AA".parse::<InviteToken>(), Err(InviteTokenError::Prefix));
        let long = format!("{PREFIX}{}", "A".repeat(MAX_TOKEN_CHARS));
        for text in [format!("{good}A"), format!("{good}="), long] {
            assert_eq!(text.parse::<InviteToken>(), Err(InviteTokenError::Malformed), "{text}");
        }
        for cut in PREFIX.len()..good.len() {
            assert!(good[..cut].parse::<InviteToken>().is_err(), "{cut}");
        }
    }

    proptest! {
        #[test]
        fn token_survives_its_text(
            (invite, secret, authority) in any::<([u8; 8], [u8; 16], [u8; 32])>(),
            expires: u64,
            server in "([a-z0-9]{1,20}\\.[a-z]{2,9}|198\\.18\\.2\\.[1-9]|\\[2001:db8::[1-9]\\]):[1-9][0-9]{0,3}",
            server_name in proptest::option::of("[a-z]{1,30}"),
        ) {
            let server = parse_authority(&server).unwrap();
            let (invite, secret) = (InviteId(invite), InviteSecret(secret));
            let token = InviteToken { invite, secret, authority, expires, server, server_name };
            prop_assert_eq!(token.to_string().parse::<InviteToken>(), Ok(token));
        }

        #[test]
        fn what_is_accepted_is_written_the_same(text in "millrace1_[A-Za-z0-9_-]{0,400}") {
            if let Ok(token) = text.parse::<InviteToken>() {
                prop_assert_eq!(token.to_string(), text);
            }
        }
    }
}
