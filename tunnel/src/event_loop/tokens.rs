//! Tokens of event sources.

/// Kinds of tokens, in the upper bits.
pub(crate) const KIND_SHIFT: u32 = 56;
pub(crate) const KIND_FLOW: usize = 1;
pub(crate) const KIND_ROLE: usize = 2;
pub(crate) const KIND_UDP: usize = 3;
pub(crate) const KIND_OWN: usize = 4;
pub(crate) const KIND_DATAGRAMS: usize = 5;
