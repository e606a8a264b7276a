//! Episodes in Parquet files, in a directory that does not outgrow its bounds.
//!
//! A thread of its own gathers rows and writes a file at a time, under another name until it is whole, so
//! that a reader never meets half of one. A process that is killed loses what it had gathered.

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

/// Rows of a file, which is written when there are so many: bounds what is gathered.
pub const MAX_ROWS: usize = 50_000;
/// Batches of a Selector that may wait.
const MAX_WAITING: usize = 1024;
const PREFIX: &str = "episodes-";
const SUFFIX: &str = ".parquet";

/// Where files go, and how long they stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    /// It is made if it is not there.
    pub path: PathBuf,
    /// All files together; the oldest go first. The newest stays whatever its size.
    pub max_bytes: u64,
    /// A file at least so often, if there is anything to write.
    pub every: Duration,
}

/// Takes episodes; a clone leads to the same files.
#[derive(Clone, Debug)]
pub struct Sink {
    rows: SyncSender<Vec<Episode>>,
    /// Rows that were not written and are not counted yet.
    lost: Arc<AtomicU64>,
}

impl Sink {
    /// Hands over episodes that ended at times since `epoch`, in Unix time. The rows that are lost: those of
    /// `episodes` if there is no room for them, and those that could not be written since the last call. An
    /// empty list only asks for the latter.
    pub fn take(&self, mut episodes: Vec<Episode>, epoch: SystemTime) -> u64 {
        let epoch = epoch.duration_since(UNIX_EPOCH).unwrap_or_default();
        let epoch_ms = i64::try_from(epoch.as_millis()).unwrap_or(i64::MAX);
        for episode in &mut episodes {
            episode.ended_ms = episode.ended_ms.saturating_add(epoch_ms);
        }
        let count = episodes.len() as u64;
        let has_room = count == 0 || self.rows.try_send(episodes).is_ok();
        let found_no_room = if has_room { 0 } else { count };
        found_no_room + self.lost.swap(0, Ordering::Relaxed)
    }
}

/// The thread that writes. When this is dropped, it writes what is left and ends.
#[derive(Debug)]
pub struct Telemetry {
    sink: Option<Sink>,
    thread: Option<JoinHandle<()>>,
}

impl Telemetry {
    /// Begins to write. `tell` hears of files that can't be written, of the same problem only once in a row.
    ///
    /// # Errors
    /// The directory can't be made or written to, or there is no thread left.
    pub fn start(directory: Directory, tell: impl Fn(&str) + Send + 'static) -> io::Result<Self> {
        fs::create_dir_all(&directory.path)?;
        // Found out now and not in ten minutes.
        let probe = directory.path.join(format!(".{PREFIX}{}", std::process::id()));
        File::create(&probe)?;
        fs::remove_file(&probe)?;
        let (rows, received) = sync_channel(MAX_WAITING);
        let lost = Arc::new(AtomicU64::new(0));
        let counter = lost.clone();
        let thread = thread::Builder::new()
            .name("telemetry".to_owned())
            .spawn(move || gather(&directory, &received, &counter, tell))?;
        Ok(Self { sink: Some(Sink { rows, lost }), thread: Some(thread) })
    }

    /// Where episodes go. All clones must be gone before this is dropped, for it waits for them.
    pub fn sink(&self) -> Option<Sink> {
        self.sink.clone()
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        self.sink = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed.
            let _ = thread.join();
        }
    }
}

fn gather(
    directory: &Directory,
    received: &Receiver<Vec<Episode>>,
    lost: &AtomicU64,
    tell: impl Fn(&str),
) {
    let mut rows: Vec<Episode> = Vec::new();
    let mut told = None;
    let mut due = Instant::now() + directory.every;
    loop {
        let batch = received.recv_timeout(due.saturating_duration_since(Instant::now()));
        let is_over = batch == Err(RecvTimeoutError::Disconnected);
        rows.extend(batch.into_iter().flatten());
        if rows.len() >= MAX_ROWS || Instant::now() >= due || is_over {
            due = Instant::now() + directory.every;
            let written = directory.write(&rows);
            if written.is_err() {
                // Those of a disk that is full are gone: there is no room to wait for it.
                lost.fetch_add(rows.len() as u64, Ordering::Relaxed);
            }
            rows.clear();
            let done = written.and_then(|file| file.map_or(Ok(()), |file| directory.prune(&file)));
            let problem = done.err().map(|error| error.to_string());
            if let Some(problem) =
                problem.as_ref().filter(|problem| told.as_ref() != Some(*problem))
            {
                tell(problem);
            }
            told = problem;
        }
        if is_over {
            return;
        }
    }
}

/// Why a file was not written.
#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error("{0}: {1}")]
    File(String, io::Error),
    #[error("{0}: {1}")]
    Parquet(String, ParquetError),
}

impl Directory {
    /// Writes a file of these rows; its name, if there are any.
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

    /// The oldest go, for their names are in the order of time.
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
/// It can't be written.
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
    fn what_is_taken_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new");
        let to =
            Directory { path: path.clone(), max_bytes: 1 << 20, every: Duration::from_secs(600) };
        let telemetry = Telemetry::start(to, |problem| panic!("{problem}")).unwrap();
        let sink = telemetry.sink().unwrap();
        assert_eq!(sink.take(rows(3), UNIX_EPOCH + Duration::from_secs(2)), 0);
        assert_eq!(sink.take(rows(2), UNIX_EPOCH), 0);
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
    fn the_oldest_files_make_room() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        for number in 0..5 {
            fs::write(path.join(format!("{PREFIX}000000000000{number}-1{SUFFIX}")), [0; 1000])
                .unwrap();
        }
        fs::write(path.join("something-else"), [0; 5000]).unwrap();
        let to = Directory { path: path.to_owned(), max_bytes: 2500, every: Duration::ZERO };
        let write = |to: &Directory| to.prune(&to.write(&rows(1)).unwrap().unwrap()).unwrap();
        write(&to);
        let left: Vec<_> = files(path)
            .iter()
            .map(|file| file.file_name().unwrap().to_string_lossy().into_owned())
            .filter(|name| name.starts_with("episodes-0000"))
            .collect();
        // A row is some two kilobytes with the schema.
        assert!(left.len() <= 1, "{left:?}");
        assert!(path.join("something-else").exists());
        let none = Directory { max_bytes: 0, ..to };
        write(&none);
        assert_eq!(files(path).len(), 2, "the newest and what is not ours");
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_said_at_once_or_told_later() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        let to = Directory { path: file, max_bytes: 1, every: Duration::ZERO };
        assert!(Telemetry::start(to.clone(), |_| {}).is_err());

        let gone = directory.path().join("gone");
        let told = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&told);
        let to = Directory { path: gone.clone(), every: Duration::from_secs(600), ..to };
        let telemetry =
            Telemetry::start(to, move |it| heard.lock().unwrap().push(it.to_owned())).unwrap();
        fs::remove_dir(&gone).unwrap();
        assert_eq!(telemetry.sink().unwrap().take(rows(1), UNIX_EPOCH), 0);
        drop(telemetry);
        let told = told.lock().unwrap();
        assert!(told.len() == 1 && told[0].contains("gone"), "{told:?}");
    }

    #[test]
    fn rows_that_cannot_be_written_are_counted_as_lost() {
        let directory = tempfile::tempdir().unwrap();
        let gone = directory.path().join("gone");
        let to = Directory { path: gone.clone(), max_bytes: 1 << 20, every: Duration::ZERO };
        let (told, heard) = std::sync::mpsc::channel();
        let telemetry =
            Telemetry::start(to, move |problem| told.send(problem.to_owned()).unwrap()).unwrap();
        let sink = telemetry.sink().unwrap();
        fs::remove_dir(&gone).unwrap();
        assert_eq!(sink.take(rows(7), UNIX_EPOCH), 0);
        heard.recv_timeout(Duration::from_secs(10)).unwrap();
        assert_eq!(sink.take(Vec::new(), UNIX_EPOCH), 7);
        assert_eq!(sink.take(Vec::new(), UNIX_EPOCH), 0);
        drop(sink);
    }
}
