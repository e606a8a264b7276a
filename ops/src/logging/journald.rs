//! Lines for the systemd journal: each begins with its priority, as sd-daemon(3) wants it on standard error.
//!
//! The journal has time and unit of a line itself. It takes each line for an entry, so that all lines of a message have
//! the priority.

use std::fmt;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Writes lines with their priority.
pub(super) struct JournaldLines(Format<Full, ()>);

impl Default for JournaldLines {
    fn default() -> Self {
        Self(Format::default().without_time().with_level(false).with_ansi(false))
    }
}

impl<S, N> FormatEvent<S, N> for JournaldLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut text = String::new();
        self.0.format_event(context, Writer::new(&mut text), event)?;
        let priority = priority(*event.metadata().level());
        text.lines().try_for_each(|line| writeln!(writer, "<{priority}>{line}"))
    }
}

/// The priority of a level: SD_ERR, SD_WARNING, SD_INFO and SD_DEBUG of sd-daemon(3).
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}
