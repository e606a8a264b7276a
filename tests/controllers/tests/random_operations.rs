//! Any sequence of calls leaves a controller with a sane rate and window, and able to work.

use millrace_cc::{Controller, Time};
use millrace_replay::{Choices, ClosedLoop, Operations, Path, algorithms, unknown_path};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::time::Duration;

const PACKET_BYTES: u64 = 1350;

struct Random(Pcg64Mcg);

impl Choices for Random {
    fn next(&mut self) -> Option<u64> {
        Some(self.0.next_u64())
    }
}

fn operate(controller: &mut dyn Controller, seed: u64) -> Operations<Random> {
    let random = Random(Pcg64Mcg::seed_from_u64(seed));
    let mut operations = Operations::new(random, PACKET_BYTES);
    for _ in 0..2000 {
        operations.step(controller);
    }
    operations
}

#[test]
fn no_sequence_of_calls_breaks_a_controller() {
    for config in algorithms() {
        for seed in 0..100 {
            println!("{} {seed}", config.name());
            operate(&mut *config.build(Time::ZERO, &unknown_path(PACKET_BYTES, seed)), seed);
        }
    }
}

#[test]
fn controller_recovers_once_the_path_is_clean() {
    let clean = Path { lose_every: 0, ..Path::ORDINARY };
    let mut stuck = Vec::new();
    for config in algorithms() {
        for seed in 0..10 {
            let mut controller = config.build(Time::ZERO, &unknown_path(PACKET_BYTES, seed));
            let operations = operate(&mut *controller, seed);
            let (start, bytes) = (operations.now(), PACKET_BYTES);
            controller.on_mtu(bytes);
            let mut path = ClosedLoop::new(clean, bytes, start, operations.next_number());
            path.run_until(&mut *controller, start + Duration::from_secs(60));
            let before = path.acked_packets;
            path.run_until(&mut *controller, start + Duration::from_secs(80));
            let mbps = (path.acked_packets - before) as f64 * bytes as f64 * 8.0 / 20e6;
            if mbps < 50.0 {
                stuck.push(format!("{} {seed}: {mbps:.2} of 100 Mbit/s", config.name()));
            }
        }
    }
    assert!(stuck.is_empty(), "{stuck:#?}");
}
