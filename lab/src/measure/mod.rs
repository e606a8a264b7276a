//! The figures of a run: from the totals and the samples that a driver hands over.

mod drops;
mod dynamics;
mod epochs;
mod figures;
mod record;
mod rungs;

pub use figures::{figures, members};
pub use record::{FlowPoint, RunRecord, SAMPLE_S};
