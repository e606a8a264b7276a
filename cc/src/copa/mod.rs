//! Copa (NSDI '18): a target rate of one packet per queueing delay.

use crate::registry::Entry;

/// The algorithms of this family.
pub(crate) const ENTRIES: &[Entry] = &[];
