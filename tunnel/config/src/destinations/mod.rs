//! Which addresses flows may go to.
//!
//! The check is made on the address that is about to be dialled, after name resolution, so that no
//! spelling of an address and no DNS answer gets around it. An address is permitted when all of its
//! forms are: itself, and each IPv4 address that a translator would take out of it.
//!
//! A form is permitted when an allow entry has its network and port. In a special range
//! (loopback, link-local, metadata services and so on, and the server's own addresses) the entry's
//! network must moreover lie inside that range: `0.0.0.0/0` does not open `127.0.0.1`,
//! `127.0.0.0/8` does.
//!
//! An entry for a name permits the addresses of flows that ask for that very name, wherever they
//! are outside the special ranges.

mod acl;
mod denied_reason;
mod embedded;
mod own;
mod special;
#[cfg(test)]
mod tests;

pub use acl::{Acl, Denied};
pub use denied_reason::DeniedReason;
pub use own::OwnAddresses;
