//! Logs on standard error, as `[log]` of the configuration says.
//!
//! An event loop never waits for standard error: a thread of its own writes, from a queue of bounded
//! lines of bounded length, and lines that find the queue full are dropped and counted. What one place
//! in the code says again and again for the same reason is limited ([`limit`]), whatever the place is.

mod counters;
mod journald;
mod limit;
mod metrics;
mod panics;
mod report;

use std::io::{self, Write};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use millrace_config::{Log, LogFormat, LogLevel};
use millrace_tunnel::metrics::Metrics;
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::{FilterExt, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{Layer, fmt};

pub use counters::LogCounters;
use journald::JournaldLines;
use limit::RateLimit;
use metrics::LogLines;
use report::Reporter;

/// Lines that may wait for standard error.
const MAX_QUEUED_LINES: usize = 4096;
/// The longest line; with [`MAX_QUEUED_LINES`] it bounds the queue to 16 MiB.
const MAX_LINE_BYTES: usize = 4096;
/// How long the end of the process waits for lines to be written.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(1200);

/// Running logging. When this is dropped, the queue is written, for a bounded time.
#[derive(Debug)]
pub struct Logging {
    counters: LogCounters,
    reporter: Option<Reporter>,
    writer: Option<WorkerGuard>,
}

impl Logging {
    /// Shows in `metrics` what was not written.
    ///
    /// # Errors
    /// The registry refuses a metric.
    pub fn show_in(&self, metrics: &Metrics) -> prometheus::Result<()> {
        metrics.register(Box::new(LogLines::new(self.counters.clone())?))
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        // It has a last line to say.
        self.reporter = None;
        let Some(writer) = self.writer.take() else { return };
        // The guard may block on a standard output that is not read either.
        let (done, flushed) = channel();
        let flush = thread::Builder::new().name("log-flush".to_owned()).spawn(move || {
            drop(writer);
            done.send(())
        });
        if flush.is_ok() {
            // Lines that can't be written in time are lost with the process.
            let _ = flushed.recv_timeout(FLUSH_TIMEOUT);
        }
    }
}

/// Starts logging for the whole process; once.
///
/// # Errors
/// Logging has been started before.
pub fn init(log: &Log) -> Result<Logging, TryInitError> {
    let (queue, writer) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(MAX_QUEUED_LINES)
        .thread_name("log")
        .finish(io::stderr());
    let limit = RateLimit::default();
    let counters =
        LogCounters { queue_full: queue.error_counter(), suppressed: limit.suppressed() };
    let lines = LogLineSender { queue, format: log.format };
    subscriber(log, move || lines.clone(), limit.clone()).try_init()?;
    panics::log_panics();
    let reporter = Reporter::start(limit, counters.clone()).ok();
    Ok(Logging { counters, reporter, writer: Some(writer) })
}

/// The queue's end at which lines go in.
#[derive(Clone)]
struct LogLineSender {
    queue: NonBlocking,
    format: LogFormat,
}

impl Write for LogLineSender {
    /// Takes a whole line.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.queue.write_all(&bounded(line, self.format))?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A line of at most [`MAX_LINE_BYTES`]: longer text is cut off, and a longer JSON object, which would be
/// none any more, is replaced by one that says so.
fn bounded(line: &[u8], format: LogFormat) -> std::borrow::Cow<'_, [u8]> {
    const CUT_MARK: &[u8] = b"...\n";
    if line.len() <= MAX_LINE_BYTES {
        return line.into();
    }
    match format {
        LogFormat::Text | LogFormat::Journald => {
            let text = String::from_utf8_lossy(line);
            let end = text.floor_char_boundary(MAX_LINE_BYTES - CUT_MARK.len());
            [&text.as_bytes()[..end], CUT_MARK].concat().into()
        }
        LogFormat::Json => {
            let bytes = line.len();
            let message = format!("a log line of {bytes} bytes is left out: too long");
            format!("{{\"level\":\"WARN\",\"message\":\"{message}\"}}\n").into_bytes().into()
        }
    }
}

/// What [`init`] sets up, for any writer.
fn subscriber<W>(log: &Log, writer: W, limit: RateLimit) -> impl Subscriber + Send + Sync + use<W>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let layer = fmt::layer().with_writer(writer);
    let layer = match log.format {
        LogFormat::Text => layer.with_ansi(false).boxed(),
        LogFormat::Journald => {
            layer.with_ansi(false).event_format(JournaldLines::default()).boxed()
        }
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(layer.with_filter(targets(log.level).and(limit)))
}

// Libraries say something for every packet at levels at which we say something for every flow.
fn targets(level: LogLevel) -> Targets {
    let ours = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let libraries = if level == LogLevel::Trace { ours } else { ours.min(LevelFilter::WARN) };
    Targets::new().with_default(libraries).with_target("millrace", ours)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<Vec<u8>>>);

    impl Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(level: LogLevel, format: LogFormat, log: impl FnOnce()) -> String {
        let memory = Memory::default();
        let writer = memory.clone();
        let limit = RateLimit::default();
        let subscriber = subscriber(&Log { level, format }, move || writer.clone(), limit);
        tracing::subscriber::with_default(subscriber, log);
        let bytes = memory.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn text_has_level_fields_and_no_colours() {
        let text = logged(LogLevel::Info, LogFormat::Text, || {
            tracing::info!(target: "millrace_tunnel", address = "127.0.0.1:1", "listening");
        });
        assert!(text.contains(" INFO ") && text.contains("listening address=\"127.0.0.1:1\""));
        assert!(!text.contains('\x1b'), "{text}");
    }

    #[test]
    fn json_is_one_object_a_line() {
        let text = logged(LogLevel::Info, LogFormat::Json, || {
            tracing::warn!(target: "millrace_tunnel", flows = 3, "a \"quoted\"\nmessage");
            tracing::info!(target: "millrace_tunnel", "second");
        });
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0]["level"], "WARN");
        assert_eq!(lines[0]["flows"], 3);
        assert_eq!(lines[0]["message"], "a \"quoted\"\nmessage");
    }

    #[test]
    fn lines_for_the_journal_begin_with_their_priority() {
        let text = logged(LogLevel::Trace, LogFormat::Journald, || {
            tracing::error!(target: "millrace_client::x", port = 1, "E");
            tracing::warn!(target: "millrace_client::x", "two\nlines");
            tracing::info!(target: "millrace_client::x", "I");
            tracing::debug!(target: "millrace_client::x", "D");
            tracing::trace!(target: "millrace_client::x", "T");
        });
        assert_eq!(
            text,
            "<3>millrace_client::x: E port=1\n<4>millrace_client::x: two\n<4>lines\n\
             <6>millrace_client::x: I\n<7>millrace_client::x: D\n<7>millrace_client::x: T\n"
        );
    }

    #[test]
    fn less_important_lines_are_left_out() {
        let all = || {
            tracing::error!(target: "millrace_client::x", "E");
            tracing::warn!(target: "millrace_client::x", "W");
            tracing::info!(target: "millrace_client::x", "I");
            tracing::debug!(target: "millrace_client::x", "D");
            tracing::trace!(target: "millrace_client::x", "T");
            tracing::warn!(target: "quiche", "library W");
            tracing::info!(target: "quiche", "library I");
        };
        let cases = [
            (LogLevel::Error, 1),
            (LogLevel::Warn, 3),
            (LogLevel::Info, 4),
            (LogLevel::Debug, 5),
            (LogLevel::Trace, 7),
        ];
        for (level, lines) in cases {
            let text = logged(level, LogFormat::Text, all);
            assert_eq!(text.lines().count(), lines, "{level:?}\n{text}");
        }
    }

    #[test]
    fn disabled_levels_are_known_before_a_record_is_formatted() {
        for (level, most) in [
            (LogLevel::Error, LevelFilter::ERROR),
            (LogLevel::Info, LevelFilter::INFO),
            (LogLevel::Trace, LevelFilter::TRACE),
        ] {
            let log = Log { level, format: LogFormat::Text };
            let subscriber = subscriber(&log, io::sink, RateLimit::default());
            assert_eq!(subscriber.max_level_hint(), Some(most));
        }
    }

    #[test]
    fn a_place_that_repeats_itself_is_limited_and_others_are_not() {
        let text = logged(LogLevel::Info, LogFormat::Text, || {
            for attempt in 0..1000 {
                tracing::warn!(target: "millrace_client::x", attempt, reason = "no descriptor", "A");
                tracing::info!(target: "millrace_client::x", attempt, "B");
            }
            tracing::warn!(target: "millrace_client::x", "C");
        });
        let lines = |what: &str| text.lines().filter(|line| line.contains(what)).count();
        assert!((1..10).contains(&lines(" A ")), "{text}");
        assert!((1..200).contains(&lines(" B ")), "{text}");
        assert_eq!(lines(": C"), 1, "{text}");
    }

    #[test]
    fn a_line_that_is_too_long_is_cut_off_or_replaced() {
        let short = b"short\n";
        assert_eq!(&*bounded(short, LogFormat::Text), short);
        let mut long = "\u{e4}".repeat(MAX_LINE_BYTES);
        long.push('\n');
        let cut = bounded(long.as_bytes(), LogFormat::Text);
        assert!(cut.len() <= MAX_LINE_BYTES && cut.ends_with(b"...\n"));
        assert!(std::str::from_utf8(&cut).is_ok());
        let replaced = bounded(long.as_bytes(), LogFormat::Json);
        let value: serde_json::Value = serde_json::from_slice(&replaced).unwrap();
        assert!(value["message"].as_str().unwrap().contains("8193 bytes"), "{value}");
    }
}
