//! Tokens of event sources.

/// Place of the kind of a token, above the number of the event source.
pub(crate) const KIND_SHIFT: u32 = 56;
/// The local socket of a TCP flow.
pub(crate) const KIND_FLOW: usize = 1;
/// A source of the role.
pub(crate) const KIND_ROLE: usize = 2;
/// A socket of tunnel connections.
pub(crate) const KIND_UDP: usize = 3;
/// The worker's own sources.
pub(crate) const KIND_OWN: usize = 4;
/// The local socket of a UDP flow.
pub(crate) const KIND_DATAGRAMS: usize = 5;
