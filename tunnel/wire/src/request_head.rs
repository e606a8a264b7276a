//! The head of a request to the explicit proxy: its bounds, and the errors that every method has.

/// Longest request head with its empty line, in bytes.
pub const MAX_HEAD_BYTES: usize = 16 * 1024;

/// Most header fields in a request head.
pub const MAX_FIELDS: usize = 64;

/// Why a head is refused, whatever its method is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestHeadError {
    /// Not HTTP/1.x at all, or bytes that HTTP does not allow.
    Malformed(httparse::Error),
    /// HTTP, but neither version 1.0 nor 1.1.
    UnsupportedVersion,
    /// No end within [`MAX_HEAD_BYTES`].
    TooLarge,
    /// More than [`MAX_FIELDS`] fields.
    TooManyFields,
}

/// Parses a whole head into `request`. Returns its length, or `None` while more is to come.
pub(crate) fn parse<'b>(
    request: &mut httparse::Request<'_, 'b>,
    buf: &'b [u8],
) -> Result<Option<usize>, RequestHeadError> {
    let window = &buf[..buf.len().min(MAX_HEAD_BYTES)];
    match request.parse(window) {
        Ok(httparse::Status::Complete(consumed)) => Ok(Some(consumed)),
        Ok(httparse::Status::Partial) if window.len() == MAX_HEAD_BYTES => {
            Err(RequestHeadError::TooLarge)
        }
        Ok(httparse::Status::Partial) => Ok(None),
        Err(httparse::Error::TooManyHeaders) => Err(RequestHeadError::TooManyFields),
        Err(httparse::Error::Version) => Err(RequestHeadError::UnsupportedVersion),
        Err(error) => Err(RequestHeadError::Malformed(error)),
    }
}
