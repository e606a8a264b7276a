//! Episodes in Parquet files, in a directory of limited size.
//!
//! A separate thread collects rows and writes whole files. It renames a file after writing, so that readers never
//! see a partial file. A killed process loses the rows that it has not written.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::record::RecordWriter;

use crate::Episode;

/// Maximum number of rows of a file. A file is written as soon as that many rows wait.
pub const MAX_ROWS: usize = 50_000;
/// Maximum number of batches of the Selectors that wait.
const MAX_WAITING: usize = 1024;
const PREFIX: &str = "episodes-";
const SUFFIX: &str = ".parquet";

/// The directory of the files, and its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TelemetryDirectory {
    /// Path; the directory is created if it does not exist.
    pub path: PathBuf,
    /// Maximum size of all files. The oldest files are removed first; the newest file always stays.
    pub max_bytes: u64,
    /// Maximum time for which rows wait before they are written.
    pub flush_interval: Duration,
}

/// Accepts episodes. Clones write to the same files.
#[derive(Clone, Debug)]
pub struct Sink {
    rows: SyncSender<Vec<Episode>>,
    /// Rows lost by write errors and not returned by [`Sink::submit`] yet.
    lost: Arc<AtomicU64>,
}

impl Sink {
    /// Submits episodes whose times count from `epoch`. Returns the number of lost rows: those of `episodes` if there
    /// is no room for them, and those that could not be written since the last call. With an empty list, it returns
    /// only the latter.
    pub fn submit(&self, mut episodes: Vec<Episode>, epoch: SystemTime) -> u64 {
        let epoch = epoch.duration_since(UNIX_EPOCH).unwrap_or_default();
        let epoch_ms = i64::try_from(epoch.as_millis()).unwrap_or(i64::MAX);
        for episode in &mut episodes {
            episode.ended_ms = episode.ended_ms.saturating_add(epoch_ms);
        }
        let count = episodes.len() as u64;
        let has_room = count == 0 || self.rows.try_send(episodes).is_ok();
        let dropped = if has_room { 0 } else { count };
        dropped + self.lost.swap(0, Ordering::Relaxed)
    }
}

/// The writing thread. On drop, it writes the remaining rows and ends.
#[derive(Debug)]
pub struct TelemetryWriter {
    sink: Option<Sink>,
    thread: Option<JoinHandle<()>>,
}

impl TelemetryWriter {
    /// Starts the thread. `report` takes write errors, a repeated error only once in a row.
    ///
    /// # Errors
    /// The directory can't be created or written to, or the system can't create a thread.
    pub fn start(
        directory: TelemetryDirectory,
        report: impl Fn(&str) + Send + 'static,
    ) -> io::Result<Self> {
        fs::create_dir_all(&directory.path)?;
        // Fails at the start and not at the first flush.
        let probe = directory.path.join(format!(".{PREFIX}{}", std::process::id()));
        File::create(&probe)?;
        fs::remove_file(&probe)?;
        let (rows, received) = sync_channel(MAX_WAITING);
        let lost = Arc::new(AtomicU64::new(0));
        let counter = lost.clone();
        let thread = thread::Builder::new()
            .name("telemetry".to_owned())
            .spawn(move || collect(&directory, &received, &counter, report))?;
        Ok(Self { sink: Some(Sink { rows, lost }), thread: Some(thread) })
    }

    /// The sink for episodes. Drop all its clones before this value, because the drop waits for them.
    pub fn sink(&self) -> Option<Sink> {
        self.sink.clone()
    }
}

impl Drop for TelemetryWriter {
    fn drop(&mut self) {
        self.sink = None;
        if let Some(thread) = self.thread.take() {
            // The panic hook has reported panics of the thread.
            let _ = thread.join();
        }
    }
}

fn collect(
    directory: &TelemetryDirectory,
    received: &Receiver<Vec<Episode>>,
    lost: &AtomicU64,
    report: impl Fn(&str),
) {
    let mut rows: Vec<Episode> = Vec::new();
    let mut reported = None;
    let mut due = Instant::now() + directory.flush_interval;
    loop {
        let batch = received.recv_timeout(due.saturating_duration_since(Instant::now()));
        let is_over = batch == Err(RecvTimeoutError::Disconnected);
        rows.extend(batch.into_iter().flatten());
        if rows.len() >= MAX_ROWS || Instant::now() >= due || is_over {
            due = Instant::now() + directory.flush_interval;
            let written = directory.write(&rows);
            if written.is_err() {
                // Rows are dropped and not retried: memory is limited while the disk is full.
                lost.fetch_add(rows.len() as u64, Ordering::Relaxed);
            }
            rows.clear();
            let done = written.and_then(|file| file.map_or(Ok(()), |file| directory.prune(&file)));
            let problem = done.err().map(|error| error.to_string());
            if let Some(problem) =
                problem.as_ref().filter(|problem| reported.as_ref() != Some(*problem))
            {
                report(problem);
            }
            reported = problem;
        }
        if is_over {
            return;
        }
    }
}

/// An error of writing a file.
#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error("{0}: {1}")]
    File(String, io::Error),
    #[error("{0}: {1}")]
    Parquet(String, ParquetError),
}

impl TelemetryDirectory {
    /// Writes the rows to a new file and returns its name; `None` without rows.
    fn write(&self, rows: &[Episode]) -> Result<Option<String>, WriteError> {
        if rows.is_empty() {
            return Ok(None);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let name = format!("{PREFIX}{:013}-{}{SUFFIX}", now.as_millis(), std::process::id());
        let (partial, whole) = (self.path.join(format!(".{name}.partial")), self.path.join(&name));
        write(&partial, rows).inspect_err(|_| _ = fs::remove_file(&partial))?;
        let named = |error| WriteError::File(whole.display().to_string(), error);
        fs::rename(&partial, &whole).map_err(named)?;
        Ok(Some(name))
    }

    /// Removes the oldest files above the limit. File names sort by time.
    fn prune(&self, newest: &str) -> Result<(), WriteError> {
        let in_directory = |error| WriteError::File(self.path.display().to_string(), error);
        self.remove_oldest(newest).map_err(in_directory)
    }

    fn remove_oldest(&self, newest: &str) -> io::Result<()> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(PREFIX) && name.ends_with(SUFFIX) {
                files.push((name, entry.metadata()?.len()));
            }
        }
        files.sort_unstable();
        let mut bytes: u64 = files.iter().map(|(_, bytes)| bytes).sum();
        for (name, size) in files {
            if bytes <= self.max_bytes || name == newest {
                break;
            }
            fs::remove_file(self.path.join(name))?;
            bytes -= size;
        }
        Ok(())
    }
}

/// Writes rows to a file, in the schema of [`Episode`].
///
/// # Errors
/// The file can't be written.
pub fn write_file(file: &Path, rows: &[Episode]) -> io::Result<()> {
    write(file, rows).map_err(io::Error::other)
}

fn write(file: &Path, rows: &[Episode]) -> Result<(), WriteError> {
    let name = || file.display().to_string();
    let in_parquet = |error| WriteError::Parquet(name(), error);
    let open = File::create(file).map_err(|error| WriteError::File(name(), error))?;
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let schema = rows.schema().map_err(in_parquet)?;
    let mut writer =
        SerializedFileWriter::new(open, schema, Arc::new(properties)).map_err(in_parquet)?;
    for group in rows.chunks(MAX_ROWS) {
        let mut row_group = writer.next_row_group().map_err(in_parquet)?;
        group.write_to_row_group(&mut row_group).map_err(in_parquet)?;
        row_group.close().map_err(in_parquet)?;
    }
    writer.close().map(drop).map_err(in_parquet)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    use super::*;

    fn rows(count: usize) -> Vec<Episode> {
        let row = |number: usize| Episode {
            ended_ms: number as i64,
            class: "dash".to_owned(),
            algorithm: format!("a{number}"),
            rate_mbps: number as f64 / 2.0,
            player_starved: number.is_multiple_of(2).then_some(true),
            ..Episode::default()
        };
        (0..count).map(row).collect()
    }

    fn files(path: &Path) -> Vec<PathBuf> {
        let mut files: Vec<_> = fs::read_dir(path).unwrap().map(|it| it.unwrap().path()).collect();
        files.sort();
        files
    }

    #[test]
    fn submitted_rows_are_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new");
        let to = TelemetryDirectory {
            path: path.clone(),
            max_bytes: 1 << 20,
            flush_interval: Duration::from_secs(600),
        };
        let telemetry = TelemetryWriter::start(to, |problem| panic!("{problem}")).unwrap();
        let sink = telemetry.sink().unwrap();
        assert_eq!(sink.submit(rows(3), UNIX_EPOCH + Duration::from_secs(2)), 0);
        assert_eq!(sink.submit(rows(2), UNIX_EPOCH), 0);
        drop(sink);
        drop(telemetry);

        let files = files(&path);
        assert_eq!(files.len(), 1, "{files:?}");
        let reader = SerializedFileReader::new(File::open(&files[0]).unwrap()).unwrap();
        let columns = reader.metadata().file_metadata().schema_descr().columns().to_vec();
        let place = |name: &str| columns.iter().position(|it| it.name() == name).unwrap();
        let read: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        assert_eq!(read.len(), 5);
        assert_eq!(read[2].get_long(place("ended_ms")).unwrap(), 2002);
        assert_eq!(read[2].get_double(place("rate_mbps")).unwrap(), 1.0);
        assert_eq!(read[2].get_string(place("algorithm")).unwrap(), "a2");
        assert!(read[2].get_bool(place("player_starved")).unwrap());
        assert!(read[1].get_bool(place("player_starved")).is_err(), "null");
    }

    #[test]
    fn oldest_files_are_removed_first() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        for number in 0..5 {
            fs::write(path.join(format!("{PREFIX}000000000000{number}-1{SUFFIX}")), [0; 1000])
                .unwrap();
        }
        fs::write(path.join("something-else"), [0; 5000]).unwrap();
        let to = TelemetryDirectory {
            path: path.to_owned(),
            max_bytes: 2500,
            flush_interval: Duration::ZERO,
        };
        let write =
            |to: &TelemetryDirectory| to.prune(&to.write(&rows(1)).unwrap().unwrap()).unwrap();
        write(&to);
        let left: Vec<_> = files(path)
            .iter()
            .map(|file| file.file_name().unwrap().to_string_lossy().into_owned())
            .filter(|name| name.starts_with("episodes-0000"))
            .collect();
        // A file with one row has about 2 kB.
        assert!(left.len() <= 1, "{left:?}");
        assert!(path.join("something-else").exists());
        let none = TelemetryDirectory { max_bytes: 0, ..to };
        write(&none);
        assert_eq!(files(path).len(), 2, "the newest file and the foreign file");
    }

    #[test]
    fn unwritable_directory_fails_at_start_or_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        let to = TelemetryDirectory { path: file, max_bytes: 1, flush_interval: Duration::ZERO };
        assert!(TelemetryWriter::start(to.clone(), |_| {}).is_err());

        let gone = directory.path().join("gone");
        let reported = Arc::new(Mutex::new(Vec::new()));
        let problems = Arc::clone(&reported);
        let to = TelemetryDirectory {
            path: gone.clone(),
            flush_interval: Duration::from_secs(600),
            ..to
        };
        let telemetry =
            TelemetryWriter::start(to, move |it| problems.lock().unwrap().push(it.to_owned()))
                .unwrap();
        fs::remove_dir(&gone).unwrap();
        assert_eq!(telemetry.sink().unwrap().submit(rows(1), UNIX_EPOCH), 0);
        drop(telemetry);
        let reported = reported.lock().unwrap();
        assert!(reported.len() == 1 && reported[0].contains("gone"), "{reported:?}");
    }

    #[test]
    fn rows_that_cannot_be_written_are_counted_as_lost() {
        let directory = tempfile::tempdir().unwrap();
        let gone = directory.path().join("gone");
        let to = TelemetryDirectory {
            path: gone.clone(),
            max_bytes: 1 << 20,
            flush_interval: Duration::ZERO,
        };
        let (report, reported) = std::sync::mpsc::channel();
        let telemetry =
            TelemetryWriter::start(to, move |problem| report.send(problem.to_owned()).unwrap())
                .unwrap();
        let sink = telemetry.sink().unwrap();
        fs::remove_dir(&gone).unwrap();
        assert_eq!(sink.submit(rows(7), UNIX_EPOCH), 0);
        reported.recv_timeout(Duration::from_secs(10)).unwrap();
        assert_eq!(sink.submit(Vec::new(), UNIX_EPOCH), 7);
        assert_eq!(sink.submit(Vec::new(), UNIX_EPOCH), 0);
        drop(sink);
    }
}
