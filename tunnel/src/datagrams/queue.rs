//! Datagrams that wait for the tunnel, bounded.

use std::collections::VecDeque;

/// Most bytes that wait in one flow: about 100 ms of a video of 20 Mbit/s.
pub const MAX_BYTES: usize = 256 << 10;
/// Bytes that the flows of a worker share when there are many.
const SHARED_BYTES: usize = 64 << 20;
/// What each has in any case, however many there are.
const MIN_BYTES: usize = 16 << 10;
/// Most datagrams that wait in one flow, however small they are.
pub const MAX_DATAGRAMS: usize = 512;

/// A bounded queue of datagrams. When it is full, the oldest are dropped: late datagrams are of no
/// use and delay those behind them.
#[derive(Debug, Default)]
pub struct Queue {
    datagrams: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl Queue {
    /// Adds the newest datagram. Returns how many old ones were dropped, so that not more than
    /// `most_bytes` wait.
    pub fn push(&mut self, datagram: Vec<u8>, most_bytes: usize) -> u64 {
        let mut dropped = 0;
        while !self.datagrams.is_empty()
            && (self.bytes + datagram.len() > most_bytes.min(MAX_BYTES)
                || self.datagrams.len() >= MAX_DATAGRAMS)
        {
            self.pop();
            dropped += 1;
        }
        self.bytes += datagram.len();
        self.datagrams.push_back(datagram);
        dropped
    }

    /// Takes the oldest.
    pub fn pop(&mut self) -> Option<Vec<u8>> {
        let datagram = self.datagrams.pop_front()?;
        self.bytes -= datagram.len();
        Some(datagram)
    }

    /// The oldest.
    pub fn front(&self) -> Option<&[u8]> {
        self.datagrams.front().map(Vec::as_slice)
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.datagrams.is_empty()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.datagrams.len()
    }
}

/// What may wait in each of so many flows of a worker.
pub(crate) fn share(flows: usize) -> usize {
    (SHARED_BYTES / flows.max(1)).clamp(MIN_BYTES, MAX_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_flows_have_less_each() {
        assert_eq!((share(0), share(256), share(1024)), (MAX_BYTES, MAX_BYTES, MAX_BYTES / 4));
        assert_eq!(share(1_000_000), MIN_BYTES);
        let mut queue = Queue::default();
        let dropped: u64 = (0..20).map(|_| queue.push(vec![0; 1024], MIN_BYTES)).sum();
        assert_eq!((dropped, queue.len()), (4, 16));
    }

    fn rest(mut queue: Queue) -> Vec<u8> {
        std::iter::from_fn(|| queue.pop()).map(|datagram| datagram[0]).collect()
    }

    #[test]
    fn the_oldest_make_room_and_the_order_stays() {
        let mut queue = Queue::default();
        let quarter = MAX_BYTES / 4;
        for number in 0..4 {
            assert_eq!(queue.push(vec![number; quarter], MAX_BYTES), 0);
        }
        assert_eq!(queue.push(vec![4; quarter + 1], MAX_BYTES), 2);
        assert_eq!(queue.push(vec![5; 10], MAX_BYTES), 0);
        assert_eq!(queue.front().map(|datagram| datagram[0]), Some(2));
        assert_eq!(rest(queue), [2, 3, 4, 5]);
    }

    #[test]
    fn small_ones_are_counted_too() {
        let mut queue = Queue::default();
        let dropped: u64 = (0..MAX_DATAGRAMS + 3).map(|_| queue.push(vec![1], MAX_BYTES)).sum();
        assert_eq!((dropped, queue.len()), (3, MAX_DATAGRAMS));
        assert_eq!(queue.push(vec![2; MAX_BYTES], MAX_BYTES), MAX_DATAGRAMS as u64);
        assert_eq!(rest(queue), [2]);
    }
}
