//! Name resolution beside the event loops: one thread with an asynchronous resolver.
//!
//! A name is looked for in `/etc/hosts` first and then asked of the name servers of
//! `/etc/resolv.conf`, with its `search` and `ndots`. Both files are read again when they change.
//! Other sources of `/etc/nsswitch.conf` are not asked.
//!
//! Answers are kept for their TTL, equal questions are asked once, and each viewer and each client
//! has a bounded share of the questions that are under way at a time.

mod fair_queue;
mod legacy;
mod lookup;
mod order;
mod question;
mod resolver;
mod service;
mod system;

pub use question::{Asker, Name, ResolveError, Resolved, ResolvedAddresses};
pub use resolver::{Question, Resolver};
