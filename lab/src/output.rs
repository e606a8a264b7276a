//! Standard output of the commands. A reader that has ended, such as `head`, is no error: the command goes on to its end
//! and its exit code.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

/// Writes a line to standard output.
///
/// # Errors
/// Standard output can't be written for another reason than a reader that has ended.
pub fn line(text: impl Display) -> io::Result<()> {
    written_to(&mut io::stdout().lock(), format!("{text}\n").as_bytes())
}

/// Writes a line to standard error. Where that can't be written, there is no place left to say so.
pub fn error_line(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

fn written_to(output: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    match output.write_all(bytes).and_then(|()| output.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reader_that_has_ended_is_no_error() {
        let (reader, mut writer) = io::pipe().unwrap();
        drop(reader);
        assert_eq!(writer.write_all(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
        written_to(&mut writer, b"x").unwrap();
    }
}
