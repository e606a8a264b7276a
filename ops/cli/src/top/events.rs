//! What the display responds to: keys, and news of the program.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};

use super::snapshot::{SnapshotSource, TopSnapshot};
use crate::admin::AdminApiError;

/// An event of the display.
#[derive(Debug)]
pub(super) enum TopEvent {
    /// A key was pressed.
    Key(KeyEvent),
    /// The terminal has another size.
    Resized,
    /// The program answered, or did not.
    Updated(Result<TopSnapshot, AdminApiError>),
    /// No more keys can be read.
    InputFailed(io::Error),
}

/// Asks the program again and again. Ends when what it returns is dropped, after the request that is under way.
pub(super) fn start_updates(
    mut source: SnapshotSource,
    interval: Duration,
    events: &Sender<TopEvent>,
) -> io::Result<Sender<()>> {
    let (stop, stopped) = channel();
    let events = events.clone();
    thread::Builder::new().name("updates".to_owned()).spawn(move || {
        while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
            if events.send(TopEvent::Updated(source.fetch())).is_err() {
                return;
            }
        }
    })?;
    Ok(stop)
}

/// Reads keys. The thread ends with the process: a read can't be interrupted.
pub(super) fn start_input(events: Sender<TopEvent>) -> io::Result<()> {
    thread::Builder::new().name("keyboard".to_owned()).spawn(move || {
        loop {
            let event = match event::read() {
                Ok(Event::Key(key)) if key.kind == KeyEventKind::Press => TopEvent::Key(key),
                Ok(Event::Resize(..)) => TopEvent::Resized,
                Ok(_) => continue,
                Err(error) => TopEvent::InputFailed(error),
            };
            let failed = matches!(event, TopEvent::InputFailed(_));
            if events.send(event).is_err() || failed {
                return;
            }
        }
    })?;
    Ok(())
}
