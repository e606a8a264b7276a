//! Draws the display.

use std::net::SocketAddr;

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table};

use super::state::TopState;
use crate::flow_row::FlowRow;
use crate::units;

/// Columns of the terminal from which on bytes and age are shown.
const WIDE_COLUMNS: u16 = 110;
/// Columns of the terminal from which on connections are shown, whose IDs have 32 digits.
const WIDEST_COLUMNS: u16 = 150;
/// Keys, in the last line.
const KEYS: &str = "q quit  PgUp PgDn page  Up Down row  Home End";

/// A column of the table.
struct TopColumn {
    title: &'static str,
    width: Constraint,
    alignment: Alignment,
    /// The terminal must be as wide as this.
    from_columns: u16,
    text: fn(FlowRow) -> String,
}

const fn column(
    title: &'static str,
    width: Constraint,
    alignment: Alignment,
    from_columns: u16,
    text: fn(FlowRow) -> String,
) -> TopColumn {
    TopColumn { title, width, alignment, from_columns, text }
}

const COLUMNS: [TopColumn; 11] = [
    column("CLIENT", Constraint::Fill(3), Alignment::Left, 0, |row| without_port(row.client)),
    column("DESTINATION", Constraint::Fill(4), Alignment::Left, 0, |row| row.destination),
    column("CLASS", Constraint::Length(5), Alignment::Left, 0, |row| row.class),
    column("ALGORITHM", Constraint::Length(15), Alignment::Left, 0, |row| row.algorithm),
    column("MBIT/S", Constraint::Length(8), Alignment::Right, 0, |row| row.rate_mbps),
    column("RTT MS", Constraint::Length(7), Alignment::Right, 0, |row| row.rtt_ms),
    column("LOSS %", Constraint::Length(6), Alignment::Right, 0, |row| row.loss_percent),
    column("UP", Constraint::Length(9), Alignment::Right, WIDE_COLUMNS, |row| row.bytes_up),
    column("DOWN", Constraint::Length(9), Alignment::Right, WIDE_COLUMNS, |row| row.bytes_down),
    column("AGE", Constraint::Length(7), Alignment::Right, WIDE_COLUMNS, |row| row.age),
    column("CONNECTION", Constraint::Length(32), Alignment::Left, WIDEST_COLUMNS, |row| {
        row.connection
    }),
];

/// Draws the state, and sets how many flows it has room for.
pub(super) fn draw(frame: &mut Frame<'_>, state: &mut TopState) {
    let lines = [1, 1].map(Constraint::Length).into_iter();
    let [program, totals, table, last] =
        Layout::vertical(lines.chain([Constraint::Min(0), Constraint::Length(1)]))
            .areas(frame.area());
    // One row is the table's header.
    state.fit(usize::from(table.height.saturating_sub(1)));
    frame.render_widget(program_line(state), program);
    frame.render_widget(totals_line(state), totals);
    draw_flows(frame, state, table);
    frame.render_widget(last_line(state), last);
}

fn program_line(state: &TopState) -> Line<'_> {
    let snapshot = &state.snapshot;
    let health = match &snapshot.health_problem {
        None => "healthy".green(),
        Some(problem) => format!("not healthy: {problem}").red(),
    };
    let program = snapshot.program.as_str().bold();
    Line::from(vec![program, format!("  {}  ", state.address).into(), health])
}

fn totals_line(state: &TopState) -> Line<'_> {
    let totals = state.snapshot.totals();
    Line::from(format!(
        "{} TCP  {} UDP  {} bypassed  {:.2} Mbit/s  {} up  {} down",
        totals.tcp,
        totals.udp,
        totals.bypassed,
        totals.rate_mbps,
        units::bytes(totals.bytes_up),
        units::bytes(totals.bytes_down),
    ))
}

fn draw_flows(frame: &mut Frame<'_>, state: &TopState, area: Rect) {
    let columns = || COLUMNS.iter().filter(|it| frame_width_allows(it, area.width));
    let header = columns().map(|it| cell(it, it.title.to_owned()));
    let header = Row::new(header).style(Style::new().add_modifier(Modifier::REVERSED));
    let shown = state.snapshot.flows.iter().skip(state.first).take(state.page_rows);
    let rows = shown.map(|flow| {
        let row = FlowRow::new(flow);
        Row::new(columns().map(|it| cell(it, (it.text)(row.clone()))).collect::<Vec<_>>())
    });
    let table = Table::new(rows, columns().map(|it| it.width)).header(header).column_spacing(1);
    let style = if state.problem.is_some() { Style::new().dim() } else { Style::new() };
    frame.render_widget(table.style(style), area);
}

fn frame_width_allows(column: &TopColumn, width: u16) -> bool {
    width >= column.from_columns
}

fn cell(column: &TopColumn, text: String) -> Cell<'static> {
    Cell::from(Line::from(text).alignment(column.alignment))
}

fn last_line(state: &TopState) -> Paragraph<'_> {
    if let Some(problem) = &state.problem {
        return Paragraph::new(Line::from(problem.as_str().red()));
    }
    let flows = state.snapshot.flows.len();
    let last = (state.first + state.page_rows).min(flows);
    let page = match flows {
        0 => "no flows".to_owned(),
        _ => format!("flows {} to {last} of {flows}", state.first + 1),
    };
    Paragraph::new(Line::from(vec![page.bold(), Span::from("  "), KEYS.dim()]))
}

/// The port of a client says little, and takes room.
fn without_port(client: String) -> String {
    client.parse::<SocketAddr>().map_or(client, |address| address.ip().to_string())
}
