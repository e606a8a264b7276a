//! What the path does to packets, several things at a time: bits flip, packets come twice, late or not at all,
//! the path MTU falls and rises, and a NAT forgets its table. None of it excuses a flow that fails.

use std::time::{Duration, Instant};

use millrace_e2e::relay::{Faults, Relay};
use serde_json::{Value, json};

use crate::random::Random;

/// How long a set of faults stays. Long enough for a black hole of the path MTU to be found.
const STAYS_MS: std::ops::Range<u64> = 4_000..9_000;
/// Between two rebindings.
const REBINDS_AFTER_MS: std::ops::Range<u64> = 1_500..6_000;
/// UDP payload in IPv4 packets of 1,280 and of 1,250 bytes.
const SMALL_DATAGRAMS_BYTES: [usize; 2] = [1252, 1222];

/// The faults of the paths to both servers.
pub struct FaultSchedule {
    random: Random,
    relays: Vec<Relay>,
    change_at: Instant,
    rebind_at: Instant,
    changes: u64,
    rebindings: u64,
    small_mtus: u64,
}

impl FaultSchedule {
    /// Nothing is wrong yet.
    pub fn new(seed: u64, relays: Vec<Relay>) -> Self {
        let now = Instant::now();
        Self {
            random: Random::new(seed ^ 0xfa17),
            relays,
            change_at: now,
            rebind_at: now,
            changes: 0,
            rebindings: 0,
            small_mtus: 0,
        }
    }

    /// Changes the faults, when their time has come.
    pub fn step(&mut self) {
        let now = Instant::now();
        if now >= self.change_at {
            self.change_at = now + self.random.ms(STAYS_MS);
            self.changes += 1;
            let faults = self.draw();
            println!("     {faults:?}");
            self.relays.iter().for_each(|relay| relay.set_faults(faults));
        }
        if now >= self.rebind_at {
            self.rebind_at = now + self.random.ms(REBINDS_AFTER_MS);
            self.rebindings += 1;
            self.relays.iter().for_each(Relay::rebind);
        }
    }

    fn draw(&mut self) -> Faults {
        let mut permille = |most: u64| match self.random.once_in(3) {
            true => 0,
            false => u32::try_from(self.random.below(most)).expect("thousandths are small"),
        };
        let (corrupt, duplicate, reorder, lose) =
            (permille(20), permille(100), permille(100), permille(20));
        // Every other set, so that the path MTU rises again in between.
        let small = self.changes.is_multiple_of(2);
        self.small_mtus += u64::from(small);
        Faults {
            corrupt_permille: corrupt,
            duplicate_permille: duplicate,
            reorder_permille: reorder,
            lose_permille: lose,
            max_datagram_bytes: match small {
                true => SMALL_DATAGRAMS_BYTES[self.random.below(2) as usize],
                false => 0,
            },
        }
    }

    /// The path is as it was at the beginning.
    pub fn end(&mut self) {
        self.relays.iter().for_each(|relay| relay.set_faults(Faults::default()));
        self.change_at = Instant::now() + Duration::from_secs(3600);
        self.rebind_at = self.change_at;
    }

    /// How often what was.
    pub fn json(&self) -> Value {
        let Self { changes, rebindings, small_mtus, .. } = self;
        json!({ "changes": changes, "rebindings": rebindings, "small_path_mtus": small_mtus })
    }
}
