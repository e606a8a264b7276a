//! A bounded number of places that several users share fairly.
//!
//! Without contention a user may take any free place. Under contention, when no more than the reserve
//! is free, a user gets a place only while it holds less than its share, and less than a sixteenth of
//! the free places. The largest users are refused first, and a user that holds nothing gets a place as
//! long as one is free. These are dynamic thresholds (Choudhury and Hahne, "Dynamic Queue Length
//! Thresholds for Shared-Memory Packet Switches", IEEE/ACM Transactions on Networking 6(2), 1998).
//!
//! A place is taken and given back in constant time under one short lock. A user without a place is
//! not remembered, so that there are never more users than places.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Of the free places a user may hold one part in so many under contention.
const FREE_PLACES_DIVISOR: usize = 16;
/// A smaller pool has no reserve: a part of it would be less than users need at once.
const MIN_PLACES_WITH_RESERVE: usize = 64;

/// How much of a pool is kept for users that hold less than their share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// A quarter, for users of which there are many.
    Quarter,
    /// A sixteenth, for users that stand for many others each, as a listener does.
    Sixteenth,
}

/// The size of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolLimits {
    /// Places of all users together.
    pub places: usize,
    /// Places that a user may hold under contention.
    pub share: usize,
    /// How much is kept for users that hold less.
    pub reserve: Reserve,
}

impl PoolLimits {
    /// Nothing is ever refused.
    pub const UNLIMITED: Self =
        Self { places: usize::MAX, share: usize::MAX, reserve: Reserve::Quarter };

    /// Places that are taken when contention begins.
    pub fn contention_threshold(&self) -> usize {
        let reserve = match self.reserve {
            _ if self.places < MIN_PLACES_WITH_RESERVE => 0,
            Reserve::Quarter => self.places / 4,
            Reserve::Sixteenth => self.places / 16,
        };
        self.places - reserve
    }

    /// Whether a user that holds `held` places may take another one, `taken` being taken by all and the last `kept`
    /// being for others.
    fn check(&self, held: usize, taken: usize, kept: usize) -> Result<(), PlaceRefusal> {
        match self.check_share(held, taken, kept) {
            Err(PlaceRefusal::Share)
                if taken < self.contention_threshold().saturating_sub(kept) =>
            {
                Ok(())
            }
            checked => checked,
        }
    }

    /// The same under contention.
    fn check_share(&self, held: usize, taken: usize, kept: usize) -> Result<(), PlaceRefusal> {
        let free = self.places.saturating_sub(kept).saturating_sub(taken);
        let allowance = self.share.min(free / FREE_PLACES_DIVISOR).max(1);
        match free {
            0 => Err(PlaceRefusal::Full),
            _ if held >= allowance => Err(PlaceRefusal::Share),
            _ => Ok(()),
        }
    }
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceRefusal {
    /// All places are taken.
    Full,
    /// The user has its share, and others need what is free.
    Share,
}

/// A pool of places that users share fairly.
#[derive(Debug)]
pub struct FairShare<K> {
    state: Mutex<ShareState<K>>,
}

#[derive(Debug)]
struct ShareState<K> {
    limits: PoolLimits,
    taken: usize,
    /// Never 0.
    held: HashMap<K, usize>,
}

impl<K: Clone + Eq + Hash> FairShare<K> {
    /// A pool of which nothing is taken.
    pub fn new(limits: PoolLimits) -> Arc<Self> {
        let state = ShareState { limits, taken: 0, held: HashMap::new() };
        Arc::new(Self { state: Mutex::new(state) })
    }

    /// Changes the limits. What is taken stays taken.
    pub fn set(&self, limits: PoolLimits) {
        self.state().limits = limits;
    }

    /// Takes a place for `user`, which is given back when dropped.
    ///
    /// # Errors
    /// No place is available to this user.
    pub fn take(self: &Arc<Self>, user: K) -> Result<Place<K>, PlaceRefusal> {
        self.take_if(user, |limits, held, taken| limits.check(held, taken, 0))
    }

    /// The same for a user that may not have the last `kept` places. Contention begins as many places earlier for it.
    ///
    /// # Errors
    /// No place is available to this user.
    pub fn take_keeping(self: &Arc<Self>, kept: usize, user: K) -> Result<Place<K>, PlaceRefusal> {
        self.take_if(user, |limits, held, taken| limits.check(held, taken, kept))
    }

    /// The same for a user that may have its share only, also without contention.
    ///
    /// # Errors
    /// No place is available to this user.
    pub fn take_share(self: &Arc<Self>, user: K) -> Result<Place<K>, PlaceRefusal> {
        self.take_if(user, |limits, held, taken| limits.check_share(held, taken, 0))
    }

    fn take_if(
        self: &Arc<Self>,
        user: K,
        check: impl FnOnce(&PoolLimits, usize, usize) -> Result<(), PlaceRefusal>,
    ) -> Result<Place<K>, PlaceRefusal> {
        let mut state = self.state();
        let held = state.held.get(&user).copied().unwrap_or_default();
        check(&state.limits, held, state.taken)?;
        state.taken += 1;
        state.held.insert(user.clone(), held + 1);
        Ok(Place { pool: self.clone(), user })
    }

    /// Places that are taken.
    pub fn taken(&self) -> usize {
        self.state().taken
    }
}

impl<K> FairShare<K> {
    // Counts are right whichever thread panicked beside them.
    fn state(&self) -> MutexGuard<'_, ShareState<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A user's place in a pool; given back when dropped.
#[derive(Debug)]
pub struct Place<K: Eq + Hash> {
    pool: Arc<FairShare<K>>,
    user: K,
}

impl<K: Eq + Hash> Place<K> {
    /// The user that holds the place.
    pub fn user(&self) -> &K {
        &self.user
    }
}

impl<K: Eq + Hash> Drop for Place<K> {
    fn drop(&mut self) {
        let mut state = self.pool.state();
        state.taken -= 1;
        if let Some(held) = state.held.get_mut(&self.user) {
            *held -= 1;
            if *held == 0 {
                state.held.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: PoolLimits = PoolLimits { places: 1000, share: 20, reserve: Reserve::Quarter };

    /// All places that are given before one is refused, or one more than there are.
    fn until_refused<K: Eq + Hash>(
        take: impl Fn() -> Result<Place<K>, PlaceRefusal>,
    ) -> Vec<Place<K>> {
        std::iter::from_fn(|| take().ok()).take(LIMITS.places + 1).collect()
    }

    fn take_all(
        pool: &Arc<FairShare<&'static str>>,
        user: &'static str,
    ) -> Vec<Place<&'static str>> {
        until_refused(|| pool.take(user))
    }

    #[test]
    fn one_user_may_take_what_is_idle_and_another_still_gets_its_share() {
        let pool = FairShare::new(LIMITS);
        let greedy = take_all(&pool, "greedy");
        assert_eq!(greedy.len(), 750);
        assert_eq!(pool.take("greedy").unwrap_err(), PlaceRefusal::Share);
        // A sixteenth of what is free then, which becomes less with each place.
        assert_eq!(take_all(&pool, "other").len(), 14);
        assert_eq!(greedy.len(), 750);
    }

    #[test]
    fn the_share_bounds_a_user_under_contention() {
        let pool = FairShare::new(PoolLimits { share: 3, ..LIMITS });
        let _greedy = take_all(&pool, "greedy");
        assert_eq!(take_all(&pool, "other").len(), 3);
    }

    #[test]
    fn users_that_take_all_they_get_leave_a_place_for_those_with_none() {
        let pool = FairShare::new(LIMITS);
        let greedy: Vec<_> = (0..40)
            .flat_map(|user: u32| {
                let name: &'static str = Box::leak(user.to_string().into_boxed_str());
                take_all(&pool, name)
            })
            .collect();
        assert!(greedy.len() < 1000, "{}", greedy.len());
        assert!(pool.take("new").is_ok());
    }

    #[test]
    fn the_largest_user_is_refused_until_it_gives_places_back() {
        let pool = FairShare::new(LIMITS);
        let mut greedy = take_all(&pool, "greedy");
        let _other = take_all(&pool, "other");
        greedy.truncate(700);
        // No contention any more.
        assert!(pool.take("greedy").is_ok());
        assert_eq!(pool.taken(), 714);
    }

    #[test]
    fn a_full_pool_refuses_everyone() {
        let pool = FairShare::new(PoolLimits { places: 3, ..LIMITS });
        // Without a reserve.
        let places = take_all(&pool, "only");
        assert_eq!(places.len(), 3);
        assert_eq!(pool.take("other").unwrap_err(), PlaceRefusal::Full);
        drop(places);
        assert!(pool.take("other").is_ok());
    }

    #[test]
    fn places_given_back_leave_no_user_behind() {
        let pool = FairShare::new(LIMITS);
        drop(take_all(&pool, "one"));
        drop(pool.take("two").unwrap());
        assert_eq!(pool.taken(), 0);
        assert!(pool.state().held.is_empty());
    }

    #[test]
    fn limits_that_are_lowered_keep_what_is_taken() {
        let pool = FairShare::new(PoolLimits::UNLIMITED);
        let places: Vec<_> = (0..100).map(|_| pool.take("one").unwrap()).collect();
        pool.set(PoolLimits { places: 64, ..LIMITS });
        assert_eq!(pool.take("two").unwrap_err(), PlaceRefusal::Full);
        drop(places);
        assert!(pool.take("two").is_ok());
    }

    #[test]
    fn a_sixteenth_is_kept_from_users_that_stand_for_many() {
        let limits = PoolLimits { reserve: Reserve::Sixteenth, ..LIMITS };
        assert_eq!(limits.contention_threshold(), 938);
        assert_eq!(LIMITS.contention_threshold(), 750);
        assert_eq!(PoolLimits { places: 63, ..limits }.contention_threshold(), 63);
        assert_eq!(PoolLimits { places: 64, ..limits }.contention_threshold(), 60);
        assert!(PoolLimits::UNLIMITED.check(1 << 40, 1 << 40, usize::MAX / 4).is_ok());
    }

    #[test]
    fn users_that_may_not_have_the_last_places_share_those_before() {
        let pool = FairShare::new(LIMITS);
        let take = |user: &'static str| pool.take_keeping(250, user);
        let places = until_refused(|| take("greedy"));
        assert_eq!(places.len(), 500);
        assert_eq!(take("greedy").unwrap_err(), PlaceRefusal::Share);
        let _others: Vec<_> = (0..250)
            .map(|user: u32| take(Box::leak(user.to_string().into_boxed_str())).unwrap())
            .collect();
        assert_eq!(take("new").unwrap_err(), PlaceRefusal::Full);
        assert_eq!(take_all(&pool, "one that may").len(), 14);
        let small = FairShare::new(PoolLimits { places: 4, ..LIMITS });
        let _places: Vec<_> = (0..3).map(|_| small.take_keeping(1, "only").unwrap()).collect();
        assert_eq!(small.take_keeping(1, "only").unwrap_err(), PlaceRefusal::Full);
        assert!(small.take("only").is_ok());
    }

    #[test]
    fn user_that_may_have_its_share_only_gets_no_more_of_an_idle_pool() {
        let pool = FairShare::new(LIMITS);
        let places = until_refused(|| pool.take_share("one"));
        assert_eq!(places.len(), LIMITS.share);
        assert_eq!(pool.take_share("one").unwrap_err(), PlaceRefusal::Share);
        assert!(pool.take("one").is_ok());
    }

    /// A step of a run: the user takes a place, or the place that was taken at this point is given back.
    #[derive(Clone, Debug)]
    enum Step {
        Take(u8),
        TakeShare(u8),
        GiveBack(prop::sample::Index),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..6_u8).prop_map(Step::Take),
            1 => (0..6_u8).prop_map(Step::TakeShare),
            1 => any::<prop::sample::Index>().prop_map(Step::GiveBack),
        ]
    }

    proptest! {
        #[test]
        fn users_share_a_pool_fairly_whatever_they_do(
            places in 0..200_usize,
            share in 1..20_usize,
            steps in prop::collection::vec(step(), 0..400),
        ) {
            let limits = PoolLimits { places, share, reserve: Reserve::Quarter };
            let pool = FairShare::new(limits);
            let mut held: Vec<Place<u8>> = Vec::new();
            for step in steps {
                let taken = held.len();
                prop_assert_eq!(pool.taken(), taken);
                let (user, result) = match step {
                    Step::Take(user) => (user, pool.take(user)),
                    Step::TakeShare(user) => (user, pool.take_share(user)),
                    Step::GiveBack(at) => {
                        if taken > 0 {
                            held.swap_remove(at.index(taken));
                        }
                        continue;
                    }
                };
                let of_user = held.iter().filter(|place| *place.user() == user).count();
                let is_contended = taken >= limits.contention_threshold();
                match result {
                    Ok(place) => {
                        prop_assert!(taken < places);
                        prop_assert!(of_user < share || !is_contended);
                        held.push(place);
                    }
                    Err(PlaceRefusal::Full) => prop_assert_eq!(taken, places),
                    Err(PlaceRefusal::Share) => {
                        prop_assert!(of_user > 0, "a user without a place gets one that is free");
                        prop_assert!(is_contended || matches!(step, Step::TakeShare(_)));
                    }
                }
            }
        }
    }
}
