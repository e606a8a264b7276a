//! Panics in the log.

/// What a log line has room for.
fn beginning(backtrace: &str) -> String {
    const MAX_BACKTRACE_BYTES: usize = 2000;
    backtrace[..backtrace.floor_char_boundary(MAX_BACKTRACE_BYTES)].to_owned()
}

/// Logs each panic with its place and message, in place of the default hook, which would write to
/// standard error at once and might block.
pub(super) fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let message = panic.payload_as_str().unwrap_or("no message");
        let thread = std::thread::current();
        let backtrace = std::backtrace::Backtrace::capture();
        let backtrace = (backtrace.status() == std::backtrace::BacktraceStatus::Captured)
            .then(|| beginning(&backtrace.to_string()));
        tracing::error!(place, thread = thread.name(), error = message, backtrace, "panic");
    }));
}
