//! Logs on standard error, as `[log]` of the configuration says.

use millrace_config::{Log, LogFormat, LogLevel};
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{Layer, fmt};

/// Starts logging for the whole process; once.
///
/// # Errors
/// Logging has been started before.
pub fn init(log: &Log) -> Result<(), TryInitError> {
    subscriber(log, std::io::stderr).try_init()
}

/// What [`init`] sets up, for any writer.
fn subscriber<W>(log: &Log, writer: W) -> impl Subscriber + Send + Sync + use<W>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let layer = fmt::layer().with_writer(writer);
    let layer = match log.format {
        LogFormat::Text => layer.with_ansi(false).boxed(),
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(layer.with_filter(targets(log.level)))
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
    use std::io::{self, Write};
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
        let subscriber = subscriber(&Log { level, format }, move || writer.clone());
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
}
