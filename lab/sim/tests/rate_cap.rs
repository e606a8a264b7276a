//! A player whose sending rate is capped, beside the same player without a cap and with the same seed.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::Arc;
use std::time::Duration;

use millrace_cc::registry::{self, Algorithm, Spec};
use millrace_cc::{Bandwidth, Time};
use millrace_sim::{
    BitrateLadder, DataSource, FlowSample, FlowSetup, LinkSample, LinkSetup, Observer,
    PlayerOutcome, PlayerSetup, Setup, run,
};

/// Added time in stalls that is allowed with one seed.
const MAX_ADDED_STALL: Duration = Duration::from_millis(100);
/// 1.5 times the highest bitrate of the recorded ladder, in bytes of the tunnel's packets: 4.7 % more.
const CAPPED_MBPS: f64 = 1.5 * 3.6 * 1.05;

fn setup(cc: &str, mbps: f64, seed: u64, is_capped: bool) -> Setup {
    let spec = Spec { name: cc.to_owned(), parameters: Default::default() };
    let Algorithm::Controller(algorithm) = registry::find(&spec).unwrap() else { panic!("{cc}") };
    let player = PlayerSetup::new(Arc::new(BitrateLadder::recorded()));
    let flow = FlowSetup {
        source: DataSource::Player(Arc::new(player)),
        caps_player_rate: is_capped,
        ..FlowSetup::bulk(algorithm)
    };
    let link = LinkSetup::new(Bandwidth::from_mbps(mbps), Duration::from_millis(50), 60_000);
    let link = LinkSetup { loss: 0.01, ..link };
    let mut setup = Setup::new(link, vec![flow], Duration::from_secs(90));
    setup.seed = seed;
    setup
}

/// What crossed the link every 100 ms, in Mbit/s.
#[derive(Default)]
struct Samples(Vec<f64>);

impl Observer for Samples {
    fn sample(&mut self, _at: Time, _link: &LinkSample, flows: &[FlowSample]) {
        self.0.push(flows[0].throughput.mbps());
    }
}

fn play(setup: &Setup) -> (PlayerOutcome, Samples) {
    let mut samples = Samples::default();
    let outcome = run(setup, &mut samples).unwrap();
    (outcome.flows[0].player.unwrap(), samples)
}

#[test]
fn cap_adds_no_stall_with_any_seed() {
    for cc in ["bbr", "cubic", "vivace-latency"] {
        for mbps in [2.0, 5.0, 12.0, 50.0] {
            for seed in 0..10 {
                let [without, with] =
                    [false, true].map(|is_capped| play(&setup(cc, mbps, seed, is_capped)).0);
                let added = with.stalled.saturating_sub(without.stalled);
                assert!(added <= MAX_ADDED_STALL, "{cc}, {mbps}, {seed}: {with:?} {without:?}");
            }
        }
    }
}

#[test]
fn a_player_with_a_full_buffer_gets_no_more_than_the_cap() {
    let fastest = |is_capped| {
        let (_, samples) = play(&setup("bbr", 50.0, 1, is_capped));
        // From 30 s on the buffer is full.
        samples.0[300..].iter().copied().fold(0.0, f64::max)
    };
    let (capped, free) = (fastest(true), fastest(false));
    assert!(capped < 1.1 * CAPPED_MBPS && capped > 0.8 * CAPPED_MBPS, "{capped} Mbit/s");
    assert!(free > 2.0 * CAPPED_MBPS, "{free} Mbit/s");
}
