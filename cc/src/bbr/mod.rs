//! BBR: a model of the path's bandwidth and round trip (versions 1 and 3).

use crate::registry::Entry;

/// The algorithms of this family.
pub(crate) const ENTRIES: &[Entry] = &[];
