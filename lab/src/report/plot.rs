//! `[[plot]]` of a scenario file: the form in which its results are drawn.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One plot; with `panel`, one for each value of that key.
///
/// A key is what the sweep sets (`link.loss`), a fact of a flow (`cc`, `flow`, `instance`,
/// `number`, `start_s`), `repeat`, or a metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    /// The form.
    pub kind: PlotKind,
    /// Stands above the plot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The key across; of a CDF, the metric; unused by time series and tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x: Option<String>,
    /// The metric upwards; of a time series, a column of it; of a table, one or several metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub y: Option<OneOrMore<String>>,
    /// The key whose values get a line and a colour each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<String>,
    /// The key whose values get a panel each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub panel: Option<String>,
    /// Only samples with these values.
    #[serde(default, rename = "where", skip_serializing_if = "BTreeMap::is_empty")]
    pub only: BTreeMap<String, OneOrMore<Scalar>>,
    /// Logarithmic axis across.
    #[serde(default)]
    pub log_x: bool,
    /// Logarithmic axis upwards.
    #[serde(default)]
    pub log_y: bool,
    /// Name of the axis across, without the unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x_name: Option<String>,
    /// Name of the axis upwards, without the unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub y_name: Option<String>,
    /// Ends of the axis across.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x_range: Option<[f64; 2]>,
    /// Ends of the axis upwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub y_range: Option<[f64; 2]>,
    /// What the whiskers of lines and bars show: `range` (least to greatest sample), `stddev`,
    /// `none`, or a metric that is taken as the half-length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Time series: which repeat is drawn; the first valid one if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeat: Option<u32>,
    /// Time series: draw the rate that the link had.
    #[serde(default)]
    pub optimal: bool,
    /// Time series: means over so many seconds are drawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_over_s: Option<f64>,
    /// Dashed lines that something should reach.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reference: Vec<ReferenceLine>,
    /// Scatter: the best corner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ideal: Option<Corner>,
    /// Scatter: join the points that no other point beats in both directions.
    #[serde(default)]
    pub front: bool,
    /// Table: the key whose values get a row each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<String>,
    /// Table: the key whose values get a column each, per metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<String>,
}

/// The form of a plot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlotKind {
    /// Medians joined by lines, with whiskers.
    Lines,
    /// The share of samples at or below each value.
    Cdf,
    /// One point for each value of `series`: medians both ways.
    Scatter,
    /// One run over time.
    Series,
    /// Medians as bars with whiskers.
    Bars,
    /// Medians and ranges in words.
    Table,
}

/// A dashed line: `y` all the way, or `steps` of (x, y from there on).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReferenceLine {
    /// What it is.
    pub name: String,
    /// One height.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub y: Option<f64>,
    /// A height from each place on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<[f64; 2]>,
    /// Drawn in one panel only: the value of the panel's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub panel: Option<Scalar>,
}

/// The best corner of a scatter plot: across, then upwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Corner {
    /// Little across, little upwards.
    LowLow,
    /// Little across, much upwards.
    LowHigh,
    /// Much across, little upwards.
    HighLow,
    /// Much both ways.
    HighHigh,
}

/// One value, or a list of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OneOrMore<T> {
    /// One.
    One(T),
    /// A list.
    More(Vec<T>),
}

impl<T> OneOrMore<T> {
    /// All of them.
    pub fn as_slice(&self) -> &[T] {
        match self {
            Self::One(value) => std::slice::from_ref(value),
            Self::More(values) => values,
        }
    }
}

/// A value of a key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Scalar {
    /// Yes or no.
    Flag(bool),
    /// Any number; 1 and 1.0 are the same.
    Number(f64),
    /// A name.
    Text(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct PlotFile {
        plot: Vec<Plot>,
    }

    fn parse(text: &str) -> Result<Vec<Plot>, toml::de::Error> {
        toml::from_str::<PlotFile>(text).map(|file| file.plot)
    }

    #[test]
    fn a_kind_is_enough() {
        let plots = parse("[[plot]]\nkind = \"cdf\"").unwrap();
        assert_eq!(plots[0].kind, PlotKind::Cdf);
        assert_eq!(plots[0].only, BTreeMap::new());
    }

    #[test]
    fn every_field_is_read_and_survives_json() {
        let text = r#"
            [[plot]]
            kind = "scatter"
            x = "convergence_s"
            y = ["stddev_mbps", "goodput_mbps"]
            where = { flow = 0, cc = ["cubic", "bbr"], steady = true }
            reference = [{ name = "a", y = 1 }, { name = "b", steps = [[0, 40.0], [60, 30]] }]
            ideal = "low-high"
            front = true
            y_range = [0, 100]
        "#;
        let plots = parse(text).unwrap();
        assert_eq!(plots[0].only["flow"].as_slice(), [Scalar::Number(0.0)]);
        assert_eq!(plots[0].only["cc"].as_slice().len(), 2);
        assert_eq!(plots[0].reference[1].steps, [[0.0, 40.0], [60.0, 30.0]]);
        assert_eq!(plots[0].ideal, Some(Corner::LowHigh));
        let json = serde_json::to_string(&plots[0]).unwrap();
        assert_eq!(serde_json::from_str::<Plot>(&json).unwrap(), plots[0]);
    }

    #[test]
    fn what_is_unknown_is_refused() {
        for text in ["kind = \"pie\"", "kind = \"lines\"\ncolour = 1", "x = \"cc\""] {
            assert!(parse(&format!("[[plot]]\n{text}")).is_err(), "{text}");
        }
    }
}
