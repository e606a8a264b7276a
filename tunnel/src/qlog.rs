//! Traces of single connections (qlog, draft-ietf-quic-qlog-main-schema, as JSON text sequences),
//! on demand and bounded. A thread of its own writes each file: what the disk is too slow for is
//! left out and counted, and the event loop never waits.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use qlog::events::{EventImportance, JsonEvent};
use qlog::streamer::QlogStreamer;
use serde::Serialize;

/// Traces at a time.
const MAX_TRACES: usize = 16;
/// Bytes handed to the thread that writes.
const CHUNK_BYTES: usize = 64 << 10;
/// Chunks that may wait for the disk.
const MAX_WAITING_CHUNKS: usize = 64;
/// How often the thread looks whether its trace was stopped.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// Why a trace was not started or stopped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QlogError {
    /// `admin.qlog_dir` is not set.
    #[error("no directory for traces: set admin.qlog_dir, and restart the program")]
    NotConfigured,
    /// No connection has the identifier.
    #[error("there is no such connection; /flows shows the connections of flows")]
    NoConnection,
    /// It has a trace already.
    #[error("the connection is being traced already")]
    Running,
    /// It has no trace.
    #[error("the connection is not being traced")]
    NotRunning,
    /// Too many at a time.
    #[error("{MAX_TRACES} traces are running, which is all that is allowed; stop one")]
    TooMany,
    /// The file can't be made.
    #[error("can't write {0}")]
    File(String),
    /// The worker that has the connection did not answer.
    #[error("no answer in time; try again")]
    NoAnswer,
}

/// Writes down that another algorithm drives the connection. qlog has an event for its states only, which
/// name no algorithm; ours has the same fields.
pub(crate) fn note_switch(
    streamer: &mut QlogStreamer,
    old: &'static str,
    new: &'static str,
    trigger: &'static str,
) {
    let data = serde_json::json!({ "old": old, "new": new, "trigger": trigger });
    let name = "millrace:congestion_control_changed".to_owned();
    let event = JsonEvent { time: 0.0, importance: EventImportance::Base, name, data };
    // A trace that can't be written has ended, or says so itself.
    let _ = streamer.add_event_now(event);
}

/// One trace as people see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TraceInfo {
    /// The connection, as it was asked for.
    pub connection: String,
    /// Where it is written.
    pub file: PathBuf,
    /// Bytes written so far.
    pub bytes: u64,
    /// Bytes left out, because the file is full or the disk too slow.
    pub left_out_bytes: u64,
}

/// Where traces go. Shared by all workers.
#[derive(Debug)]
pub struct QlogSink {
    dir: PathBuf,
    max_bytes: u64,
    count: AtomicUsize,
    traces: Mutex<Vec<Arc<TraceProgress>>>,
}

#[derive(Debug)]
struct TraceProgress {
    connection: String,
    file: PathBuf,
    bytes: AtomicU64,
    left_out_bytes: AtomicU64,
    stopped: AtomicBool,
}

impl QlogSink {
    /// Files of at most `max_bytes` each in `dir`.
    pub fn new(dir: &Path, max_bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            dir: dir.to_owned(),
            max_bytes,
            count: AtomicUsize::new(0),
            traces: Mutex::default(),
        })
    }

    /// All that run.
    pub fn traces(&self) -> Vec<TraceInfo> {
        let traces = self.traces.lock().unwrap_or_else(PoisonError::into_inner);
        let info = |progress: &Arc<TraceProgress>| TraceInfo {
            connection: progress.connection.clone(),
            file: progress.file.clone(),
            bytes: progress.bytes.load(Ordering::Relaxed),
            left_out_bytes: progress.left_out_bytes.load(Ordering::Relaxed),
        };
        traces.iter().map(info).collect()
    }

    /// A new file for a connection, and what stops it.
    ///
    /// # Errors
    /// Too many run, or the file can't be made.
    pub fn start(self: &Arc<Self>, connection: &str) -> Result<(Trace, QlogWriter), QlogError> {
        let place = self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
            (count < MAX_TRACES).then_some(count + 1)
        });
        place.map_err(|_| QlogError::TooMany)?;
        self.open(connection).inspect_err(|_| {
            self.count.fetch_sub(1, Ordering::Relaxed);
        })
    }

    fn open(self: &Arc<Self>, connection: &str) -> Result<(Trace, QlogWriter), QlogError> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let file = self.dir.join(format!("{connection}-{}.sqlog", since.as_millis()));
        let failed = |error: io::Error| QlogError::File(format!("{}: {error}", file.display()));
        // The file shows which addresses communicate: only its owner may read it.
        let output = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file);
        let output = output.map_err(failed)?;
        let progress = Arc::new(TraceProgress {
            connection: connection.to_owned(),
            file: file.clone(),
            bytes: AtomicU64::new(0),
            left_out_bytes: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
        });
        let (chunks, to_write) = sync_channel(MAX_WAITING_CHUNKS);
        let (sink, written) = (self.clone(), progress.clone());
        thread::Builder::new()
            .name("qlog".to_owned())
            .spawn(move || {
                write_out(output, &to_write, &written);
                sink.forget(&written);
            })
            .map_err(failed)?;
        self.traces.lock().unwrap_or_else(PoisonError::into_inner).push(progress.clone());
        let writer = QlogWriter {
            chunks,
            buffer: Vec::new(),
            left_bytes: self.max_bytes,
            progress: progress.clone(),
        };
        Ok((Trace(progress), writer))
    }

    fn forget(&self, progress: &Arc<TraceProgress>) {
        self.count.fetch_sub(1, Ordering::Relaxed);
        let mut traces = self.traces.lock().unwrap_or_else(PoisonError::into_inner);
        traces.retain(|other| !Arc::ptr_eq(other, progress));
    }
}

fn write_out(mut output: File, chunks: &Receiver<Vec<u8>>, progress: &TraceProgress) {
    loop {
        match chunks.recv_timeout(STOP_CHECK_INTERVAL) {
            Ok(chunk) => match output.write_all(&chunk) {
                Ok(()) => drop(progress.bytes.fetch_add(chunk.len() as u64, Ordering::Relaxed)),
                Err(error) => {
                    tracing::error!(file = %progress.file.display(), %error, "qlog aborted");
                    progress.stopped.store(true, Ordering::Relaxed);
                    return;
                }
            },
            Err(RecvTimeoutError::Timeout) if progress.stopped.load(Ordering::Relaxed) => return,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// A running trace; it stops when this is dropped.
#[derive(Debug)]
pub struct Trace(Arc<TraceProgress>);

impl Trace {
    /// Where it is written.
    pub fn file(&self) -> &Path {
        &self.0.file
    }

    /// Whether it was aborted.
    pub fn is_stopped(&self) -> bool {
        self.0.stopped.load(Ordering::Relaxed)
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        self.0.stopped.store(true, Ordering::Relaxed);
    }
}

/// What the transport writes to.
#[derive(Debug)]
pub struct QlogWriter {
    chunks: SyncSender<Vec<u8>>,
    buffer: Vec<u8>,
    left_bytes: u64,
    progress: Arc<TraceProgress>,
}

impl QlogWriter {
    fn forward(&mut self) {
        let chunk = std::mem::take(&mut self.buffer);
        let bytes = chunk.len() as u64;
        if bytes > 0 && self.chunks.try_send(chunk).is_err() {
            self.progress.left_out_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}

impl Write for QlogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.left_bytes.min(bytes.len() as u64);
        if taken < bytes.len() as u64 || self.progress.stopped.load(Ordering::Relaxed) {
            // Drops the rest too: a record without its beginning is of no use.
            self.left_bytes = 0;
            self.progress.left_out_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        } else {
            self.left_bytes -= taken;
            self.buffer.extend_from_slice(bytes);
            if self.buffer.len() >= CHUNK_BYTES {
                self.forward();
            }
        }
        // Said to be written in any case: the transport could do nothing about it.
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.forward();
        Ok(())
    }
}

impl Drop for QlogWriter {
    fn drop(&mut self) {
        self.forward();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait_until_gone(sink: &QlogSink) {
        let end = std::time::Instant::now() + Duration::from_secs(10);
        while !sink.traces().is_empty() {
            assert!(std::time::Instant::now() < end, "the thread does not end");
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_file_has_what_was_written_up_to_its_limit() {
        let dir = tempfile::tempdir().unwrap();
        let sink = QlogSink::new(dir.path(), 1000);
        let (trace, mut writer) = sink.start("abcd").unwrap();
        for _ in 0..150 {
            writer.write_all(b"seven b").unwrap();
        }
        writer.flush().unwrap();
        drop(writer);
        wait_until_gone(&sink);
        let written = std::fs::read(trace.file()).unwrap();
        assert_eq!(written, b"seven b".repeat(142));
        assert!(trace.file().starts_with(dir.path()));
    }

    #[test]
    fn so_many_run_at_a_time_and_a_stopped_one_makes_room() {
        let dir = tempfile::tempdir().unwrap();
        let sink = QlogSink::new(dir.path(), 1000);
        let start = |number: usize| sink.start(&format!("{number:04x}"));
        let mut running: Vec<_> = (0..MAX_TRACES).map(|number| start(number).unwrap()).collect();
        assert_eq!(start(99).unwrap_err(), QlogError::TooMany);
        assert_eq!(sink.traces().len(), MAX_TRACES);
        // The transport keeps its writer until the connection ends.
        let (trace, _writer) = running.pop().unwrap();
        drop(trace);
        let end = std::time::Instant::now() + Duration::from_secs(10);
        while start(99).is_err() {
            assert!(std::time::Instant::now() < end, "there is no room");
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_directory_that_is_not_there_is_named() {
        let sink = QlogSink::new(Path::new("/no/such/directory"), 1000);
        let error = sink.start("abcd").unwrap_err().to_string();
        assert!(error.contains("/no/such/directory/abcd-"), "{error}");
        assert!(sink.traces().is_empty());
    }
}
