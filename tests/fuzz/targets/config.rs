//! Configuration files: no text may do worse than be refused with a reason that names the file.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use millrace_config::{parse_client, parse_server};

const CONGESTION_CONTROLS: [&str; 4] = ["bbr2", "constant", "cubic", "vivace-latency"];

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let file = Path::new("fuzzed.toml");
    let refusals = [
        parse_client(text, file, &CONGESTION_CONTROLS).err(),
        parse_server(text, file, &CONGESTION_CONTROLS).err(),
    ];
    for error in refusals.into_iter().flatten() {
        let reason = error.to_string();
        assert!(reason.contains("fuzzed.toml"), "{reason}");
    }
});
