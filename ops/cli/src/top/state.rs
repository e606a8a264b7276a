//! What is shown, and which part of it.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::snapshot::TopSnapshot;
use crate::admin::AdminApiError;

/// State of the display.
#[derive(Debug)]
pub(super) struct TopState {
    /// The admin listener.
    pub(super) address: String,
    /// The last answer.
    pub(super) snapshot: TopSnapshot,
    /// Why there is no newer one.
    pub(super) problem: Option<String>,
    /// The first flow that is shown.
    pub(super) first: usize,
    /// Flows that fit on the page; set by each drawing.
    pub(super) page_rows: usize,
}

impl TopState {
    pub(super) fn new(address: String, snapshot: TopSnapshot) -> Self {
        Self { address, snapshot, problem: None, first: 0, page_rows: 1 }
    }

    /// Takes an answer. After a failure the last one stays.
    pub(super) fn update(&mut self, update: Result<TopSnapshot, AdminApiError>) {
        match update {
            Ok(snapshot) => (self.snapshot, self.problem) = (snapshot, None),
            Err(error) => self.problem = Some(error.to_string()),
        }
    }

    /// Whether the key ends the display.
    pub(super) fn on_key(&mut self, key: KeyEvent) -> bool {
        let page = self.page_rows;
        match key.code {
            KeyCode::Char('q') => return true,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
            KeyCode::Down | KeyCode::Char('j') => self.first += 1,
            KeyCode::Up | KeyCode::Char('k') => self.first = self.first.saturating_sub(1),
            KeyCode::PageDown | KeyCode::Char(' ') => self.first += page,
            KeyCode::PageUp => self.first = self.first.saturating_sub(page),
            KeyCode::Home => self.first = 0,
            KeyCode::End => self.first = self.snapshot.flows.len(),
            _ => {}
        }
        self.fit(page);
        false
    }

    /// Sets how many flows fit, and keeps the page full where there are enough flows.
    pub(super) fn fit(&mut self, page_rows: usize) {
        self.page_rows = page_rows.max(1);
        self.first = self.first.min(self.snapshot.flows.len().saturating_sub(self.page_rows));
    }
}
