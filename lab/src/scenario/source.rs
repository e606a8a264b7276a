//! The text of a scenario file.

use std::fs;
use std::io::Read;
use std::path::Path;

use super::tree::{ScenarioError, ScenarioResult};

/// A larger file is no scenario.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Reads it.
pub(super) fn read(path: &Path) -> ScenarioResult<String> {
    let whole =
        |problem: String| ScenarioError { file: path.to_owned(), place: None, key: None, problem };
    let file = fs::File::open(path).map_err(|error| whole(format!("can't open: {error}")))?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| whole(format!("can't read: {error}")))?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > MAX_FILE_BYTES) {
        return Err(whole(format!("longer than {MAX_FILE_BYTES} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| whole("not a UTF-8 text".to_owned()))
}
