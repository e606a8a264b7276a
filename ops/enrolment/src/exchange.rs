//! Messages over a stream.

use std::io::{self, Read};

use millrace_wire::Parsed;
use millrace_wire::enrolment::EnrolmentError;

/// Reads one message of at most `max_bytes`.
///
/// # Errors
/// The stream fails, ends early, or has something else.
pub(crate) fn receive<T>(
    stream: &mut impl Read,
    max_bytes: usize,
    parse: impl Fn(&[u8]) -> Result<Parsed<T>, EnrolmentError>,
) -> io::Result<T> {
    let mut buffer = vec![0; max_bytes];
    let mut filled = 0;
    loop {
        // Not zero: a message of `max_bytes` would be complete.
        let read = stream.read(&mut buffer[filled..])?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        filled += read;
        match parse(&buffer[..filled]) {
            Ok(Parsed::Complete { value, .. }) => return Ok(value),
            Ok(Parsed::Incomplete) => {}
            Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
        }
    }
}
