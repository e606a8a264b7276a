//! Text of other processes and of peers, which must not control a terminal.

/// `text` with `?` in place of control characters.
///
/// ```
/// assert_eq!(millrace_ops::terminal_text::printable("edge-1\u{1b}[2J"), "edge-1?[2J");
/// ```
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars().map(|it| if it.is_control() { '?' } else { it }).collect()
}
