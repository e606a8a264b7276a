//! Identity of a connection within the process.

/// A connection of one worker. Slots are reused, serials are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnId {
    pub(crate) slot: usize,
    pub(crate) serial: u64,
}

impl ConnId {
    /// A number that is unique in its worker.
    pub fn number(self) -> u64 {
        self.serial
    }
}
