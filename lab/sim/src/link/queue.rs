//! A first-in first-out queue limited in bytes, drop-tail.

use std::collections::VecDeque;

/// A packet with a size on the link.
pub trait LinkSized {
    /// Bytes that count against the buffer and the rate.
    fn link_bytes(&self) -> u64;
}

/// Byte-limited FIFO. A packet that does not fit whole is dropped (drop-tail); queued packets stay.
#[derive(Debug)]
pub struct ByteFifo<P> {
    items: VecDeque<P>,
    bytes: u64,
    limit_bytes: u64,
}

impl<P: LinkSized> ByteFifo<P> {
    /// An empty queue holding at most `limit_bytes`.
    #[must_use]
    pub fn new(limit_bytes: u64) -> Self {
        Self { items: VecDeque::new(), bytes: 0, limit_bytes }
    }

    /// Appends `item`.
    ///
    /// # Errors
    /// Gives the item back when it does not fit.
    pub fn push(&mut self, item: P) -> Result<(), P> {
        self.push_beside(item, 0)
    }

    /// Appends `item`, with `beside_bytes` of the limit used outside of the queue.
    ///
    /// # Errors
    /// Gives the item back when it does not fit.
    pub fn push_beside(&mut self, item: P, beside_bytes: u64) -> Result<(), P> {
        let bytes = self.bytes + item.link_bytes();
        if bytes + beside_bytes > self.limit_bytes {
            return Err(item);
        }
        self.bytes = bytes;
        self.items.push_back(item);
        Ok(())
    }

    /// Takes the oldest item.
    pub fn pop(&mut self) -> Option<P> {
        let item = self.items.pop_front()?;
        self.bytes -= item.link_bytes();
        Some(item)
    }

    /// Queued packets, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &P> {
        self.items.iter()
    }

    /// Bytes queued.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Packets queued.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether nothing is queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Changes the limit. A queue that is longer than the new limit keeps its packets and accepts no
    /// new ones until it has drained below the limit.
    pub fn set_limit_bytes(&mut self, limit_bytes: u64) {
        self.limit_bytes = limit_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl LinkSized for u64 {
        fn link_bytes(&self) -> u64 {
            *self
        }
    }

    #[test]
    fn keeps_order_and_refuses_what_does_not_fit() {
        let mut fifo = ByteFifo::new(3000);
        assert_eq!(fifo.push(1500), Ok(()));
        assert_eq!(fifo.push(1400), Ok(()));
        assert_eq!(fifo.push(101), Err(101));
        assert_eq!(fifo.push(100), Ok(()));
        assert_eq!((fifo.bytes(), fifo.len()), (3000, 3));
        assert_eq!(
            [fifo.pop(), fifo.pop(), fifo.pop(), fifo.pop()],
            [Some(1500), Some(1400), Some(100), None]
        );
        assert_eq!(fifo.bytes(), 0);
        assert!(fifo.is_empty());
    }

    #[test]
    fn a_smaller_limit_keeps_what_is_queued() {
        let mut fifo = ByteFifo::new(3000);
        fifo.push(1500).unwrap();
        fifo.push(1500).unwrap();
        fifo.set_limit_bytes(2000);
        assert_eq!(fifo.len(), 2);
        assert_eq!(fifo.push(100), Err(100));
        fifo.pop();
        assert_eq!(fifo.push(500), Ok(()));
    }
}
