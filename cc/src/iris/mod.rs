//! Iris: a small, equal queue load for every flow, by regression.

use crate::registry::Entry;

/// The algorithms of this family.
pub(crate) const ENTRIES: &[Entry] = &[];
