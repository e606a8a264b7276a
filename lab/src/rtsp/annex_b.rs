//! H.264 as a file (ITU-T H.264, Annex B): its NAL units and how long they are.
//!
//! live555 truncates units that are longer than its buffer, 60 to 300 kB by its version, and reports it only in
//! its log. Files are therefore checked before they are served.

use std::io::{self, Read};

/// Read at a time.
const CHUNK_BYTES: usize = 1 << 16;

/// What a file consists of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnitCounts {
    /// NAL units.
    pub units: u64,
    /// Of each picture the bytes of its slices, without start codes.
    pub pictures: Vec<u64>,
    /// The longest, without its start code.
    pub longest_bytes: u64,
    /// The whole file.
    pub bytes: u64,
}

/// Looks through a whole file.
///
/// # Errors
/// When it can't be read.
pub fn count_units(mut file: impl Read) -> io::Result<UnitCounts> {
    let mut scan = Scan::default();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return Ok(scan.finish()),
            Ok(read) => scan.take(&chunk[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[derive(Debug, Default)]
struct Scan {
    counts: UnitCounts,
    /// Zero bytes just before.
    zeros: u64,
    /// Bytes of the present unit so far, trailing zeros included; `None` before the first start code.
    unit_bytes: Option<u64>,
    /// The present unit's first byte.
    header: u8,
}

impl Scan {
    fn take(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.counts.bytes += 1;
            if byte == 1 && self.zeros >= 2 {
                self.close();
                self.unit_bytes = Some(0);
                self.zeros = 0;
                continue;
            }
            if let Some(length) = &mut self.unit_bytes {
                match *length {
                    0 => self.header = byte,
                    // A slice begins with `first_mb_in_slice` in Exp-Golomb code: a leading 1 is zero, and a
                    // picture begins with its first macroblock.
                    1 if is_slice(self.header) && byte & 0x80 != 0 => self.counts.pictures.push(0),
                    _ => {}
                }
                *length += 1;
            }
            self.zeros = if byte == 0 { self.zeros + 1 } else { 0 };
        }
    }

    /// The zeros before a start code, or at the end, are not the unit's.
    fn close(&mut self) {
        let Some(length) = self.unit_bytes.take() else { return };
        let length = length.saturating_sub(self.zeros);
        self.counts.units += 1;
        self.counts.longest_bytes = self.counts.longest_bytes.max(length);
        if let (true, Some(picture)) = (is_slice(self.header), self.counts.pictures.last_mut()) {
            *picture += length;
        }
    }

    fn finish(mut self) -> UnitCounts {
        self.close();
        self.counts
    }
}

/// By a NAL unit's first byte.
pub(super) fn is_slice(header: u8) -> bool {
    matches!(header & 0x1f, 1 | 5)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a byte at a time, as a file never does but might.
    struct Trickle<'a>(&'a [u8]);

    impl Read for Trickle<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let Some((first, rest)) = self.0.split_first() else { return Ok(0) };
            into[0] = *first;
            self.0 = rest;
            Ok(1)
        }
    }

    #[test]
    fn units_and_pictures_are_counted_wherever_a_read_ends() {
        // Parameter set, a picture of two slices, another of one; start codes of four and three bytes.
        let file = [
            &[0, 0, 0, 1, 0x67, 1, 2, 3][..],
            &[0, 0, 0, 1, 0x65, 0x88, 9, 9, 9, 9],
            &[0, 0, 1, 0x65, 0x40, 9],
            &[0, 0, 0, 1, 0x41, 0x9a, 0, 0, 3, 7],
        ]
        .concat();
        let bytes = file.len() as u64;
        let expected = UnitCounts { units: 4, pictures: vec![9, 6], longest_bytes: 6, bytes };
        assert_eq!(count_units(file.as_slice()).unwrap(), expected);
        assert_eq!(count_units(Trickle(&file)).unwrap(), expected);
    }

    #[test]
    fn a_file_without_start_code_has_no_unit() {
        let none = count_units(&[1_u8, 2, 3][..]).unwrap();
        assert_eq!((none.units, none.longest_bytes), (0, 0));
    }
}
