//! Code that threads hand values over with, compiled with the synchronisation of
//! [Shuttle](https://docs.rs/shuttle), which tries the orders in which threads can run.

#[path = "../../../ops/src/published.rs"]
pub mod published;
mod sync;
