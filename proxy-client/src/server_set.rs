//! Sets of servers.

/// A set of server numbers below 32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ServerSet(u32);

impl ServerSet {
    /// The set of one server.
    pub fn of(server: usize) -> Self {
        Self(u32::try_from(server).ok().and_then(|number| 1_u32.checked_shl(number)).unwrap_or(0))
    }

    /// The set with these bits; see [`ServerSet::bits`].
    pub fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// One bit for each server.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Whether a server is in it.
    pub fn contains(self, server: usize) -> bool {
        !self.is_empty() && self.0 & Self::of(server).0 != 0
    }

    /// Whether no server is in it.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// All servers that are in one of the two.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
