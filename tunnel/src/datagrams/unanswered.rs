//! UDP flows without a reply so far.
//!
//! Their source addresses may be forged, as UDP has no handshake. They have a small number of places of their own. A
//! new flow evicts the oldest one of the users with the most. With its first reply a flow counts towards the flow limit
//! instead.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_admission::flow_owner::{FlowOwner, Viewer};
use prometheus::IntGauge;

/// A viewer with one part in so many of the places makes room for its own new flows.
const VIEWER_DIVISOR: usize = 16;

/// A flow that is evicted for a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Evicted {
    /// The role's key for it.
    pub(crate) key: u64,
    /// Where it is, if it runs already.
    pub(crate) slot: Option<usize>,
}

/// The unanswered UDP flows of a worker.
#[derive(Debug)]
pub(crate) struct Unanswered(Arc<Mutex<Table>>);

#[derive(Debug)]
struct Table {
    places: usize,
    next_number: u64,
    flows: HashMap<u64, UnansweredFlow>,
    by_viewer: FlowNumbers<Viewer>,
    by_group: FlowNumbers<Group>,
    gauge: IntGauge,
}

#[derive(Debug)]
struct UnansweredFlow {
    owner: FlowOwner,
    flow: Evicted,
}

/// The listener at a client, the client at a server.
type Group = (Option<usize>, Option<Arc<str>>);

/// Each user's flows; lower numbers are older.
#[derive(Debug)]
struct FlowNumbers<K>(HashMap<K, BTreeSet<u64>>);

impl<K: Eq + Hash> FlowNumbers<K> {
    fn insert(&mut self, user: K, number: u64) {
        self.0.entry(user).or_default().insert(number);
    }

    fn remove(&mut self, user: &K, number: u64) {
        if let Some(numbers) = self.0.get_mut(user) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.0.remove(user);
            }
        }
    }
}

impl Unanswered {
    pub(crate) fn new(places: usize, gauge: IntGauge) -> Self {
        Self(Arc::new(Mutex::new(Table {
            places,
            next_number: 0,
            flows: HashMap::new(),
            by_viewer: FlowNumbers(HashMap::new()),
            by_group: FlowNumbers(HashMap::new()),
            gauge,
        })))
    }

    /// Changes the number of places. Flows that run stay.
    pub(crate) fn set(&self, places: usize) {
        lock(&self.0).places = places;
    }

    /// Takes a place for the flow that its role knows by `key`, and names the flow that is evicted
    /// for it.
    pub(crate) fn take(&self, key: u64, owner: FlowOwner) -> (UnansweredPlace, Option<Evicted>) {
        let mut table = lock(&self.0);
        let evicted = if table.flows.len() >= table.places { table.evict(&owner) } else { None };
        let number = table.insert(key, owner);
        (UnansweredPlace { table: self.0.clone(), number }, evicted)
    }
}

impl Table {
    fn insert(&mut self, key: u64, owner: FlowOwner) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.by_viewer.insert(owner.viewer(), number);
        self.by_group.insert(group(&owner), number);
        self.flows.insert(number, UnansweredFlow { owner, flow: Evicted { key, slot: None } });
        self.gauge.inc();
        number
    }

    /// Takes out the oldest flow of the viewer if it has many, otherwise of the group with the
    /// most.
    fn evict(&mut self, newcomer: &FlowOwner) -> Option<Evicted> {
        let most_of_viewer = (self.places / VIEWER_DIVISOR).max(1);
        let own = self.by_viewer.0.get(&newcomer.viewer());
        let largest = || self.by_group.0.values().max_by_key(|numbers| numbers.len());
        let numbers = own.filter(|own| own.len() >= most_of_viewer).or_else(largest)?;
        let oldest = *numbers.first()?;
        self.remove(oldest)
    }

    fn remove(&mut self, number: u64) -> Option<Evicted> {
        let UnansweredFlow { owner, flow } = self.flows.remove(&number)?;
        self.by_viewer.remove(&owner.viewer(), number);
        self.by_group.remove(&group(&owner), number);
        self.gauge.dec();
        Some(flow)
    }
}

fn group(owner: &FlowOwner) -> Group {
    (owner.listener, owner.client.clone())
}

fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The place of an unanswered UDP flow; given back when dropped.
#[derive(Debug)]
pub struct UnansweredPlace {
    table: Arc<Mutex<Table>>,
    number: u64,
}

impl UnansweredPlace {
    /// The flow runs, as number `slot` of its worker.
    pub(crate) fn runs_at(&self, slot: usize) {
        if let Some(entry) = lock(&self.table).flows.get_mut(&self.number) {
            entry.flow.slot = Some(slot);
        }
    }

    /// The owner of the flow; `None` when the flow has been evicted.
    pub(crate) fn owner(&self) -> Option<FlowOwner> {
        lock(&self.table).flows.get(&self.number).map(|entry| entry.owner.clone())
    }
}

impl Drop for UnansweredPlace {
    fn drop(&mut self) {
        lock(&self.table).remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unanswered(places: usize) -> Unanswered {
        Unanswered::new(places, IntGauge::new("unanswered", "unanswered").unwrap())
    }

    fn owner(listener: usize, viewer: u32) -> FlowOwner {
        let viewer = Some((0xc612_0000 + viewer).to_be_bytes().into());
        FlowOwner { viewer, listener: Some(listener), client: None }
    }

    #[test]
    fn the_oldest_flow_goes_first() {
        let unanswered = unanswered(3);
        let mut places = Vec::new();
        let evicted: Vec<_> = (0..6)
            .map(|key| {
                let (place, evicted) = unanswered.take(u64::from(key), owner(1, key));
                places.push(place);
                evicted.map(|it| it.key)
            })
            .collect();
        assert_eq!(evicted, [None, None, None, Some(0), Some(1), Some(2)]);
        assert_eq!(places[0].owner(), None);
        assert_eq!(places[5].owner(), Some(owner(1, 5)));
    }

    #[test]
    fn a_flood_at_one_listener_leaves_the_flows_of_another_alone() {
        let unanswered = unanswered(100);
        let _few: Vec<_> = (0..10).map(|key| unanswered.take(key, owner(1, 1)).0).collect();
        let mut flood = Vec::new();
        for key in 10..1000_u32 {
            let (place, evicted) = unanswered.take(u64::from(key), owner(2, key));
            flood.push(place);
            assert!(evicted.is_none_or(|it| it.key >= 10), "{evicted:?} for {key}");
        }
    }

    #[test]
    fn a_viewer_with_many_makes_room_for_its_own() {
        let unanswered = unanswered(64);
        let _others: Vec<_> =
            (0..60).map(|key| unanswered.take(key.into(), owner(1, key)).0).collect();
        let mut own = Vec::new();
        for key in 100..200 {
            let (place, evicted) = unanswered.take(key, owner(1, 1000));
            own.push(place);
            assert!(evicted.is_none_or(|it| it.key >= 100), "{evicted:?} for {key}");
        }
    }

    #[test]
    fn places_given_back_leave_nothing_behind() {
        let unanswered = unanswered(2);
        let places: Vec<_> = (0..5).map(|key| unanswered.take(key, owner(1, 1)).0).collect();
        drop(places);
        let table = lock(&unanswered.0);
        assert!(table.flows.is_empty() && table.by_viewer.0.is_empty());
        assert!(table.by_group.0.is_empty());
        assert_eq!(table.gauge.get(), 0);
    }

    #[test]
    fn an_evicted_flow_that_runs_is_named_by_its_slot() {
        let unanswered = unanswered(1);
        let (first, _) = unanswered.take(7, owner(1, 1));
        first.runs_at(3);
        let (_second, evicted) = unanswered.take(8, owner(1, 2));
        assert_eq!(evicted, Some(Evicted { key: 7, slot: Some(3) }));
    }
}
