//! The handler of the events of a stream.

/// The handler of the events of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A flow in relay, by its slot.
    Flow(usize),
    /// A UDP flow, by its slot.
    Datagrams(usize),
    /// The role, by a key of its own choice.
    Role(u64),
    /// A health probe.
    Probe,
    /// Nothing yet: the role has still to look at the request.
    PendingRequest {
        /// Whether the peer has ended the stream meanwhile, with nothing unread before.
        finished: bool,
    },
}
