//! The data of the page; `lab/web/src/figures/document.ts` is the other side.

use serde::Serialize;

use super::plot::Corner;

/// The whole page.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Document {
    /// Its heading.
    pub title: String,
    /// What was run, with what, when and where.
    pub facts: Vec<Fact>,
    /// What a reader must know before believing a figure.
    pub warnings: Vec<String>,
    /// The labels of results side by side, which end names as in `cubic (sim)`; empty for a single result.
    pub sets: Vec<String>,
    /// A section each.
    pub figures: Vec<ScenarioFigure>,
}

/// A line of the heading.
#[derive(Debug, Clone, Serialize)]
pub struct Fact {
    /// What it is.
    pub name: &'static str,
    /// Its value.
    pub value: String,
}

/// What one scenario showed.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ScenarioFigure {
    /// The scenario's name.
    pub id: String,
    /// Its title.
    pub title: String,
    /// The paper's figure.
    pub source: Option<String>,
    /// The set-up.
    pub about: Option<String>,
    /// What was excluded, averaged or not measured.
    pub notes: Vec<String>,
    /// What is claimed of it.
    pub claims: Vec<ReportedClaim>,
    /// One plot has several panels when it is split by a key.
    pub plots: Vec<Vec<Panel>>,
    /// What players showed.
    pub gallery: Option<Gallery>,
    /// The file with the plotted numbers.
    pub csv: Option<String>,
}

/// What was on the players' screens.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Gallery {
    /// Credit of the video.
    pub credit: Option<String>,
    /// What was omitted.
    pub notes: Vec<String>,
    /// At each instant and place.
    pub views: Vec<View>,
    /// As data URLs; the rest names them by their number.
    pub images: Vec<String>,
}

/// All viewers at the same instant of their sessions.
#[derive(Debug, Clone, Serialize)]
pub struct View {
    /// What was swept but for the algorithm; empty if nothing was.
    pub place: String,
    /// Since the play request, in seconds.
    pub t: f64,
    /// The source's picture that was due for the first of them.
    pub source: Option<usize>,
    /// Each.
    pub seen: Vec<Seen>,
}

/// What one of them saw.
#[derive(Debug, Clone, Serialize)]
pub struct Seen {
    /// The algorithm.
    pub name: String,
    /// The rung; `None` for a stream.
    pub rung_kbps: Option<f64>,
    /// Media time of the frame; `None` before the first.
    pub media_s: Option<f64>,
    /// How long it had been frozen; 0 while it played.
    pub frozen_s: f64,
    /// Of the frame, against the source's that was due.
    pub psnr_db: Option<f64>,
    /// In the player.
    pub buffer_s: Option<f64>,
    /// The picture, made small.
    pub whole: Option<usize>,
    /// A part of it at full size.
    pub part: Option<usize>,
    /// The same part of the source's frame that was due.
    pub source_part: Option<usize>,
}

/// A claim and what was measured.
#[derive(Debug, Clone, Serialize)]
pub struct ReportedClaim {
    /// The sentence.
    pub text: String,
    /// Where it is from.
    pub source: Option<String>,
    /// The figure compared.
    pub metric: String,
    /// With what.
    pub bound: String,
    /// `holds`, `fails`, `undecided` or `not measured`.
    pub verdict: String,
    /// The value nearest to failing.
    pub measured: Option<f64>,
    /// Its 95 % bootstrap interval; in results of earlier versions its least and greatest over the repeats.
    pub spread: Option<[f64; 2]>,
    /// Of `measured`.
    pub unit: &'static str,
    /// Where it was measured.
    pub at: String,
    /// Why the claim fails, if it does.
    pub reason: Option<String>,
    /// Each comparison made.
    pub points: Vec<Comparison>,
}

/// One comparison of a claim.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// Where.
    pub at: String,
    /// The figure.
    pub value: Option<f64>,
    /// What it is divided by.
    pub reference: Option<f64>,
    /// What is compared with the bound.
    pub measured: Option<f64>,
    /// Its 95 % bootstrap interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
    /// Whether it is within.
    pub holds: bool,
}

/// A chart or a table.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Panel {
    /// Points are x, median, low, high.
    Lines(Chart),
    /// The same; x is the number of a category.
    Bars(Chart),
    /// Points are value, share.
    Cdf(Chart),
    /// Points are time, value.
    Series(Chart),
    /// Points are x, y, x low, x high, y low, y high.
    Scatter(Scatter),
    /// Words.
    Table(ReportTable),
}

impl Panel {
    /// The chart; `None` for a table.
    #[must_use]
    pub fn chart(&self) -> Option<&Chart> {
        match self {
            Self::Lines(chart) | Self::Bars(chart) | Self::Cdf(chart) | Self::Series(chart) => {
                Some(chart)
            }
            Self::Scatter(scatter) => Some(&scatter.chart),
            Self::Table(_) => None,
        }
    }

    pub(super) fn chart_mut(&mut self) -> Option<&mut Chart> {
        match self {
            Self::Lines(chart) | Self::Bars(chart) | Self::Cdf(chart) | Self::Series(chart) => {
                Some(chart)
            }
            Self::Scatter(scatter) => Some(&mut scatter.chart),
            Self::Table(_) => None,
        }
    }
}

/// Axes and what is drawn between them.
#[derive(Debug, Clone, Serialize)]
pub struct Chart {
    /// Stands above it.
    pub title: Option<String>,
    /// Across.
    pub x: PlotAxis,
    /// Upwards.
    pub y: PlotAxis,
    /// A colour each.
    pub series: Vec<Line>,
    /// Dashed.
    pub references: Vec<Dashed>,
}

/// An axis.
#[derive(Debug, Clone, Default, Serialize)]
pub struct PlotAxis {
    /// What it shows.
    pub name: String,
    /// In which unit.
    pub unit: &'static str,
    /// Logarithmic.
    pub log: bool,
    /// Its ends, unless the data's.
    pub range: Option<[f64; 2]>,
    /// Names instead of numbers.
    pub categories: Option<Vec<String>>,
}

/// One series.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// See [`Panel`].
    pub points: Vec<Vec<Option<f64>>>,
}

/// A line that something should reach.
#[derive(Debug, Clone, Serialize)]
pub struct Dashed {
    /// What it is.
    pub name: String,
    /// Each height holds up to the next point.
    pub points: Vec<[f64; 2]>,
}

/// A chart with a best corner.
#[derive(Debug, Clone, Serialize)]
pub struct Scatter {
    /// Axes and points.
    #[serde(flatten)]
    pub chart: Chart,
    /// Where it is best.
    pub ideal: Option<Corner>,
    /// Whether the best points are joined.
    pub front: bool,
}

/// Rows of words.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReportTable {
    /// Stands above it.
    pub title: Option<String>,
    /// Headings.
    pub columns: Vec<String>,
    /// The first cell is the row's heading.
    pub rows: Vec<Vec<String>>,
}
