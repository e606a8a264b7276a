//! The plotted numbers of a figure as CSV, one row a point.

use std::fmt::Write;

use super::document::{Panel, PlotAxis};

const HEAD: &str = "plot,panel,series,x_name,x,y_name,y,low,high,x_low,x_high\n";

/// Tables follow with their cells as `y`.
pub(super) fn text(plots: &[Vec<Panel>]) -> String {
    let mut out = HEAD.to_owned();
    for (number, panels) in plots.iter().enumerate() {
        for panel in panels {
            rows(&mut out, number + 1, panel);
        }
    }
    out
}

fn rows(out: &mut String, plot: usize, panel: &Panel) {
    let mut row = |cells: [&str; 10]| {
        let cells = cells.map(quoted);
        // Writing to a string can't fail.
        let _ = writeln!(out, "{plot},{}", cells.join(","));
    };
    if let Panel::Table(table) = panel {
        let title = table.title.as_deref().unwrap_or_default();
        for line in &table.rows {
            for (column, cell) in table.columns.iter().zip(line).skip(1) {
                row([title, &line[0], &table.columns[0], &line[0], column, cell, "", "", "", ""]);
            }
        }
        return;
    }
    let Some(chart) = panel.chart() else { return };
    let title = chart.title.as_deref().unwrap_or_default();
    let (x_name, y_name) = (named(&chart.x), named(&chart.y));
    let number = |value: Option<&Option<f64>>| {
        value.copied().flatten().map_or_else(String::new, |value| value.to_string())
    };
    for series in &chart.series {
        for point in &series.points {
            let at = |index: usize| number(point.get(index));
            let named = |axis: &PlotAxis, index: usize| match (&axis.categories, point[index]) {
                // An index, so a whole number.
                (Some(names), Some(index)) => names[index as usize].clone(),
                _ => at(index),
            };
            let (x, y) = (named(&chart.x, 0), named(&chart.y, 1));
            let (low, high, x_low, x_high) = match panel {
                Panel::Scatter(_) => (at(4), at(5), at(2), at(3)),
                _ => (at(2), at(3), String::new(), String::new()),
            };
            row([title, &series.name, &x_name, &x, &y_name, &y, &low, &high, &x_low, &x_high]);
        }
    }
    for dashed in &chart.references {
        for [x, y] in &dashed.points {
            let (x, y) = (x.to_string(), y.to_string());
            row([title, &dashed.name, &x_name, &x, &y_name, &y, "", "", "", ""]);
        }
    }
}

fn named(axis: &PlotAxis) -> String {
    if axis.unit.is_empty() { axis.name.clone() } else { format!("{} ({})", axis.name, axis.unit) }
}

/// RFC 4180, Section 2: quotes around what has a comma, a quote or a line's end.
pub(super) fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}
