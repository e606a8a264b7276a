//! Numbered notes below a table.

/// The notes so far.
#[derive(Debug, Default)]
pub struct Footnotes {
    notes: Vec<String>,
}

impl Footnotes {
    /// The mark of a note, `[1]`; the same for the same text.
    pub fn mark(&mut self, note: &str) -> String {
        let known = self.notes.iter().position(|it| it == note);
        let index = known.unwrap_or_else(|| {
            self.notes.push(note.to_owned());
            self.notes.len() - 1
        });
        format!("[{}]", index + 1)
    }

    /// A line for each.
    pub fn text(&self) -> String {
        let lines = self.notes.iter().enumerate();
        lines.map(|(index, note)| format!("[{}] {note}\n", index + 1)).collect()
    }
}
