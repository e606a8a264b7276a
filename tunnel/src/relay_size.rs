//! Sizes the reads from a stream after what the flow's TCP reader takes.
//!
//! What the socket does not take of a read waits in the flow, beyond the stream's window, so that reads must be small.
//! Small reads cost a fast flow many system calls: eight flows of 0.8 Gbit/s took 45,000 writes of the client for
//! 2.3 GB with 64 KiB and take 16,000 to 24,000 with sizes that follow (`make bench`).

/// The first size, and that of a reader that does not take all.
const MIN_RELAY_BYTES: usize = 64 << 10;

/// Most that the next read takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RelaySize(usize);

impl RelaySize {
    /// Of a flow that has just begun.
    pub fn new() -> Self {
        Self(MIN_RELAY_BYTES)
    }

    /// In bytes, where the buffer has room for `room`.
    pub fn bytes(self, room: usize) -> usize {
        self.0.min(room)
    }

    /// The next one after a read of `read` bytes into `room`, of which the socket has taken all or not.
    pub fn next(self, read: usize, room: usize, took_all: bool) -> Self {
        match took_all {
            true if read >= self.bytes(room) => Self(room.min(2 * self.0).max(MIN_RELAY_BYTES)),
            true => self,
            false => Self::new(),
        }
    }
}

impl Default for RelaySize {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: usize = 4 * MIN_RELAY_BYTES;

    #[test]
    fn grows_for_a_reader_that_takes_all_and_not_beyond_the_buffer() {
        let mut size = RelaySize::new();
        assert_eq!(size.bytes(ROOM), MIN_RELAY_BYTES);
        for expected in [2 * MIN_RELAY_BYTES, ROOM, ROOM] {
            size = size.next(size.bytes(ROOM), ROOM, true);
            assert_eq!(size.bytes(ROOM), expected);
        }
    }

    #[test]
    fn stays_where_the_stream_had_less() {
        let size = RelaySize::new().next(MIN_RELAY_BYTES - 1, ROOM, true);
        assert_eq!(size.bytes(ROOM), MIN_RELAY_BYTES);
    }

    #[test]
    fn is_small_again_when_the_socket_leaves_something() {
        let size = RelaySize(ROOM).next(ROOM, ROOM, false);
        assert_eq!(size.bytes(ROOM), MIN_RELAY_BYTES);
    }

    #[test]
    fn is_never_more_than_the_buffer() {
        assert_eq!(RelaySize::new().bytes(1000), 1000);
    }
}
