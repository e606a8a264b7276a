//! The choices of a fuzz target, read from its input.

/// An input that has not been read yet.
#[derive(Debug)]
pub(crate) struct FuzzChoices<'a>(pub(crate) &'a [u8]);

impl<'a> FuzzChoices<'a> {
    /// A choice among 256; `None` at the end of the input.
    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// A choice among 65,536.
    pub(crate) fn short(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes([self.byte()?, self.byte()?]))
    }

    /// So many bytes, or those that remain.
    pub(crate) fn bytes(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        taken
    }
}
