//! `millrace-lab report`: one page from the results of runs.

mod plot;

pub use plot::{Corner, Kind, OneOrMore, Plot, Reference, Scalar};
