//! `series.parquet`: the samples of a run, every 100 ms.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int32Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

/// Columns, in the language of Parquet.
pub const SCHEMA: &str = "message series {
    required double time_s;
    required int32 flow;
    required binary cc (utf8);
    required double rate_mbps;
    required double sent_mbps;
    required double throughput_mbps;
    optional double telemetry_mbps;
    optional double rtt_ms;
    required double loss_rate;
    optional double window_bytes;
    optional double pacing_mbps;
    optional double in_flight_bytes;
    optional double queue_bytes;
    optional double shown_kbps;
    optional double psnr_db;
    optional double buffer_s;
}";

/// Rows of a group: bounds what a reader must hold.
const GROUP_ROWS: usize = 50_000;

/// One flow, or the link, over 100 ms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SeriesRow {
    /// End of the 100 ms.
    pub time_s: f64,
    /// Number of the flow; -1 is the link.
    pub flow: i32,
    /// What arrived for the first time; of the link, what came out.
    pub rate_mbps: f64,
    /// What left the sender; of the link, what it could carry.
    pub sent_mbps: f64,
    /// What left the link, in bytes of the network layer.
    pub throughput_mbps: f64,
    /// The same, as the flow's ends have it; of real ones only.
    pub telemetry_mbps: Option<f64>,
    /// Mean of the samples.
    pub rtt_ms: Option<f64>,
    /// Lost of sent.
    pub loss_rate: f64,
    /// Congestion window at the end.
    pub window_bytes: Option<f64>,
    /// Pacing rate at the end.
    pub pacing_mbps: Option<f64>,
    /// At the end.
    pub in_flight_bytes: Option<f64>,
    /// Of the link, at the end.
    pub queue_bytes: Option<f64>,
    /// Of a player.
    pub screen: Screen,
}

/// The screen of a player; empty without a player.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Screen {
    /// The rung on the screen.
    pub shown_kbps: Option<f64>,
    /// Of what is on the screen, against what should be there.
    pub psnr_db: Option<f64>,
    /// What the player has in its buffer.
    pub buffer_s: Option<f64>,
}

/// The algorithms of a flow, each with its start in seconds.
pub type InUse = Vec<(f64, String)>;

/// Writes `rows`; `in_use` is by flow.
///
/// # Errors
/// When the file can't be written.
pub fn write(path: &Path, rows: &[SeriesRow], in_use: &[InUse]) -> Result<()> {
    let schema = Arc::new(parse_message_type(SCHEMA).context("the schema of the series")?);
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by("millrace-lab".to_owned())
        .build();
    let write = || -> Result<()> {
        let file = File::create(path)?;
        let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties))?;
        for chunk in rows.chunks(GROUP_ROWS) {
            let mut group = writer.next_row_group()?;
            write_group(&mut group, chunk, in_use)?;
            group.close()?;
        }
        writer.close()?;
        Ok(())
    };
    // A full disk shows at any of these.
    write().with_context(|| path.display().to_string())
}

fn write_group(
    group: &mut SerializedRowGroupWriter<'_, File>,
    rows: &[SeriesRow],
    in_use: &[InUse],
) -> Result<()> {
    doubles(group, rows, |row| row.time_s)?;
    let mut column = group.next_column()?.context("a column of the schema")?;
    let flows: Vec<i32> = rows.iter().map(|row| row.flow).collect();
    column.typed::<Int32Type>().write_batch(&flows, None, None)?;
    column.close()?;
    let mut column = group.next_column()?.context("a column of the schema")?;
    let name = |row: &SeriesRow| {
        let names = usize::try_from(row.flow).ok().and_then(|flow| in_use.get(flow));
        let since = |it: &&(f64, String)| it.0 < row.time_s;
        // What it is going to have, before it has any.
        let name = names.and_then(|names| names.iter().rfind(since).or(names.first()));
        ByteArray::from(name.map_or("", |(_, name)| name.as_str()))
    };
    let texts: Vec<ByteArray> = rows.iter().map(name).collect();
    column.typed::<ByteArrayType>().write_batch(&texts, None, None)?;
    column.close()?;
    doubles(group, rows, |row| row.rate_mbps)?;
    doubles(group, rows, |row| row.sent_mbps)?;
    doubles(group, rows, |row| row.throughput_mbps)?;
    optional(group, rows, |row| row.telemetry_mbps)?;
    optional(group, rows, |row| row.rtt_ms)?;
    doubles(group, rows, |row| row.loss_rate)?;
    optional(group, rows, |row| row.window_bytes)?;
    optional(group, rows, |row| row.pacing_mbps)?;
    optional(group, rows, |row| row.in_flight_bytes)?;
    optional(group, rows, |row| row.queue_bytes)?;
    optional(group, rows, |row| row.screen.shown_kbps)?;
    optional(group, rows, |row| row.screen.psnr_db)?;
    optional(group, rows, |row| row.screen.buffer_s)
}

fn doubles(
    group: &mut SerializedRowGroupWriter<'_, File>,
    rows: &[SeriesRow],
    value: impl Fn(&SeriesRow) -> f64,
) -> Result<()> {
    let mut column = group.next_column()?.context("a column of the schema")?;
    let values: Vec<f64> = rows.iter().map(value).collect();
    column.typed::<DoubleType>().write_batch(&values, None, None)?;
    Ok(column.close()?)
}

fn optional(
    group: &mut SerializedRowGroupWriter<'_, File>,
    rows: &[SeriesRow],
    value: impl Fn(&SeriesRow) -> Option<f64>,
) -> Result<()> {
    let mut column = group.next_column()?.context("a column of the schema")?;
    let all: Vec<Option<f64>> = rows.iter().map(value).collect();
    let levels: Vec<i16> = all.iter().map(|value| i16::from(value.is_some())).collect();
    let values: Vec<f64> = all.into_iter().flatten().collect();
    column.typed::<DoubleType>().write_batch(&values, Some(&levels), None)?;
    Ok(column.close()?)
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    use super::*;

    fn row(time_s: f64, flow: i32) -> SeriesRow {
        SeriesRow {
            time_s,
            flow,
            rate_mbps: 9.5,
            sent_mbps: 10.0,
            throughput_mbps: 9.8,
            telemetry_mbps: None,
            rtt_ms: (flow == 0).then_some(30.5),
            loss_rate: 0.01,
            window_bytes: None,
            pacing_mbps: Some(11.0),
            in_flight_bytes: Some(1452.0),
            queue_bytes: (flow < 0).then_some(3000.0),
            screen: Screen { buffer_s: (flow == 0).then_some(12.5), ..Screen::default() },
        }
    }

    #[test]
    fn what_is_written_can_be_read_and_is_always_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let (path, again) =
            (directory.path().join("a.parquet"), directory.path().join("b.parquet"));
        let rows: Vec<SeriesRow> = (0..300)
            .flat_map(|i| [row(f64::from(i) * 0.1, 0), row(f64::from(i) * 0.1, -1)])
            .collect();
        let in_use = [vec![(0.04, "cubic".to_owned()), (1.0, "copa".to_owned())]];
        write(&path, &rows, &in_use).unwrap();
        write(&again, &rows, &in_use).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), std::fs::read(&again).unwrap());

        let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        let read: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        assert_eq!(read.len(), 600);
        assert_eq!(read[2].get_double(0).unwrap(), 0.1);
        assert_eq!(read[0].get_int(1).unwrap(), 0);
        let name = |row: usize| read[row].get_string(2).unwrap().as_str();
        // Of the link, before the first, up to the change and after it.
        assert_eq!([name(1), name(0), name(20), name(22)], ["", "cubic", "cubic", "copa"]);
        assert_eq!(read[0].get_double(7).unwrap(), 30.5);
        assert!(read[1].get_double(7).is_err(), "the link has no round trip");
        assert_eq!(read[1].get_double(12).unwrap(), 3000.0);
        assert_eq!(read[0].get_double(15).unwrap(), 12.5);
    }
}
