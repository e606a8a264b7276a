//! Stateless resets (RFC 9000, Section 10.3): how a server that was started again tells its
//! clients that their connections are gone, instead of letting them wait for a time-out.

use boring::error::ErrorStack;
use boring::hash::hmac_sha256;

use crate::reset_secret::ResetSecret;

/// Answers of one worker between two ticks; more would make it an amplifier for floods.
const MAX_ANSWERS_PER_TICK: u32 = 25;
/// RFC 9000, Section 10.3: shorter ones can't be told from noise.
const MIN_ANSWERED_BYTES: usize = 21;
/// Length of an answer, if what it answers was longer: none looks like a larger packet.
pub(crate) const ANSWER_BYTES: usize = 42;
/// Stateless reset token (RFC 9000, Section 10.3).
const TOKEN_BYTES: usize = 16;

/// Makes reset tokens that stay the same over restarts of an instance (RFC 9000, Section 10.3.2).
#[derive(Clone)]
pub struct StatelessReset {
    key: [u8; 32],
    answers_left: u32,
}

impl StatelessReset {
    /// `secret` survives a restart. `instance` tells apart the servers that have the same secret: the addresses
    /// that one listens on.
    ///
    /// # Errors
    /// BoringSSL failed.
    pub fn new(secret: &ResetSecret, instance: &str) -> Result<Self, ErrorStack> {
        let key = hmac_sha256(secret, format!("millrace stateless reset {instance}").as_bytes())?;
        Ok(Self { key, answers_left: MAX_ANSWERS_PER_TICK })
    }

    /// The token of a connection ID.
    pub(crate) fn token(&self, cid: &[u8]) -> u128 {
        let mac = hmac_sha256(&self.key, cid).expect("HMAC over 16 bytes does not fail");
        let (token, _) = mac.split_first_chunk().expect("SHA-256 has 32 bytes");
        u128::from_be_bytes(*token)
    }

    /// The answer to a packet of `len` bytes for an unknown connection `cid`.
    pub(crate) fn answer(&mut self, cid: &[u8], len: usize) -> Option<Vec<u8>> {
        // Always shorter than what it answers, so that two ends never reset each other for ever.
        let bytes = ANSWER_BYTES.min(len.checked_sub(1)?);
        self.answers_left = self.answers_left.checked_sub(1)?;
        if bytes < MIN_ANSWERED_BYTES {
            return None;
        }
        let mut packet = vec![0; bytes];
        boring::rand::rand_bytes(&mut packet).ok()?;
        // The form of a short header.
        packet[0] = packet[0] & 0x3f | 0x40;
        packet[bytes - TOKEN_BYTES..].copy_from_slice(&self.token(cid).to_be_bytes());
        Some(packet)
    }

    /// Some time has passed.
    pub(crate) fn tick(&mut self) {
        self.answers_left = MAX_ANSWERS_PER_TICK;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_depends_on_secret_and_instance() {
        let token = |secret, instance| {
            StatelessReset::new(&[secret; 32], instance).expect("a key").token(&[7; 16])
        };
        assert_eq!(token(1, "[::]:4433"), token(1, "[::]:4433"));
        assert_ne!(token(1, "[::]:4433"), token(2, "[::]:4433"));
        assert_ne!(token(1, "[::]:4433"), token(1, "[::]:4434"));
    }

    #[test]
    fn answers_end_with_the_token_are_shorter_than_the_question_and_bounded() {
        let mut reset = StatelessReset::new(&[1; 32], "").expect("a key");
        let answer = reset.answer(&[7; 16], 30).expect("long enough");
        assert_eq!(answer.len(), 29);
        assert_eq!(answer[0] & 0xc0, 0x40);
        assert_eq!(answer[13..], reset.token(&[7; 16]).to_be_bytes());
        assert_eq!(reset.answer(&[7; 16], 21), None);
        let answers = (0..100).filter_map(|_| reset.answer(&[7; 16], 1200)).count();
        assert_eq!(answers as u32, MAX_ANSWERS_PER_TICK - 2);
        reset.tick();
        assert!(reset.answer(&[7; 16], 1200).is_some());
    }
}
