//! Accepts TCP flows and carries them through the tunnel.

pub mod accepted;
mod backoff;
pub mod intercept;
pub mod lane;
pub mod pool;
pub mod role;
pub mod run;
