//! Time series: `series.parquet` of one run of each cell, reduced to what a page can draw.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::file::reader::{FileReader, SerializedFileReader};

use super::comparison;
use super::document::{Chart, Dashed, Line, Panel};
use super::panels::{add_references, first_y, share_ends, title, x_axis, y_axis};
use super::plot::Plot;
use super::samples::{CellSample, Setting};
use super::summary::{StoredCell, StoredSummary};
use super::units::{Quantity, quantity, rounded};

/// More points than this a line on a screen can't show.
pub(super) const MAX_POINTS: usize = 1000;

/// The number that stands for the link among the flows.
const LINK: i32 = -1;

/// What the link could have carried: its `sent_mbps`.
const CAPACITY: &str = "sent_mbps";

/// The algorithm in use, by name.
const ALGORITHM: &str = "cc";

/// Figures that only the link has.
const OF_THE_LINK: [&str; 1] = ["queue_bytes"];

/// One column of a run, with times and flows.
struct StoredSeries {
    rows: Vec<StoredRow>,
    /// Of a column of names: what a value stands for.
    names: Vec<String>,
}

struct StoredRow {
    time_s: f64,
    flow: i32,
    value: Option<f64>,
    capacity_mbps: Option<f64>,
}

/// The panels of a time series, and what has to be said below them.
pub(super) fn panels(summary: &StoredSummary, plot: &Plot) -> Result<(Vec<Panel>, Vec<String>)> {
    let column = if plot.y.is_some() { first_y(plot) } else { "rate_mbps" };
    let mut drawn: Vec<(Option<Setting>, Panel)> = Vec::new();
    let mut mean_over_s: f64 = 0.0;
    for cell in &summary.cells {
        let Some(file) = file_of(cell, plot) else { continue };
        let run = read(&file, column).with_context(|| file.display().to_string())?;
        for (panel, mut line, over_s) in lines(cell, plot, column, &run) {
            mean_over_s = mean_over_s.max(over_s);
            let at = drawn.iter().position(|(known, _)| *known == panel).unwrap_or_else(|| {
                let made = Panel::Series(empty(plot, column, panel.as_ref()));
                drawn.push((panel.clone(), made));
                drawn.len() - 1
            });
            let Some(chart) = drawn[at].1.chart_mut() else { continue };
            if plot.optimal && chart.references.is_empty() {
                chart.references.extend(capacity(&run, plot, over_s));
            }
            if column == ALGORITHM {
                categorise(&mut line, &run.names, chart.y.categories.get_or_insert_default());
            }
            chart.series.push(line);
        }
    }
    for (value, panel) in &mut drawn {
        add_references(panel, plot, value.as_ref());
    }
    let mut panels: Vec<Panel> = drawn.into_iter().map(|(_, panel)| panel).collect();
    share_ends(&mut panels, plot);
    let note = (mean_over_s > 0.0 && !panels.is_empty()).then(|| {
        format!("Over time: one run each, drawn as means over {} s.", rounded(mean_over_s))
    });
    Ok((panels, note.into_iter().collect()))
}

/// The series of the repeat asked for, or of the first that has one.
fn file_of(cell: &StoredCell, plot: &Plot) -> Option<PathBuf> {
    let named = |run: &PathBuf| match plot.repeat {
        Some(repeat) => run.to_string_lossy().ends_with(&format!("-r{repeat:02}")),
        None => true,
    };
    let mut files = cell.run_directories().filter(named).map(|run| run.join("series.parquet"));
    files.find(|file| file.is_file())
}

fn empty(plot: &Plot, column: &str, value: Option<&Setting>) -> Chart {
    let time = Quantity { name: "Time".to_owned(), unit: "s", scale: 1.0 };
    Chart {
        title: title(plot, value),
        x: x_axis(plot, &time),
        y: y_axis(plot, &quantity(column)),
        series: Vec::new(),
        references: Vec::new(),
    }
}

/// The lines of a cell that the plot asks for, each with its panel and over how long its points
/// are means.
fn lines(
    cell: &StoredCell,
    plot: &Plot,
    column: &str,
    run: &StoredSeries,
) -> Vec<(Option<Setting>, Line, f64)> {
    let panel = |sample: Option<&CellSample<'_>>| {
        plot.panel.as_deref().and_then(|key| match sample {
            Some(sample) => sample.setting(key),
            None => CellSample::of_cell(cell).setting(key),
        })
    };
    let scale = quantity(column).scale;
    if OF_THE_LINK.contains(&column) {
        let sample = CellSample::of_cell(cell);
        if !sample.passes(plot) {
            return Vec::new();
        }
        let name = name_of(&sample, plot, cell, "label");
        let (points, over_s) = reduced(run, LINK, plot, scale);
        return vec![(panel(None), Line { name, points }, over_s)];
    }
    let mut made = Vec::new();
    for part in &cell.flows {
        let sample = CellSample::flow(cell, part);
        let Some(flow) = part.flow.and_then(|flow| i32::try_from(flow).ok()) else { continue };
        if !sample.passes(plot) {
            continue;
        }
        let (points, over_s) = match column {
            ALGORITHM => (changes(run, flow, plot), 0.0),
            _ => reduced(run, flow, plot, scale),
        };
        if points.is_empty() {
            continue;
        }
        let default = if cell.flows.len() > 1 { "flow" } else { "label" };
        let name = name_of(&sample, plot, cell, default);
        made.push((panel(Some(&sample)), Line { name, points }, over_s));
    }
    made
}

/// `Flow 2`; with its algorithm where flows differ in it, and its results' label where there are
/// several.
fn name_of(sample: &CellSample<'_>, plot: &Plot, cell: &StoredCell, default: &str) -> String {
    let key = plot.series.as_deref().unwrap_or(default);
    let name = sample.setting(key).map_or_else(|| "link".to_owned(), |value| value.shown(key));
    let mixed = cell.flows.windows(2).any(|pair| pair[0].label != pair[1].label);
    match sample.setting("label") {
        Some(label) if key == "flow" && mixed => format!("{name}: {label}"),
        _ => comparison::named(name, sample),
    }
}

/// Means over equal times, so few that a page can draw them. The time of a mean is its end, as in
/// the file.
fn reduced(run: &StoredSeries, flow: i32, plot: &Plot, scale: f64) -> (Vec<Vec<Option<f64>>>, f64) {
    let rows: Vec<_> = run.rows.iter().filter(|row| row.flow == flow && shown(row, plot)).collect();
    means(
        rows.iter().map(|row| (row.time_s, row.value.map(|value| value * scale))),
        plot.mean_over_s,
    )
}

/// The first row and the last one of each stretch of equal values, with the end of its time.
fn changes(run: &StoredSeries, flow: i32, plot: &Plot) -> Vec<Vec<Option<f64>>> {
    let rows: Vec<_> = run.rows.iter().filter(|row| row.flow == flow && shown(row, plot)).collect();
    let keeps = |index: usize| {
        index == 0 || rows.get(index + 1).is_none_or(|next| next.value != rows[index].value)
    };
    let kept = rows.iter().enumerate().filter(|(index, _)| keeps(*index));
    kept.map(|(_, row)| vec![Some(rounded(row.time_s)), row.value]).collect()
}

/// From places in a run's own list of names to places among the chart's.
fn categorise(line: &mut Line, names: &[String], categories: &mut Vec<String>) {
    for value in line.points.iter_mut().filter_map(|point| point[1].as_mut()) {
        // A place in `names`, so a small whole number.
        let name = &names[*value as usize];
        let at = categories.iter().position(|known| known == name).unwrap_or_else(|| {
            categories.push(name.clone());
            categories.len() - 1
        });
        *value = at as f64;
    }
}

/// What lies beyond the ends of the axis would only make the page heavier.
fn shown(row: &StoredRow, plot: &Plot) -> bool {
    plot.x_range.is_none_or(|[low, high]| (low..=high).contains(&row.time_s))
}

fn capacity(run: &StoredSeries, plot: &Plot, over_s: f64) -> Option<Dashed> {
    let rows = run.rows.iter().filter(|row| row.flow == LINK && shown(row, plot));
    let (points, over_s) = means(rows.map(|row| (row.time_s, row.capacity_mbps)), Some(over_s));
    let points = held(&points, over_s);
    (!points.is_empty()).then(|| Dashed { name: "Capacity of the link".to_owned(), points })
}

/// A dashed line has a value from its time on; a mean is of the time before its own.
fn held(means: &[Vec<Option<f64>>], over_s: f64) -> Vec<[f64; 2]> {
    let known: Vec<[f64; 2]> = means.iter().filter_map(|p| Some([p[0]?, p[1]?])).collect();
    let from = |[end_s, mean]: &[f64; 2]| [rounded((end_s - over_s).max(0.0)), *mean];
    known.iter().map(from).chain(known.last().copied()).collect()
}

fn means(
    rows: impl Iterator<Item = (f64, Option<f64>)>,
    wanted_s: Option<f64>,
) -> (Vec<Vec<Option<f64>>>, f64) {
    let rows: Vec<_> = rows.collect();
    let [(first_s, _), .., (last_s, _)] = rows[..] else { return (Vec::new(), 0.0) };
    let step_s = (last_s - first_s) / (rows.len() - 1) as f64;
    let at_least = rows.len().div_ceil(MAX_POINTS);
    let wanted = wanted_s.map_or(1.0, |over_s| (over_s / step_s).round().max(1.0));
    // At most the number of rows, by the minimum.
    let size = (wanted.min(rows.len() as f64) as usize).max(at_least);
    let mean = |bucket: &[(f64, Option<f64>)]| {
        let known: Vec<f64> = bucket.iter().filter_map(|(_, value)| *value).collect();
        let mean = known.iter().sum::<f64>() / known.len() as f64;
        let end_s = bucket.last().map(|(time_s, _)| rounded(*time_s));
        vec![end_s, (!known.is_empty()).then(|| rounded(mean))]
    };
    (rows.chunks(size).map(mean).collect(), size as f64 * step_s)
}

/// # Errors
/// The file is no series, or has no such column.
fn read(file: &Path, column: &str) -> Result<StoredSeries> {
    let reader = SerializedFileReader::new(File::open(file)?)?;
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    let index = |name: &str| {
        let found = schema.columns().iter().position(|known| known.name() == name);
        found.with_context(|| {
            let known: Vec<_> = schema.columns().iter().map(|column| column.name()).collect();
            format!("no column {name:?}; there are {}", known.join(", "))
        })
    };
    let (time, flow) = (index("time_s")?, index("flow")?);
    let (value, capacity) = (index(column)?, index(CAPACITY)?);
    let (mut rows, mut names) = (Vec::new(), Vec::new());
    for group in 0..reader.num_row_groups() {
        let group = reader.get_row_group(group)?;
        let count = usize::try_from(group.metadata().num_rows())?;
        let mut column = |index| numbers(group.get_column_reader(index)?, count, &mut names);
        let (times, flows) = (column(time)?, column(flow)?);
        let (values, capacities) = (column(value)?, column(capacity)?);
        for (row, time_s) in times.into_iter().enumerate() {
            let (Some(time_s), Some(flow)) = (time_s, flows[row]) else {
                bail!("row {row} has no time or no flow");
            };
            // Written as an int32.
            let flow = flow as i32;
            rows.push(StoredRow {
                time_s,
                flow,
                value: values[row],
                capacity_mbps: capacities[row],
            });
        }
    }
    Ok(StoredSeries { rows, names })
}

/// All values of one column of a row group; nulls are `None`, texts are places in `names`.
fn numbers(
    reader: ColumnReader,
    count: usize,
    names: &mut Vec<String>,
) -> Result<Vec<Option<f64>>> {
    match reader {
        ColumnReader::DoubleColumnReader(reader) => values(reader, count, |it| Ok(*it)),
        ColumnReader::Int32ColumnReader(reader) => values(reader, count, |it| Ok(f64::from(*it))),
        ColumnReader::ByteArrayColumnReader(reader) => values(reader, count, |text| {
            let text = text.as_utf8()?;
            let at = names.iter().position(|name| name == text).unwrap_or_else(|| {
                names.push(text.to_owned());
                names.len() - 1
            });
            Ok(at as f64)
        }),
        _ => bail!("neither a column of numbers nor one of names"),
    }
}

fn values<T: DataType>(
    mut reader: ColumnReaderImpl<T>,
    count: usize,
    number: impl FnMut(&T::T) -> Result<f64>,
) -> Result<Vec<Option<f64>>> {
    let (mut levels, mut values) = (Vec::new(), Vec::new());
    let mut read = 0;
    while read < count {
        let (records, ..) =
            reader.read_records(count - read, Some(&mut levels), None, &mut values)?;
        if records == 0 {
            bail!("{read} of {count} rows");
        }
        read += records;
    }
    let values: Vec<f64> = values.iter().map(number).collect::<Result<_>>()?;
    let mut values = values.into_iter();
    // A column without nulls has no levels.
    if levels.is_empty() {
        return Ok(values.map(Some).collect());
    }
    Ok(levels.iter().map(|level| if *level > 0 { values.next() } else { None }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_keep_the_integral_and_the_end() {
        let rows = (1..=5000).map(|i| (f64::from(i) * 0.1, Some(f64::from(i % 7))));
        let whole: f64 = (1..=5000).map(|i| f64::from(i % 7)).sum::<f64>() / 5000.0;
        let (points, over_s) = means(rows, None);
        assert_eq!(points.len(), MAX_POINTS);
        assert!((over_s - 0.5).abs() < 1e-9);
        let mean = points.iter().map(|p| p[1].unwrap()).sum::<f64>() / points.len() as f64;
        assert!((mean - whole).abs() < 1e-4, "{mean} {whole}");
        assert_eq!(points.last().unwrap()[0], Some(500.0));
    }

    #[test]
    fn names_are_drawn_where_they_change() {
        let row = |tenth: u32, value| StoredRow {
            time_s: f64::from(tenth) / 10.0,
            flow: 0,
            value: Some(value),
            capacity_mbps: None,
        };
        let values = [0.0, 0.0, 0.0, 1.0, 1.0, 0.0];
        let rows = values.iter().zip(1..).map(|(value, tenth)| row(tenth, *value)).collect();
        let run = StoredSeries { rows, names: vec!["bbr".to_owned(), "copa".to_owned()] };
        let plot: Plot = serde_json::from_value(serde_json::json!({ "kind": "series" })).unwrap();
        let points = changes(&run, 0, &plot);
        let mut line = Line { name: "Flow 1".to_owned(), points };
        let mut categories = vec!["cubic".to_owned(), "copa".to_owned()];
        categorise(&mut line, &run.names, &mut categories);
        assert_eq!(categories, ["cubic", "copa", "bbr"]);
        let points: Vec<_> = line.points.iter().map(|p| (p[0].unwrap(), p[1].unwrap())).collect();
        assert_eq!(points, [(0.1, 2.0), (0.3, 2.0), (0.5, 1.0), (0.6, 2.0)]);
    }

    #[test]
    fn a_mean_is_held_over_its_own_time() {
        let means =
            [vec![Some(1.0), Some(20.0)], vec![Some(2.0), None], vec![Some(3.0), Some(5.0)]];
        assert_eq!(held(&means, 1.0), [[0.0, 20.0], [2.0, 5.0], [3.0, 5.0]]);
    }

    #[test]
    fn what_was_asked_for_is_kept_while_it_fits() {
        let rows = |count: i32| (1..=count).map(|i| (f64::from(i) * 0.1, (i != 1).then_some(1.0)));
        let (points, over_s) = means(rows(600), Some(1.0));
        assert_eq!((points.len(), rounded(over_s)), (60, 1.0));
        let (points, _) = means(rows(3), None);
        assert_eq!(points[0], [Some(0.1), None]);
        assert_eq!(means(rows(1), None).0.len(), 0);
    }
}
