/// No event is scheduled.
pub(crate) const NEVER: u64 = u64::MAX;

/// The earliest of a fixed number of times: a tournament tree. To change one of n times costs log2(n)
/// comparisons and no allocation. Of equal times the lower index comes first.
#[derive(Debug)]
pub(crate) struct Timers {
    times: Vec<u64>,
    /// `winners[1]` is the index of the earliest time; node n has the children 2n and 2n + 1.
    winners: Vec<u32>,
}

impl Timers {
    pub(crate) fn new(places: usize) -> Self {
        let leaves = places.next_power_of_two().max(2);
        let mut winners = vec![0; leaves];
        for node in (1..leaves).rev() {
            // All are equal, so the leftmost leaf below wins.
            let mut leaf = node;
            while leaf < leaves {
                leaf *= 2;
            }
            winners[node] = (leaf - leaves) as u32;
        }
        Self { times: vec![NEVER; leaves], winners }
    }

    pub(crate) fn set(&mut self, place: usize, time: u64) {
        if self.times[place] == time {
            return;
        }
        self.times[place] = time;
        let leaves = self.times.len();
        let pair = place & !1;
        let mut winner = self.earlier(pair as u32, pair as u32 + 1);
        let mut node = (leaves + place) / 2;
        self.winners[node] = winner;
        while node > 1 {
            let other = self.winners[node ^ 1];
            winner = if other < winner {
                self.earlier(other, winner)
            } else {
                self.earlier(winner, other)
            };
            node /= 2;
            self.winners[node] = winner;
        }
    }

    /// `left` is the lower index.
    fn earlier(&self, left: u32, right: u32) -> u32 {
        if self.times[right as usize] < self.times[left as usize] { right } else { left }
    }

    pub(crate) fn first(&self) -> (u64, usize) {
        let place = self.winners[1] as usize;
        (self.times[place], place)
    }
}

#[cfg(test)]
mod tests {
    use rand_core::{RngCore, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    #[test]
    fn it_agrees_with_a_search_through_all() {
        let mut rng = Pcg64Mcg::seed_from_u64(5);
        for places in [1, 2, 3, 5, 8, 33] {
            let mut timers = Timers::new(places);
            let mut times = vec![NEVER; places];
            for _ in 0..2000 {
                let place = rng.next_u64() as usize % places;
                times[place] = match rng.next_u64() % 20 {
                    19 => NEVER,
                    few => few,
                };
                timers.set(place, times[place]);
                let first = (0..places).min_by_key(|place| (times[*place], *place)).unwrap();
                assert_eq!(timers.first(), (times[first], first));
            }
        }
    }
}
