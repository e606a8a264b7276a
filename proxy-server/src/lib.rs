//! The far end of the tunnel: takes flows from it to their destinations.

pub mod dial;
pub mod resolve;
pub mod role;
pub mod run;
