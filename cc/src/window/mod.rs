//! Algorithms that set a window: Reno, CUBIC, Vegas, Westwood+, Illinois.

use crate::registry::Entry;

/// The algorithms of this family.
pub(crate) const ENTRIES: &[Entry] = &[];
