//! One plot of one summary as panels.

use super::comparison;
use super::document::{Chart, Dashed, Line, Panel, PlotAxis, ReportTable, Scatter};
use super::plot::{Plot, PlotKind};
use super::samples::{CellSample, Level, Middle, Setting, middle, samples, values};
use super::summary::StoredSummary;
use super::units::{Quantity, capitalised, quantity, rounded, shown};

/// What is drawn where the file doesn't say.
const DEFAULT_FIGURE: &str = "goodput_mbps";

/// All panels of a plot that isn't a time series; none where nothing was measured.
pub(super) fn panels(summary: &StoredSummary, plot: &Plot) -> Vec<Panel> {
    let all = samples(summary, Level::of(plot, &summary.keys), plot);
    let plot = &by_label(plot, &all);
    let mut made: Vec<Panel> = split(&all, plot.panel.as_deref())
        .into_iter()
        .filter_map(|(value, part)| {
            let title = title(plot, value.as_ref());
            let mut panel = panel(plot, &part, title)?;
            add_references(&mut panel, plot, value.as_ref());
            Some(panel)
        })
        .collect();
    share_ends(&mut made, plot);
    made
}

/// Where one algorithm runs under several labels, as with other parameters, its name alone would
/// take them for one: the labels stand in its place.
fn by_label(plot: &Plot, all: &[CellSample<'_>]) -> Plot {
    let mut plot = plot.clone();
    if values(all, "label").len() > values(all, "cc").len() {
        let keys = [&mut plot.x, &mut plot.series, &mut plot.panel, &mut plot.rows];
        for key in keys.into_iter().flatten().filter(|key| *key == "cc") {
            *key = "label".to_owned();
        }
    }
    plot
}

/// The samples for each value of a key; all together without one.
fn split<'a>(
    all: &[CellSample<'a>],
    key: Option<&str>,
) -> Vec<(Option<Setting>, Vec<CellSample<'a>>)> {
    let Some(key) = key else { return vec![(None, all.to_vec())] };
    let of = |value: Setting| {
        let same = |sample: &&CellSample<'_>| sample.setting(key).as_ref() == Some(&value);
        let part = all.iter().filter(same).copied().collect();
        (Some(value), part)
    };
    values(all, key).into_iter().map(of).collect()
}

/// The title of a panel: the plot's, the panel's value, or both.
pub(super) fn title(plot: &Plot, value: Option<&Setting>) -> Option<String> {
    let value = value.map(|value| {
        let key = plot.panel.as_deref().unwrap_or_default();
        match value {
            Setting::Text(text) => text.clone(),
            Setting::Number(_) if matches!(key, "flow" | "group") => value.shown(key),
            Setting::Number(_) => format!("{}: {}", quantity(key).name, value.shown(key)),
        }
    });
    match (&plot.title, value) {
        (Some(title), Some(value)) => Some(format!("{title}: {value}")),
        (title, value) => title.clone().or(value),
    }
}

fn panel(plot: &Plot, part: &[CellSample<'_>], title: Option<String>) -> Option<Panel> {
    let panel = match plot.kind {
        PlotKind::Lines => Panel::Lines(lines(plot, part, title)),
        PlotKind::Bars => Panel::Bars(bars(plot, part, title)),
        PlotKind::Cdf => Panel::Cdf(cdf(plot, part, title)),
        PlotKind::Scatter => Panel::Scatter(Scatter {
            chart: scatter(plot, part, title),
            ideal: plot.ideal,
            front: plot.front,
        }),
        PlotKind::Table => return table(plot, part, title).map(Panel::Table),
        PlotKind::Series => return None,
    };
    let series = panel.chart().map_or(&[][..], |chart| &chart.series);
    let drawn = series.iter().flat_map(|line| &line.points).any(|point| point[1].is_some());
    drawn.then_some(panel)
}

pub(super) fn first_y(plot: &Plot) -> &str {
    let first = plot.y.as_ref().and_then(|y| y.as_slice().first());
    first.map_or(DEFAULT_FIGURE, String::as_str)
}

fn series_key(plot: &Plot) -> &str {
    plot.series.as_deref().unwrap_or("label")
}

fn axis(of: &Quantity, name: Option<&String>, log: bool, range: Option<[f64; 2]>) -> PlotAxis {
    let name = name.map_or_else(|| of.name.clone(), |name| capitalised(name));
    PlotAxis { name, unit: of.unit, log, range, categories: None }
}

pub(super) fn x_axis(plot: &Plot, of: &Quantity) -> PlotAxis {
    axis(of, plot.x_name.as_ref(), plot.log_x, plot.x_range)
}

pub(super) fn y_axis(plot: &Plot, of: &Quantity) -> PlotAxis {
    axis(of, plot.y_name.as_ref(), plot.log_y, plot.y_range)
}

/// One line for each value of the series' key, with the points that `each` derives from its samples; for several
/// results side by side one for each of them.
fn series_of(
    plot: &Plot,
    part: &[CellSample<'_>],
    mut each: impl FnMut(&[CellSample<'_>]) -> Vec<Vec<Option<f64>>>,
) -> Vec<Line> {
    let key = series_key(plot);
    let results = (!values(part, comparison::KEY).is_empty()).then_some(comparison::KEY);
    split(part, results)
        .into_iter()
        .flat_map(|(_, part)| split(&part, Some(key)))
        .filter_map(|(value, part)| {
            let points = each(&part);
            let name = comparison::named(value?.shown(key), part.first()?);
            (!points.is_empty()).then_some(Line { name, points })
        })
        .collect()
}

/// Where a sample lies across: a setting, or else a figure's median.
fn place(sample: &CellSample<'_>, key: &str) -> Option<Setting> {
    sample.setting(key).or_else(|| Some(Setting::Number(middle(&[*sample], key)?.median)))
}

fn places(part: &[CellSample<'_>], key: &str) -> Vec<Setting> {
    let mut found = Vec::new();
    for value in part.iter().filter_map(|sample| place(sample, key)) {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

fn chart(title: Option<String>, x: PlotAxis, y: PlotAxis, series: Vec<Line>) -> Chart {
    Chart { title, x, y, series, references: Vec::new() }
}

fn lines(plot: &Plot, part: &[CellSample<'_>], title: Option<String>) -> Chart {
    let key = plot.x.as_deref().unwrap_or("label");
    let (across, up) = (quantity(key), quantity(first_y(plot)));
    let all = places(part, key);
    let named = all.iter().any(|value| matches!(value, Setting::Text(_)));
    let mut x = x_axis(plot, &across);
    if named {
        x.categories = Some(all.iter().map(|value| value.shown(key)).collect());
    }
    let series = series_of(plot, part, |samples| {
        let mut points: Vec<_> = places(samples, key)
            .into_iter()
            .filter_map(|value| {
                let at = match &value {
                    Setting::Number(number) if !named => number_at(*number, key, &across),
                    _ => all.iter().position(|known| *known == value)? as f64,
                };
                let there = |sample: &&CellSample<'_>| place(sample, key).as_ref() == Some(&value);
                let there: Vec<_> = samples.iter().filter(there).copied().collect();
                // A logarithmic axis has no place for zero.
                let fits = !(plot.log_x && at <= 0.0);
                fits.then(|| point(plot, &there, at, &up))
            })
            .collect();
        points.sort_by(|a, b| a[0].partial_cmp(&b[0]).unwrap_or(std::cmp::Ordering::Equal));
        points
    });
    chart(title, x, y_axis(plot, &up), series)
}

/// Flows and groups are numbered from 1 for people.
fn number_at(number: f64, key: &str, quantity: &Quantity) -> f64 {
    let first = if matches!(key, "flow" | "group") { 1.0 } else { 0.0 };
    rounded(number * quantity.scale + first)
}

/// x, median, low, high of the plot's figure.
fn point(plot: &Plot, there: &[CellSample<'_>], at: f64, up: &Quantity) -> Vec<Option<f64>> {
    let Some(found) = middle(there, first_y(plot)) else { return vec![Some(at), None] };
    let (low, high) = whiskers(plot, there, found);
    let shown = |value: f64| {
        let value = rounded(value * up.scale);
        (!plot.log_y || value > 0.0).then_some(value)
    };
    vec![Some(at), shown(found.median), shown(low), shown(high)]
}

fn whiskers(plot: &Plot, there: &[CellSample<'_>], found: Middle) -> (f64, f64) {
    let half = match plot.error.as_deref() {
        None | Some("range") => return (found.low, found.high),
        Some("none") => 0.0,
        Some("stddev") => found.stddev.unwrap_or(0.0),
        Some(figure) => middle(there, figure).map_or(0.0, |middle| middle.median),
    };
    (found.median - half, found.median + half)
}

fn bars(plot: &Plot, part: &[CellSample<'_>], title: Option<String>) -> Chart {
    // Bars stand side by side, whatever is below them.
    let key = plot.x.as_deref().unwrap_or("label");
    let up = quantity(first_y(plot));
    let all = places(part, key);
    let mut x = x_axis(plot, &quantity(key));
    x.categories = Some(all.iter().map(|value| value.shown(key)).collect());
    let series = series_of(plot, part, |samples| {
        let of = |(at, value): (usize, &Setting)| {
            let there = |sample: &&CellSample<'_>| place(sample, key).as_ref() == Some(value);
            let there: Vec<_> = samples.iter().filter(there).copied().collect();
            (!there.is_empty()).then(|| point(plot, &there, at as f64, &up))
        };
        all.iter().enumerate().filter_map(of).collect()
    });
    chart(title, x, y_axis(plot, &up), series)
}

fn cdf(plot: &Plot, part: &[CellSample<'_>], title: Option<String>) -> Chart {
    let figure = plot.x.as_deref().unwrap_or(DEFAULT_FIGURE);
    let across = quantity(figure);
    let series = series_of(plot, part, |samples| {
        let statistics = samples.iter().filter_map(|sample| sample.figure(figure));
        let all: Vec<_> = statistics.flat_map(|statistic| statistic.values.clone()).collect();
        // What never came keeps the curve below 100 %.
        let mut known: Vec<f64> = all.iter().copied().flatten().collect();
        known.sort_unstable_by(f64::total_cmp);
        let Some(first) = known.first() else { return Vec::new() };
        let start = vec![Some(rounded(first * across.scale)), Some(0.0)];
        let step = |(number, value): (usize, &f64)| {
            let share = (number + 1) as f64 / all.len() as f64 * 100.0;
            vec![Some(rounded(value * across.scale)), Some(rounded(share))]
        };
        std::iter::once(start).chain(known.iter().enumerate().map(step)).collect()
    });
    let share = Quantity { name: "Share of runs".to_owned(), unit: "%", scale: 1.0 };
    let mut y = y_axis(plot, &share);
    y.range = y.range.or(Some([0.0, 100.0]));
    chart(title, x_axis(plot, &across), y, series)
}

fn scatter(plot: &Plot, part: &[CellSample<'_>], title: Option<String>) -> Chart {
    let figure = plot.x.as_deref().unwrap_or("queueing_ms.p95");
    let (across, up) = (quantity(figure), quantity(first_y(plot)));
    let series = series_of(plot, part, |samples| {
        let point = |sample: &CellSample<'_>| {
            let (x, y) = (middle(&[*sample], figure)?, middle(&[*sample], first_y(plot))?);
            let all = [x.median, y.median, x.low, x.high, y.low, y.high];
            let scales = [across.scale, up.scale, across.scale, across.scale, up.scale, up.scale];
            Some(all.iter().zip(scales).map(|(v, s)| Some(rounded(v * s))).collect())
        };
        samples.iter().filter_map(point).collect()
    });
    chart(title, x_axis(plot, &across), y_axis(plot, &up), series)
}

fn table(plot: &Plot, part: &[CellSample<'_>], title: Option<String>) -> Option<ReportTable> {
    let rows_key = plot.rows.as_deref().unwrap_or("label");
    let figures =
        plot.y.as_ref().map_or_else(|| vec![DEFAULT_FIGURE.to_owned()], |y| y.as_slice().to_vec());
    let groups: Vec<Option<Setting>> = match &plot.columns {
        Some(key) => values(part, key).into_iter().map(Some).collect(),
        None => vec![None],
    };
    let columns: Vec<(Option<&Setting>, &String)> = figures
        .iter()
        .flat_map(|figure| groups.iter().map(move |g| (g.as_ref(), figure)))
        .collect();
    let head = |(value, figure): &(Option<&Setting>, &String)| {
        let name = quantity(figure).name;
        match (value, &plot.columns) {
            (Some(value), Some(key)) => format!("{name}, {}", value.shown(key)),
            _ => name,
        }
    };
    let cell = |samples: &[CellSample<'_>], (value, figure): &(Option<&Setting>, &String)| {
        let key = plot.columns.as_deref().unwrap_or_default();
        let there = |s: &&CellSample<'_>| value.is_none() || s.setting(key).as_ref() == *value;
        let there: Vec<_> = samples.iter().filter(there).copied().collect();
        let quantity = quantity(figure);
        let Some(found) = middle(&there, figure) else { return "–".to_owned() };
        let of = |value: f64, unit| shown(value * quantity.scale, unit);
        let median = of(found.median, quantity.unit);
        let [low, high] = found.interval_95.unwrap_or([found.low, found.high]);
        if low == high {
            return median;
        }
        format!("{median} ({} to {})", of(low, ""), of(high, ""))
    };
    let rows: Vec<Vec<String>> = split(part, Some(rows_key))
        .into_iter()
        .filter_map(|(value, samples)| {
            let head = value?.shown(rows_key);
            Some(std::iter::once(head).chain(columns.iter().map(|c| cell(&samples, c))).collect())
        })
        .collect();
    let first = plot.x_name.clone().unwrap_or_else(|| quantity(rows_key).name);
    let columns = std::iter::once(first).chain(columns.iter().map(head)).collect();
    (!rows.is_empty()).then_some(ReportTable { title, columns, rows })
}

/// Dashed lines from one side to the other.
pub(super) fn add_references(panel: &mut Panel, plot: &Plot, value: Option<&Setting>) {
    let Some(chart) = panel.chart_mut() else { return };
    let xs = chart.series.iter().flat_map(|s| &s.points).filter_map(|p| p[0]);
    let (low, high) = xs.fold((f64::MAX, f64::MIN), |(low, high), x| (low.min(x), high.max(x)));
    if low > high {
        return;
    }
    for reference in &plot.reference {
        let elsewhere = reference
            .panel
            .as_ref()
            .is_some_and(|wanted| value.is_none_or(|value| !value.is(wanted)));
        if elsewhere {
            continue;
        }
        let mut points = reference.steps.clone();
        if let Some(y) = reference.y {
            points.extend([[low, y], [high, y]]);
        } else if let Some([_, y]) = points.last().copied().filter(|[x, _]| *x < high) {
            points.push([high, y]);
        }
        chart.references.push(Dashed { name: reference.name.clone(), points });
    }
}

/// Panels of one plot can be compared by eye: their axes upwards end at the same value. A scatter
/// plot's points are compared within their panel, and would lie on each other at another's scale.
pub(super) fn share_ends(panels: &mut [Panel], plot: &Plot) {
    let apart = matches!(plot.kind, PlotKind::Cdf | PlotKind::Scatter);
    if panels.len() < 2 || plot.y_range.is_some() || plot.log_y || apart {
        return;
    }
    let heights = |chart: &Chart| {
        let series = chart.series.iter().flat_map(|s| &s.points);
        let drawn = series.flat_map(|p| [p.get(1), p.get(3)]).flatten().copied().flatten();
        let dashed = chart.references.iter().flat_map(|r| &r.points).map(|p| p[1]);
        drawn.chain(dashed).fold(0.0, f64::max)
    };
    let top = panels.iter().filter_map(Panel::chart).map(heights).fold(0.0, f64::max);
    if top <= 0.0 {
        return;
    }
    for chart in panels.iter_mut().filter_map(Panel::chart_mut) {
        chart.y.range = Some([0.0, nice_above(top)]);
    }
}

/// The next of 1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8 times a power of ten.
fn nice_above(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    let step = steps.into_iter().find(|step| step * power >= value * 0.9999).unwrap_or(10.0);
    rounded(step * power)
}
