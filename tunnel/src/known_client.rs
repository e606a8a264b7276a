//! Tokens by which the first packet of a connection shows that its client has been authenticated before (NEW_TOKEN,
//! RFC 9000, Section 8.1.3).
//!
//! A token is `mark | salt | ciphertext | tag`, the plaintext `time of issue | address | client`. It is encrypted so
//! that an observer can't link it to the connection that it was issued on. The salt gives each token a key of its own.
//!
//! A token may be seen more than once (RFC 9000, Section 8.1.4): clients use it for several connections, and observers
//! can copy it. It gives no more than a place among handshakes, within the share of its client, and spares a Retry at
//! one address only. The certificate is verified as always, so that a client that is denied meanwhile gets a handshake
//! that fails.

use std::net::IpAddr;
use std::time::Duration;

use boring::error::ErrorStack;
use boring::hash::hmac_sha256;
use boring::rand::rand_bytes;
use boring::symm::{Cipher, decrypt_aead, encrypt_aead};
use millrace_admission::client_id::{CLIENT_ID_BYTES, ClientId};

use crate::retry::address_octets;

/// Tells these tokens from those of a Retry and of other servers.
const MARK: u8 = 0x4e;
/// No two tokens have the same one: RFC 9000, Section 8.1.3, wants each token to be unique.
const SALT_BYTES: usize = 16;
const TAG_BYTES: usize = 16;
const TIME_BYTES: usize = 8;
const ADDRESS_BYTES: usize = 16;
/// How far the clock of another server may be ahead, in seconds: far more than NTP leaves.
const MAX_CLOCK_SKEW_S: u64 = 300;
/// The key of a token encrypts nothing else.
const NONCE: [u8; 12] = [0; 12];

/// What a token shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnownClient {
    pub(crate) id: ClientId,
    /// Whether it has the address that it had when the token was issued.
    pub(crate) is_at_same_address: bool,
}

/// Issues and checks tokens.
#[derive(Clone)]
pub(crate) struct KnownClients {
    key: [u8; 32],
}

impl KnownClients {
    /// Servers with the same `private_key` take each other's tokens.
    pub(crate) fn new(private_key: &[u8]) -> Result<Self, ErrorStack> {
        Ok(Self { key: hmac_sha256(private_key, b"millrace known client token")? })
    }

    /// Whether `token` looks like one of these. Only [`KnownClients::check`] tells whether it is.
    pub(crate) fn has_token_form(token: &[u8]) -> bool {
        token.first() == Some(&MARK)
    }

    /// A token for a client that is authenticated and has this address. `now_s` is in seconds of any clock that all
    /// servers share.
    pub(crate) fn token(
        &self,
        id: ClientId,
        address: IpAddr,
        now_s: u64,
    ) -> Result<Vec<u8>, ErrorStack> {
        let (mut salt, mut tag) = ([0; SALT_BYTES], [0; TAG_BYTES]);
        rand_bytes(&mut salt)?;
        let content = [&now_s.to_be_bytes()[..], &address_octets(address), &id.0].concat();
        let (key, aad) = (hmac_sha256(&self.key, &salt)?, [MARK]);
        let cipher = Cipher::aes_256_gcm();
        let sealed = encrypt_aead(cipher, &key, Some(&NONCE), &aad, &content, &mut tag)?;
        Ok([&aad[..], &salt, &sealed, &tag].concat())
    }

    /// What the token of a client at `address` shows; nothing if it is forged, or was issued `lifetime` ago or
    /// earlier, or at a time to come.
    pub(crate) fn check(
        &self,
        token: &[u8],
        address: IpAddr,
        now_s: u64,
        lifetime: Duration,
    ) -> Option<KnownClient> {
        let (aad, rest) = token.split_first_chunk::<1>().filter(|(aad, _)| **aad == [MARK])?;
        let (salt, rest) = rest.split_first_chunk::<SALT_BYTES>()?;
        let (sealed, tag) = rest.split_last_chunk::<TAG_BYTES>()?;
        if sealed.len() != TIME_BYTES + ADDRESS_BYTES + CLIENT_ID_BYTES {
            return None;
        }
        let content = self.open(salt, aad, sealed, tag)?;
        let (issued_s, rest) = content.split_first_chunk::<TIME_BYTES>()?;
        let (issued_to, id) = rest.split_first_chunk::<ADDRESS_BYTES>()?;
        let issued_s = u64::from_be_bytes(*issued_s);
        if issued_s > now_s.saturating_add(MAX_CLOCK_SKEW_S) {
            return None;
        }
        let age_s = now_s.saturating_sub(issued_s);
        let known = KnownClient {
            id: ClientId(id.try_into().ok()?),
            is_at_same_address: *issued_to == address_octets(address),
        };
        (age_s < lifetime.as_secs()).then_some(known)
    }

    fn open(&self, salt: &[u8], aad: &[u8], sealed: &[u8], tag: &[u8]) -> Option<Vec<u8>> {
        let key = hmac_sha256(&self.key, salt).ok()?;
        let content =
            decrypt_aead(Cipher::aes_256_gcm(), &key, Some(&NONCE), aad, sealed, tag).ok();
        // An error that stays in the thread's error queue would fail the next handshake.
        drop(ErrorStack::get());
        content
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: u64 = 1_700_000_000;
    const LIFETIME: Duration = Duration::from_secs(100);

    fn clients() -> KnownClients {
        KnownClients::new(b"a private key").unwrap()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn edge() -> ClientId {
        ClientId::of_name("edge")
    }

    fn token() -> Vec<u8> {
        clients().token(edge(), ip("198.18.0.1"), NOW_S).unwrap()
    }

    #[test]
    fn token_shows_the_client_and_whether_it_has_the_same_address() {
        for (own, other) in [("198.18.0.1", "198.18.0.2"), ("2001:db8::1", "2001:db8::2")] {
            let token = clients().token(edge(), ip(own), NOW_S).unwrap();
            let check = |address| clients().check(&token, ip(address), NOW_S, LIFETIME).unwrap();
            assert_eq!(check(own), KnownClient { id: edge(), is_at_same_address: true });
            assert_eq!(check(other), KnownClient { id: edge(), is_at_same_address: false });
        }
        assert_ne!(edge(), ClientId::of_name("edge-2"));
        let mapped = clients().check(&token(), ip("::ffff:198.18.0.1"), NOW_S, LIFETIME);
        assert!(mapped.unwrap().is_at_same_address, "a socket of both families");
    }

    #[test]
    fn token_expires_and_a_shorter_lifetime_applies_to_it() {
        let check = |age_s, lifetime_s| {
            let lifetime = Duration::from_secs(lifetime_s);
            clients().check(&token(), ip("198.18.0.1"), NOW_S + age_s, lifetime)
        };
        assert!(check(99, 100).is_some());
        assert_eq!(check(100, 100), None);
        assert_eq!(check(99, 99), None);
        let earlier = clients().check(&token(), ip("198.18.0.1"), NOW_S - 5, LIFETIME);
        assert!(earlier.is_some(), "the clock of another server may be behind");
        let too_early = NOW_S - MAX_CLOCK_SKEW_S - 1;
        assert_eq!(clients().check(&token(), ip("198.18.0.1"), too_early, LIFETIME), None);
    }

    #[test]
    fn changed_or_foreign_token_shows_nothing() {
        let (token, address) = (token(), ip("198.18.0.1"));
        for bit in 0..token.len() * 8 {
            let mut changed = token.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(clients().check(&changed, address, NOW_S, LIFETIME), None, "bit {bit}");
        }
        for length in 0..token.len() {
            assert_eq!(clients().check(&token[..length], address, NOW_S, LIFETIME), None);
        }
        let longer = [&token[..], &[0]].concat();
        assert_eq!(clients().check(&longer, address, NOW_S, LIFETIME), None);
        let stranger = KnownClients::new(b"another private key").unwrap();
        assert_eq!(stranger.check(&token, address, NOW_S, LIFETIME), None);
        assert!(ErrorStack::get().errors().is_empty(), "an error is left to the next handshake");
    }

    #[test]
    fn tokens_of_one_client_and_second_have_nothing_but_the_mark_in_common() {
        let [one, other] = [token(), token()];
        assert!(KnownClients::has_token_form(&one) && !KnownClients::has_token_form(b""));
        let equal = one.iter().zip(&other).filter(|(a, b)| a == b).count();
        assert!(equal < one.len() / 4, "{equal} of {} bytes", one.len());
    }
}
