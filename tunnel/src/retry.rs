//! Stateless Retry (RFC 9000, Section 8.1.2): under load a client has to prove its address before
//! it costs this end any state.
//!
//! A token is `mark | expiry | length of the original ID | original ID | earlier token | MAC`. The
//! earlier token is the one of the first packet, which the client sends no more (RFC 9000, Section
//! 8.1.2), if that was of use. The MAC covers the client's address and the connection ID that the
//! Retry gave it too, so that a token is of no use to another client or for another connection
//! (RFC 9000, Section 8.1.4).

use std::net::{IpAddr, SocketAddr};

use boring::error::ErrorStack;
use boring::hash::hmac_sha256;
use boring::memcmp;

/// How long a client may take from the Retry to its second Initial packet.
const LIFETIME_S: u64 = 15;
/// Tells our tokens from those that another server gave out at this address.
const MARK: u8 = 0x4d;
const EXPIRY_BYTES: usize = 8;
const MAC_BYTES: usize = 16;
/// RFC 9000, Section 17.2: version 1 has no longer connection IDs.
const MAX_ID_BYTES: usize = 20;

/// What a token shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Validation {
    /// Nothing: there is no token, or another server made it.
    Unproven,
    /// The client is at its address.
    Proven(FirstPacket),
    /// The token is expired, of another client, or forged. The client can't use another Retry (RFC
    /// 9000, Section 17.2.5.2).
    Invalid,
}

/// The packet that was answered with a Retry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FirstPacket {
    /// The connection ID that it went to.
    pub(crate) destination_id: Vec<u8>,
    /// The token that it had, if that was of use.
    pub(crate) token: Vec<u8>,
}

/// Makes and checks tokens.
#[derive(Clone)]
pub(crate) struct Retry {
    key: [u8; 32],
}

impl Retry {
    /// Servers with the same `private_key` take each other's tokens.
    pub(crate) fn new(private_key: &[u8]) -> Result<Self, ErrorStack> {
        Ok(Self { key: hmac_sha256(private_key, b"millrace retry token")? })
    }

    /// A token for the client at `peer`, which sent the packet `first` and whose next one is to go
    /// to `given`. `now_s` is in seconds of any clock that all takers share.
    pub(crate) fn token(
        &self,
        peer: SocketAddr,
        first: &FirstPacket,
        given: &[u8],
        now_s: u64,
    ) -> Vec<u8> {
        let FirstPacket { destination_id, token: earlier } = first;
        let mut token = Vec::new();
        token.push(MARK);
        token.extend((now_s + LIFETIME_S).to_be_bytes());
        token.push(destination_id.len() as u8);
        token.extend(destination_id);
        token.extend(earlier);
        let mac = self.mac(&token, peer, given);
        token.extend(mac);
        token
    }

    /// Checks what a client at `peer` sent in a packet to `given`.
    pub(crate) fn check(
        &self,
        token: &[u8],
        peer: SocketAddr,
        given: &[u8],
        now_s: u64,
    ) -> Validation {
        if token.first() != Some(&MARK) {
            return Validation::Unproven;
        }
        let Some((body, mac)) = token.split_last_chunk::<MAC_BYTES>() else {
            return Validation::Invalid;
        };
        if !memcmp::eq(&self.mac(body, peer, given), mac) {
            return Validation::Invalid;
        }
        // Authentic from here on, so that its form is the one above.
        let Some((expiry, rest)) = body[1..].split_first_chunk::<EXPIRY_BYTES>() else {
            return Validation::Invalid;
        };
        let first = rest.split_first().and_then(|(length, rest)| {
            let (destination_id, token) = rest.split_at_checked(usize::from(*length))?;
            Some(FirstPacket { destination_id: destination_id.to_vec(), token: token.to_vec() })
        });
        match first {
            Some(first)
                if first.destination_id.len() <= MAX_ID_BYTES
                    && u64::from_be_bytes(*expiry) >= now_s =>
            {
                Validation::Proven(first)
            }
            _ => Validation::Invalid,
        }
    }

    fn mac(&self, body: &[u8], peer: SocketAddr, given: &[u8]) -> [u8; MAC_BYTES] {
        // Each part has a fixed length or its length ahead of it.
        let mut input = Vec::with_capacity(body.len() + given.len() + 20);
        input.extend(address_octets(peer.ip()));
        input.extend(peer.port().to_be_bytes());
        input.push(given.len() as u8);
        input.extend(given);
        input.extend(body);
        let mac = hmac_sha256(&self.key, &input).expect("HMAC over some bytes does not fail");
        let (mac, _) = mac.split_first_chunk().expect("SHA-256 has 32 bytes");
        *mac
    }
}

/// An address as tokens have it: the same through sockets of one family and of both.
pub(crate) fn address_octets(ip: IpAddr) -> [u8; 16] {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: u64 = 1_700_000_000;

    fn peer(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn first() -> FirstPacket {
        FirstPacket { destination_id: b"12345678".to_vec(), token: b"earlier".to_vec() }
    }

    fn retry() -> Retry {
        Retry::new(b"a private key").unwrap()
    }

    #[test]
    fn a_token_is_good_for_its_client_until_it_expires() {
        for (id, earlier) in [(&b"12345678"[..], &b""[..]), (&[7; 20], &[9; 65])] {
            let client = peer("198.18.0.1:4000");
            let first = FirstPacket { destination_id: id.to_vec(), token: earlier.to_vec() };
            let token = retry().token(client, &first, b"given", NOW_S);
            let check = |at| retry().check(&token, client, b"given", at);
            assert_eq!(check(NOW_S), Validation::Proven(first.clone()));
            assert_eq!(check(NOW_S + LIFETIME_S), Validation::Proven(first.clone()));
            assert_eq!(check(NOW_S + LIFETIME_S + 1), Validation::Invalid);
            // The same client through a socket of both families.
            let mapped = peer("[::ffff:198.18.0.1]:4000");
            assert_ne!(retry().check(&token, mapped, b"given", NOW_S), Validation::Invalid);
        }
    }

    #[test]
    fn a_token_is_good_for_nobody_else_and_nothing_else() {
        let client = peer("198.18.0.1:4000");
        let token = retry().token(client, &first(), b"given", NOW_S);
        let others = ["198.18.0.2:4000", "198.18.0.1:4001", "[::1]:4000"];
        for other in others {
            assert_eq!(retry().check(&token, peer(other), b"given", NOW_S), Validation::Invalid);
        }
        assert_eq!(retry().check(&token, client, b"other", NOW_S), Validation::Invalid);
        let stranger = Retry::new(b"another private key").unwrap();
        assert_eq!(stranger.check(&token, client, b"given", NOW_S), Validation::Invalid);
    }

    #[test]
    fn no_bit_of_a_token_can_be_changed_and_no_byte_left_out() {
        let client = peer("[2001:db8::1]:4000");
        let token = retry().token(client, &first(), b"given", NOW_S);
        for bit in 8..token.len() * 8 {
            let mut changed = token.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(retry().check(&changed, client, b"given", NOW_S), Validation::Invalid);
        }
        for length in 1..token.len() {
            let cut = &token[..length];
            assert_eq!(retry().check(cut, client, b"given", NOW_S), Validation::Invalid);
        }
    }

    #[test]
    fn what_is_no_token_of_ours_proves_nothing_and_is_no_fault() {
        let client = peer("198.18.0.1:4000");
        for token in [&b""[..], b"x", &[0; 40]] {
            assert_eq!(retry().check(token, client, b"given", NOW_S), Validation::Unproven);
        }
    }
}
