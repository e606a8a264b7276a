//! Capsules (RFC 9297 §3.2): what the stream of a CONNECT-UDP request carries.

use octets::{Octets, OctetsMut, varint_len};

use crate::http_datagram::MAX_UDP_PAYLOAD_BYTES;

/// The capsule whose value is an HTTP datagram (RFC 9297 §3.5).
pub const DATAGRAM: u64 = 0;

/// Longest DATAGRAM capsule that is taken: the longest UDP payload and a context ID.
pub const MAX_DATAGRAM_BYTES: usize = MAX_UDP_PAYLOAD_BYTES + 8;

/// A type and a length, each a varint of at most eight bytes.
const MAX_HEAD_BYTES: usize = 16;

/// Why a stream's capsules are not read any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CapsuleError {
    /// No UDP payload is so long (RFC 9298 §4): the flow is to be aborted.
    #[error("a DATAGRAM capsule has {0} bytes, more than any UDP payload")]
    TooLong(u64),
    /// The stream ended within a capsule (RFC 9297 §3.3).
    #[error("the stream ended within a capsule")]
    Truncated,
}

/// Reads a stream's capsules as its bytes come. Holds at most one DATAGRAM capsule; what is in
/// others is skipped (RFC 9297 §3.2).
#[derive(Debug, Default)]
pub struct Capsules {
    head: Vec<u8>,
    value: CapsuleValue,
}

#[derive(Debug, Default)]
enum CapsuleValue {
    /// The head is not whole yet.
    #[default]
    None,
    Datagram {
        bytes: Vec<u8>,
        left: usize,
    },
    Skipped {
        left: u64,
    },
}

impl Capsules {
    /// Takes the next bytes of the stream, and hands on the HTTP datagrams that they complete.
    ///
    /// # Errors
    /// [`CapsuleError::TooLong`].
    pub fn read(
        &mut self,
        mut bytes: &[u8],
        mut each: impl FnMut(&[u8]),
    ) -> Result<(), CapsuleError> {
        loop {
            match &mut self.value {
                CapsuleValue::None => {
                    let Some(value) = self.read_head(&mut bytes)? else { return Ok(()) };
                    self.value = value;
                }
                CapsuleValue::Datagram { bytes: datagram, left } => {
                    let taken = bytes.len().min(*left);
                    datagram.extend_from_slice(&bytes[..taken]);
                    *left -= taken;
                    bytes = &bytes[taken..];
                    if *left > 0 {
                        return Ok(());
                    }
                    each(datagram);
                    self.value = CapsuleValue::None;
                }
                CapsuleValue::Skipped { left } => {
                    let taken =
                        usize::try_from(*left).map_or(bytes.len(), |it| it.min(bytes.len()));
                    *left -= taken as u64;
                    bytes = &bytes[taken..];
                    if *left > 0 {
                        return Ok(());
                    }
                    self.value = CapsuleValue::None;
                }
            }
        }
    }

    /// The stream has ended.
    ///
    /// # Errors
    /// [`CapsuleError::Truncated`].
    pub fn end(&self) -> Result<(), CapsuleError> {
        match (&self.value, self.head.is_empty()) {
            (CapsuleValue::None, true) => Ok(()),
            _ => Err(CapsuleError::Truncated),
        }
    }

    /// Reads as much of a head as there is.
    fn read_head(&mut self, bytes: &mut &[u8]) -> Result<Option<CapsuleValue>, CapsuleError> {
        while let [first, rest @ ..] = bytes {
            self.head.push(*first);
            *bytes = rest;
            let mut octets = Octets::with_slice(&self.head);
            let (Ok(kind), Ok(length)) = (octets.get_varint(), octets.get_varint()) else {
                debug_assert!(self.head.len() < MAX_HEAD_BYTES, "two varints are no longer");
                continue;
            };
            self.head.clear();
            return match (kind, usize::try_from(length)) {
                (DATAGRAM, Ok(left @ 0..=MAX_DATAGRAM_BYTES)) => Ok(Some(CapsuleValue::Datagram {
                    bytes: Vec::with_capacity(left.min(2048)),
                    left,
                })),
                (DATAGRAM, _) => Err(CapsuleError::TooLong(length)),
                _ => Ok(Some(CapsuleValue::Skipped { left: length })),
            };
        }
        Ok(None)
    }
}

/// A DATAGRAM capsule with this HTTP datagram.
pub fn datagram(datagram: &[u8]) -> Vec<u8> {
    let length = datagram.len() as u64;
    let mut capsule = vec![0; 1 + varint_len(length)];
    OctetsMut::with_slice(&mut capsule[1..]).put_varint(length).expect("it has the room");
    capsule.extend_from_slice(datagram);
    capsule
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&[u8]]) -> (Vec<Vec<u8>>, Result<(), CapsuleError>) {
        let (mut capsules, mut got) = (Capsules::default(), Vec::new());
        for piece in pieces {
            if let Err(error) = capsules.read(piece, |it| got.push(it.to_vec())) {
                return (got, Err(error));
            }
        }
        (got, capsules.end())
    }

    /// An empty one, one of an unknown type, one with a value, one in long form.
    fn several() -> (Vec<u8>, Vec<Vec<u8>>) {
        let mut bytes = datagram(b"");
        bytes.extend([0x57, 0x3b, 3, 1, 2, 3]);
        bytes.extend(datagram(&[7; 300]));
        bytes.extend([0x40, 0, 0x80, 0, 0, 2, 8, 9]);
        bytes.extend([0x17, 0]);
        (bytes, vec![vec![], vec![7; 300], vec![8, 9]])
    }

    /// RFC 768 and RFC 9297, Section 3.5: a UDP payload of 65,527 bytes at most behind a context ID of 8.
    #[test]
    fn the_longest_udp_payload_is_taken_and_no_longer_one() {
        let of_length = |length: u32| [&[0, 0x80][..], &length.to_be_bytes()[1..]].concat();
        assert_eq!(Capsules::default().read(&of_length(65_535), |_| ()), Ok(()));
        let refused = Capsules::default().read(&of_length(65_536), |_| ());
        assert_eq!(refused, Err(CapsuleError::TooLong(65_536)));
    }

    #[test]
    fn whole_and_byte_by_byte() {
        let (bytes, want) = several();
        assert_eq!(read(&[&bytes]), (want.clone(), Ok(())));
        let single: Vec<_> = bytes.chunks(1).collect();
        assert_eq!(read(&single), (want.clone(), Ok(())));
        for cut in 0..bytes.len() {
            let (first, second) = bytes.split_at(cut);
            assert_eq!(read(&[first, second]), (want.clone(), Ok(())), "cut at {cut}");
        }
    }

    #[test]
    fn the_end_within_a_capsule_is_told() {
        let (bytes, _) = several();
        let ends: Vec<_> =
            (0..=bytes.len()).filter(|cut| read(&[&bytes[..*cut]]).1.is_ok()).collect();
        let [empty, other, long] = [2, 8, 8 + 303];
        assert_eq!(ends, [0, empty, other, long, long + 8, long + 10]);
    }

    #[test]
    fn the_longest_and_one_longer() {
        let longest = vec![1; MAX_DATAGRAM_BYTES];
        let (got, end) = read(&[&datagram(&longest)]);
        assert_eq!((got, end), (vec![longest], Ok(())));
        let too_long = datagram(&vec![1; MAX_DATAGRAM_BYTES + 1]);
        let length = MAX_DATAGRAM_BYTES as u64 + 1;
        assert_eq!(read(&[&too_long[..6]]), (vec![], Err(CapsuleError::TooLong(length))));
        // A capsule of an unknown type may have any length.
        let skipped = [0x17, 0xff, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0];
        assert_eq!(read(&[&skipped]), (vec![], Err(CapsuleError::Truncated)));
    }
}
