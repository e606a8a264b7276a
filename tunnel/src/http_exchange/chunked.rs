//! Content in chunks (RFC 9112, Section 7.1), read strictly: a size of hexadecimal digits, CR LF after it and after the
//! data. Extensions and trailers are read and dropped.

/// Most digits of a size: those of 64 bits.
const MAX_SIZE_DIGITS: u32 = 16;
/// Longest extension of a chunk, in bytes. None is registered.
const MAX_EXTENSION_BYTES: u32 = 1024;
/// Longest trailer section, in bytes.
const MAX_TRAILER_BYTES: u32 = 8 * 1024;

/// Why content is not in chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ChunkError {
    #[error("a chunk has a size that is not 1 to {MAX_SIZE_DIGITS} hexadecimal digits")]
    Size,
    #[error(
        "a chunk has an extension of more than {MAX_EXTENSION_BYTES} bytes, or with a control character"
    )]
    Extension,
    #[error("a line of the chunks does not end with CR LF")]
    LineEnd,
    #[error("the trailer has more than {MAX_TRAILER_BYTES} bytes, or a control character")]
    Trailer,
}

/// How chunks go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkOutput {
    /// As chunks of the same sizes.
    Chunks,
    /// As their data alone.
    Data,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkState {
    Size { value: u64, digits: u32 },
    Extension { value: u64, bytes: u32 },
    SizeEnd { value: u64 },
    Data { left: u64 },
    DataCr,
    DataLf,
    Trailer { bytes: u32, line_bytes: u32 },
    TrailerEnd { bytes: u32, line_bytes: u32 },
    Done,
}

/// Reads content in chunks, however it is cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChunkedReader {
    state: ChunkState,
    output: ChunkOutput,
}

impl ChunkedReader {
    pub(crate) fn new(output: ChunkOutput) -> Self {
        Self { state: ChunkState::Size { value: 0, digits: 0 }, output }
    }

    /// Whether the last chunk and its trailers have been read.
    pub(crate) fn is_done(&self) -> bool {
        self.state == ChunkState::Done
    }

    /// Reads `bytes` up to the end of the content, and appends what goes on to `out`. Returns how many it has read.
    pub(crate) fn read(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, ChunkError> {
        let mut at = 0;
        while at < bytes.len() && !self.is_done() {
            if let ChunkState::Data { left } = self.state {
                let taken = (bytes.len() - at).min(usize::try_from(left).unwrap_or(usize::MAX));
                out.extend_from_slice(&bytes[at..at + taken]);
                at += taken;
                self.state = match left - taken as u64 {
                    0 => ChunkState::DataCr,
                    left => ChunkState::Data { left },
                };
            } else {
                self.state = self.next(bytes[at], out)?;
                at += 1;
            }
        }
        Ok(at)
    }

    /// The state after a byte that is not data.
    fn next(&self, byte: u8, out: &mut Vec<u8>) -> Result<ChunkState, ChunkError> {
        let next = match (self.state, byte) {
            (ChunkState::Size { value, digits: 1.. }, b'\r') => ChunkState::SizeEnd { value },
            (ChunkState::Size { value, digits: 1.. }, b';') => {
                ChunkState::Extension { value, bytes: 0 }
            }
            (ChunkState::Size { value, digits }, _) => {
                let digit = char::from(byte).to_digit(16).filter(|_| digits < MAX_SIZE_DIGITS);
                let value = value << 4 | u64::from(digit.ok_or(ChunkError::Size)?);
                ChunkState::Size { value, digits: digits + 1 }
            }
            (ChunkState::Extension { value, .. }, b'\r') => ChunkState::SizeEnd { value },
            (ChunkState::Extension { value, bytes }, _) => {
                if is_control(byte) || bytes == MAX_EXTENSION_BYTES {
                    return Err(ChunkError::Extension);
                }
                ChunkState::Extension { value, bytes: bytes + 1 }
            }
            (ChunkState::SizeEnd { value: 0 }, b'\n') => {
                ChunkState::Trailer { bytes: 0, line_bytes: 0 }
            }
            (ChunkState::SizeEnd { value }, b'\n') => {
                self.write(out, format!("{value:x}\r\n").as_bytes());
                ChunkState::Data { left: value }
            }
            (ChunkState::DataCr, b'\r') => ChunkState::DataLf,
            (ChunkState::DataLf, b'\n') => {
                self.write(out, b"\r\n");
                ChunkState::Size { value: 0, digits: 0 }
            }
            (ChunkState::Trailer { bytes, line_bytes }, b'\r') => {
                ChunkState::TrailerEnd { bytes, line_bytes }
            }
            (ChunkState::Trailer { bytes, line_bytes }, _) => {
                if is_control(byte) || bytes == MAX_TRAILER_BYTES {
                    return Err(ChunkError::Trailer);
                }
                ChunkState::Trailer { bytes: bytes + 1, line_bytes: line_bytes + 1 }
            }
            (ChunkState::TrailerEnd { line_bytes: 0, .. }, b'\n') => {
                self.write(out, b"0\r\n\r\n");
                ChunkState::Done
            }
            (ChunkState::TrailerEnd { bytes, .. }, b'\n') => {
                ChunkState::Trailer { bytes, line_bytes: 0 }
            }
            (ChunkState::SizeEnd { .. }, _)
            | (ChunkState::DataCr | ChunkState::DataLf, _)
            | (ChunkState::TrailerEnd { .. }, _) => return Err(ChunkError::LineEnd),
            (state @ (ChunkState::Data { .. } | ChunkState::Done), _) => state,
        };
        Ok(next)
    }

    fn write(&self, out: &mut Vec<u8>, framing: &[u8]) {
        if self.output == ChunkOutput::Chunks {
            out.extend_from_slice(framing);
        }
    }
}

/// Control characters other than a tab (RFC 9110, Section 5.5).
fn is_control(byte: u8) -> bool {
    byte.is_ascii_control() && byte != b'\t'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: &[u8], cut: usize, output: ChunkOutput) -> Result<(usize, Vec<u8>), ChunkError> {
        let (mut reader, mut out, mut taken) = (ChunkedReader::new(output), Vec::new(), 0);
        for piece in input.chunks(cut) {
            taken += reader.read(piece, &mut out)?;
        }
        assert!(reader.is_done(), "{input:?}");
        Ok((taken, out))
    }

    #[test]
    fn chunks_are_written_again_or_taken_off_however_they_are_cut() {
        let input = b"5;a=\"b\"\r\nhello\r\n00A;x\r\n0123456789\r\n0;y\r\nX: y\r\nZ: \r\n\r\n";
        let with_more = [&input[..], b"GET http://b/ HTTP/1.1\r\n"].concat();
        for cut in 1..with_more.len() {
            let (taken, out) = read(&with_more, cut, ChunkOutput::Chunks).unwrap();
            assert_eq!(taken, input.len());
            assert_eq!(out, b"5\r\nhello\r\na\r\n0123456789\r\n0\r\n\r\n");
            let (taken, out) = read(&with_more, cut, ChunkOutput::Data).unwrap();
            assert_eq!((taken, out), (input.len(), b"hello0123456789".to_vec()));
        }
    }

    #[test]
    fn what_two_parsers_may_read_differently_is_refused() {
        use ChunkError as E;
        let long_extension = format!("5;{}\r\n", "x".repeat(MAX_EXTENSION_BYTES as usize + 1));
        let long_trailer = format!("0\r\n{}\r\n", "x".repeat(MAX_TRAILER_BYTES as usize + 1));
        for (input, error) in [
            ("\r\n", E::Size),
            (";x\r\n", E::Size),
            ("0x5\r\n", E::Size),
            ("+5\r\n", E::Size),
            ("-1\r\n", E::Size),
            (" 5\r\n", E::Size),
            ("5 \r\n", E::Size),
            ("5\n", E::Size),
            ("5_0\r\n", E::Size),
            ("00000000000000005\r\n", E::Size),
            ("10000000000000005\r\n", E::Size),
            ("5\r\r\n", E::LineEnd),
            ("5\rhello", E::LineEnd),
            ("5;x\nhello", E::Extension),
            ("5;x\0\r\n", E::Extension),
            ("5\r\nhello\n", E::LineEnd),
            ("5\r\nhelloX\r\n", E::LineEnd),
            ("5\r\nhello\r5\r\n", E::LineEnd),
            ("0\r\nX: y\n\r\n", E::Trailer),
            ("0\r\n\rx", E::LineEnd),
            (&long_extension, E::Extension),
            (&long_trailer, E::Trailer),
        ] {
            for cut in [1, input.len()] {
                let mut reader = ChunkedReader::new(ChunkOutput::Chunks);
                let mut out = Vec::new();
                let mut results = input.as_bytes().chunks(cut).map(|it| reader.read(it, &mut out));
                let failed = results.find_map(Result::err);
                assert_eq!(failed, Some(error), "{:?}", &input[..input.len().min(20)]);
            }
        }
    }

    #[test]
    fn size_of_64_bits_is_read() {
        let mut reader = ChunkedReader::new(ChunkOutput::Data);
        let mut out = Vec::new();
        assert_eq!(reader.read(b"FFFFFFFFFFFFFFFF\r\nab", &mut out), Ok(20));
        assert_eq!((out.as_slice(), reader.is_done()), (&b"ab"[..], false));
    }
}
