//! What the parsers' tests share.

use std::fmt::Debug;

use crate::Parsed;

/// Asserts that `input` parses to `value`, taking all of its bytes; that every proper prefix is
/// incomplete; and that bytes after it are left alone.
pub fn assert_incremental<T: Debug + PartialEq, E: Debug>(
    parse: impl Fn(&[u8]) -> Result<Parsed<T>, E>,
    input: &[u8],
    value: &T,
) {
    for cut in 0..input.len() {
        match parse(&input[..cut]) {
            Ok(Parsed::Incomplete) => {}
            other => panic!("first {cut} of {} bytes of {input:?}: {other:?}", input.len()),
        }
    }
    for tail in [&b""[..], b"\n", b"PROXY \r\n", &[0; 64], &[0xff; 20_000]] {
        let whole = [input, tail].concat();
        match parse(&whole) {
            Ok(Parsed::Complete { value: got, consumed }) => {
                assert_eq!(&got, value, "{input:?}");
                assert_eq!(consumed, input.len(), "{input:?} with {} more", tail.len());
            }
            other => panic!("{input:?} with {} more: {other:?}", tail.len()),
        }
    }
}
