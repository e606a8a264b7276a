//! A queue in which keys have turns, however many entries each of them has.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Numbers that wait, first in first out for each key; the keys have turns.
#[derive(Debug)]
pub(super) struct FairQueue<K> {
    queues: HashMap<K, VecDeque<u64>>,
    turns: VecDeque<K>,
}

impl<K: Clone + Eq + Hash> FairQueue<K> {
    pub(super) fn new() -> Self {
        Self { queues: HashMap::new(), turns: VecDeque::new() }
    }

    /// How many a key has in it.
    pub(super) fn len_of(&self, key: &K) -> usize {
        self.queues.get(key).map_or(0, VecDeque::len)
    }

    pub(crate) fn push(&mut self, key: K, number: u64) {
        let queue = self.queues.entry(key.clone()).or_default();
        if queue.is_empty() {
            self.turns.push_back(key);
        }
        queue.push_back(number);
    }

    /// Takes a number out, whatever its place.
    pub(super) fn remove(&mut self, key: &K, number: u64) {
        let Some(queue) = self.queues.get_mut(key) else { return };
        queue.retain(|other| *other != number);
        if queue.is_empty() {
            self.queues.remove(key);
            self.turns.retain(|other| other != key);
        }
    }

    /// The next number of the next key that `may` have one.
    pub(super) fn pop(&mut self, may: impl Fn(&K) -> bool) -> Option<(K, u64)> {
        let turn = self.turns.iter().position(may)?;
        let key = self.turns.remove(turn)?;
        let queue = self.queues.get_mut(&key)?;
        let number = queue.pop_front()?;
        if queue.is_empty() {
            self.queues.remove(&key);
        } else {
            self.turns.push_back(key.clone());
        }
        Some((key, number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_turns_and_each_key_is_first_in_first_out() {
        let mut queue = FairQueue::new();
        for (key, number) in [('a', 1), ('a', 2), ('a', 3), ('b', 4), ('c', 5), ('b', 6)] {
            queue.push(key, number);
        }
        assert_eq!((queue.len_of(&'a'), queue.len_of(&'z')), (3, 0));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop(|_| true)).collect();
        assert_eq!(order, [('a', 1), ('b', 4), ('c', 5), ('a', 2), ('b', 6), ('a', 3)]);
        assert!(queue.turns.is_empty() && queue.queues.is_empty());
    }

    #[test]
    fn keys_that_may_not_have_one_keep_their_turn() {
        let mut queue = FairQueue::new();
        for (key, number) in [('a', 1), ('b', 2), ('b', 3)] {
            queue.push(key, number);
        }
        assert_eq!(queue.pop(|key| *key != 'a'), Some(('b', 2)));
        assert_eq!(queue.pop(|_| false), None);
        assert_eq!(queue.pop(|_| true), Some(('a', 1)));
        assert_eq!(queue.pop(|_| true), Some(('b', 3)));
    }

    #[test]
    fn a_removed_number_is_gone_with_its_key() {
        let mut queue = FairQueue::new();
        queue.push('a', 1);
        queue.push('b', 2);
        queue.remove(&'a', 1);
        queue.remove(&'a', 1);
        assert_eq!(queue.pop(|_| true), Some(('b', 2)));
        assert_eq!(queue.pop(|_| true), None);
    }
}
