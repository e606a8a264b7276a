use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use crate::{PathModel, Time};

/// How long saved parameters count. RFC 9959 leaves the lifetime open and asks for one: routes and loads change in hours.
const MAX_AGE: Duration = Duration::from_secs(3600);
/// Least window that is worth a jump, in bytes: half of it must exceed an initial window of 32 packets of 1350 bytes.
const MIN_WINDOW_BYTES: u64 = 2 * 32 * 1350;

/// What a connection leaves to the next one between the same two hosts (RFC 9959: `saved_cwnd`, `saved_rtt`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedPath {
    /// Bytes that the path carried in a round trip.
    pub window_bytes: u64,
    /// Its smallest RTT.
    pub rtt: Duration,
}

impl SavedPath {
    /// Of a connection that ends: what was delivered in a round trip, whatever window was allowed. `None` if that is no
    /// more than a new connection sends at once.
    #[must_use]
    pub fn of(path: &PathModel) -> Option<Self> {
        let rtt = path.min_rtt?;
        let window_bytes = path.max_delivery_rate.bytes_in(rtt);
        (window_bytes > MIN_WINDOW_BYTES).then_some(Self { window_bytes, rtt })
    }
}

/// Saved paths by peer, bounded in number and age. One connection at a time begins with those of a peer: several would
/// jump to more than the path carried.
#[derive(Debug)]
pub struct SavedPaths<K> {
    capacity: usize,
    paths: HashMap<K, Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    saved: SavedPath,
    at: Time,
    in_use: bool,
}

impl<K: Eq + Hash + Copy> SavedPaths<K> {
    /// Room for `capacity` peers, at least one; a further one replaces the oldest.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), paths: HashMap::new() }
    }

    /// What the last connection to `peer` found, unless that is too old or in use. The connection that begins with it
    /// ends with [`Self::give_back`].
    pub fn take(&mut self, now: Time, peer: K) -> Option<SavedPath> {
        let entry = self.paths.get_mut(&peer)?;
        let is_free = !entry.in_use && now.since(entry.at) <= MAX_AGE;
        is_free.then(|| {
            entry.in_use = true;
            entry.saved
        })
    }

    /// The connection that took the saved parameters of `peer` has ended.
    pub fn give_back(&mut self, peer: K) {
        if let Some(entry) = self.paths.get_mut(&peer) {
            entry.in_use = false;
        }
    }

    /// Saves what a connection to `peer` found. A path that carried next to nothing leaves what was saved before.
    pub fn save(&mut self, now: Time, peer: K, path: &PathModel) {
        let Some(saved) = SavedPath::of(path) else { return };
        let in_use = self.paths.get(&peer).map(|entry| entry.in_use);
        if self.paths.len() >= self.capacity && in_use.is_none() {
            let oldest = self.paths.iter().min_by_key(|(_, entry)| entry.at).map(|(peer, _)| *peer);
            oldest.map(|peer| self.paths.remove(&peer));
        }
        self.paths.insert(peer, Entry { saved, at: now, in_use: in_use.unwrap_or(false) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bandwidth;

    fn path(mbps: f64, rtt_ms: u64) -> PathModel {
        let mut path = PathModel::default();
        path.min_rtt = Some(Duration::from_millis(rtt_ms));
        path.max_delivery_rate = Bandwidth::from_mbps(mbps);
        path
    }

    fn at(s: u64) -> Time {
        Time::ZERO + Duration::from_secs(s)
    }

    #[test]
    fn what_a_round_trip_delivered_is_saved() {
        let rtt = Duration::from_millis(800);
        let saved = SavedPath { window_bytes: 4_200_000, rtt };
        assert_eq!(SavedPath::of(&path(42.0, 800)), Some(saved));
        assert_eq!(SavedPath::of(&path(0.5, 800)), None, "less than an initial window");
        assert_eq!(SavedPath::of(&PathModel::default()), None);
    }

    #[test]
    fn saved_paths_expire_after_an_hour() {
        let mut paths = SavedPaths::new(4);
        paths.save(at(0), 'a', &path(42.0, 800));
        assert_eq!(paths.take(at(3601), 'a'), None);
        assert!(paths.take(at(3600), 'a').is_some());
        assert_eq!(paths.take(at(0), 'b'), None);
    }

    #[test]
    fn one_connection_at_a_time_begins_with_a_saved_path() {
        let mut paths = SavedPaths::new(4);
        paths.save(at(0), 'a', &path(42.0, 800));
        assert!(paths.take(at(1), 'a').is_some());
        paths.save(at(2), 'a', &path(20.0, 800));
        assert_eq!(paths.take(at(3), 'a'), None, "another connection is still using it");
        paths.give_back('a');
        assert_eq!(paths.take(at(4), 'a').map(|saved| saved.window_bytes), Some(2_000_000));
    }

    #[test]
    fn oldest_path_makes_room_for_another_peer() {
        let mut paths = SavedPaths::new(2);
        for (s, peer) in [(1, 'a'), (2, 'b'), (3, 'a'), (4, 'c')] {
            paths.save(at(s), peer, &path(42.0, 800));
        }
        let known = ['a', 'b', 'c'].map(|peer| paths.take(at(5), peer).is_some());
        assert_eq!(known, [true, false, true]);
    }

    #[test]
    fn connection_that_carried_little_leaves_what_was_saved() {
        let mut paths = SavedPaths::new(2);
        paths.save(at(1), 'a', &path(42.0, 800));
        paths.save(at(2), 'a', &path(0.1, 800));
        assert_eq!(paths.take(at(3), 'a').map(|saved| saved.window_bytes), Some(4_200_000));
    }
}
