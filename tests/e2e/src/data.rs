//! Bytes that are told apart from all others, and their hashes.

use std::io::{self, ErrorKind, Read, Write};

use sha2::{Digest, Sha256};

/// Bytes moved in one call.
const CHUNK_BYTES: usize = 128 * 1024;

/// A number of bytes with their SHA-256.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Sum {
    /// How many.
    pub bytes: u64,
    /// SHA-256.
    pub sha256: [u8; 32],
}

impl std::fmt::Debug for Sum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes, sha256 ", self.bytes)?;
        self.sha256[..6].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Display for Sum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.sha256.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Endless bytes of a generator (xorshift64*), different for each seed and nowhere repeating
/// within what a test sends: a lost, doubled or swapped block changes the hash.
#[derive(Clone, Debug)]
pub struct Pattern(u64);

impl Pattern {
    /// The same bytes for the same seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Fills `buffer`; in steps of multiples of eight bytes the pattern is one stream.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        for chunk in buffer.chunks_mut(8) {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            let bytes = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }
}

/// The first `bytes` of the pattern of `seed`.
#[must_use]
pub fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut buffer = vec![0; bytes];
    Pattern::new(seed).fill(&mut buffer);
    buffer
}

/// Sends the first `bytes` of the pattern of `seed` and answers their hash.
///
/// # Errors
/// Of the writer.
pub fn send(mut to: impl Write, seed: u64, bytes: u64) -> io::Result<Sum> {
    let (mut pattern, mut hash) = (Pattern::new(seed), Sha256::new());
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut left = bytes;
    while left > 0 {
        let chunk = &mut buffer[..left.min(CHUNK_BYTES as u64) as usize];
        pattern.fill(chunk);
        hash.update(&*chunk);
        to.write_all(chunk)?;
        left -= chunk.len() as u64;
    }
    Ok(Sum { bytes, sha256: hash.finalize().into() })
}

/// Reads to the end and answers what came.
///
/// # Errors
/// Of the reader: a reset or a time-out is not an end.
pub fn receive(from: impl Read) -> io::Result<Sum> {
    let (sum, error) = receive_until_error(from);
    error.map_or(Ok(sum), Err)
}

/// Reads to the end or to an error, and answers what came before.
pub fn receive_until_error(mut from: impl Read) -> (Sum, Option<io::Error>) {
    let (mut hash, mut bytes) = (Sha256::new(), 0);
    let mut buffer = vec![0; CHUNK_BYTES];
    let error = loop {
        match from.read(&mut buffer) {
            Ok(0) => break None,
            Ok(read) => {
                hash.update(&buffer[..read]);
                bytes += read as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => break Some(error),
        }
    };
    (Sum { bytes, sha256: hash.finalize().into() }, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_what_the_pattern_says() {
        let mut sent = Vec::new();
        let sum = send(&mut sent, 7, 300_001).unwrap();
        assert_eq!(sent, pattern(7, 300_001));
        assert_eq!(receive(&sent[..]).unwrap(), sum);
        assert_ne!(receive(&sent[1..]).unwrap(), sum);
        assert_ne!(pattern(7, 64), pattern(8, 64));
    }
}
