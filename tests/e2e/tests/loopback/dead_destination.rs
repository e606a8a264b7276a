//! Destinations that never answer cost the others nothing.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use millrace_e2e::listeners::Refusal;
use millrace_e2e::origin::{Blackhole, Origin};
use millrace_e2e::pair::Pair;

#[test]
fn dead_destinations_do_not_delay_other_flows() {
    const DEAD: usize = 64;
    const PROBES: usize = 100;
    let dead = Blackhole::open();
    let origin = Origin::echo();
    let pair = Pair::builder()
        .server("dial.timeout_s", 4)
        .server("dial.per_address_timeout_s", 4)
        .measured()
        .start();
    let probe = || {
        let started = Instant::now();
        let mut flow = pair.http().open(&origin.address().to_string()).unwrap();
        flow.write_all(b"ping").unwrap();
        flow.read_exact(&mut [0; 4]).unwrap();
        started.elapsed()
    };
    let median = |mut times: Vec<Duration>| {
        times.sort();
        (times[times.len() / 2], times[times.len() - 1])
    };
    let (alone, _) = median((0..PROBES).map(|_| probe()).collect());
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..DEAD)
            .map(|_| scope.spawn(|| pair.http().open(&dead.address().to_string())))
            .collect();
        std::thread::sleep(Duration::from_millis(500));
        let (beside, slowest) = median((0..PROBES).map(|_| probe()).collect());
        // Or they would not have been beside anything.
        assert!(waiting.iter().all(|dead| !dead.is_finished()), "a dead destination answered");
        println!(
            "a new flow takes {alone:?} alone, {beside:?} beside {DEAD} dead ones, at most {slowest:?}"
        );
        assert!(beside < 3 * alone + Duration::from_millis(5), "{beside:?}, alone {alone:?}");
        assert!(slowest < Duration::from_millis(500), "{slowest:?}");
        for dead in waiting {
            match dead.join().unwrap() {
                Err(Refusal::Http { status: 504, .. }) => {}
                other => panic!("{other:?}"),
            }
        }
    });
}
