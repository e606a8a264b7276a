//! Players at the receivers of simulated flows.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::Arc;
use std::time::Duration;

use millrace_cc::Bandwidth;
use millrace_cc::registry::{self, Algorithm, Spec};
use millrace_sim::{
    BitrateLadder, BitrateStrategy, DataSource, FlowSample, FlowSetup, LinkChange, LinkRate,
    LinkSample, LinkSetup, NoObserver, Observer, PlayerOutcome, PlayerSetup, Setup, run,
};

fn player(cc: &str, strategy: BitrateStrategy) -> FlowSetup {
    let spec = Spec { name: cc.to_owned(), parameters: Default::default() };
    let Algorithm::Controller(algorithm) = registry::find(&spec).unwrap() else { panic!("{cc}") };
    let setup = PlayerSetup { strategy, ..PlayerSetup::new(Arc::new(BitrateLadder::recorded())) };
    FlowSetup { source: DataSource::Player(Arc::new(setup)), ..FlowSetup::bulk(algorithm) }
}

fn link(mbps: f64, loss: f64) -> LinkSetup {
    let link = LinkSetup::new(Bandwidth::from_mbps(mbps), Duration::from_millis(50), 60_000);
    LinkSetup { loss, ..link }
}

fn sessions(setup: &Setup) -> Vec<PlayerOutcome> {
    let outcome = run(setup, &mut NoObserver).unwrap();
    outcome.flows.iter().map(|flow| flow.player.unwrap()).collect()
}

#[test]
fn sessions_are_whole_and_follow_from_the_seed() {
    for strategy in [BitrateStrategy::Throughput, BitrateStrategy::Bola, BitrateStrategy::Dynamic] {
        let mut flows = vec![player("cubic", strategy), player("vivace-latency", strategy)];
        flows[1].start = Duration::from_secs(3);
        flows[1].stop = Some(Duration::from_secs(35));
        let mut setup = Setup::new(link(2.0, 0.01), flows, Duration::from_secs(40));
        setup.seed = 7;
        let first = sessions(&setup);
        for (session, seconds) in first.iter().zip([40, 32]) {
            assert_eq!(session.session, Duration::from_secs(seconds));
            assert_eq!(
                session.startup.unwrap() + session.played + session.stalled,
                session.session
            );
            assert!(session.segments > 10 && session.body_bytes > 500_000, "{session:?}");
        }
        assert_eq!(first, sessions(&setup));
        setup.seed = 8;
        assert_ne!(first, sessions(&setup), "losses differ");
    }
}

#[test]
fn a_link_without_fault_shows_the_top_rung_from_the_second_second_on() {
    // docs/research/results/qoe-check has 3495 and 3502 kbit/s of a browser.
    let mut fast = link(50.0, 0.0);
    (fast.rtt, fast.buffer_bytes) = (Duration::from_millis(20), 125_000);
    for cc in ["cubic", "vivace-latency"] {
        let flow = player(cc, BitrateStrategy::Throughput);
        let session = sessions(&Setup::new(fast.clone(), vec![flow], Duration::from_secs(30)))[0];
        let bitrate = session.bitrate_kbps.unwrap();
        assert!((3490.0..3600.0).contains(&bitrate), "{cc}: {bitrate}");
        assert_eq!((session.stalls, session.switches), (0, 1), "{cc}");
    }
}

/// The level of the buffer, sample by sample.
#[derive(Default)]
struct Levels(Vec<Duration>);

impl Observer for Levels {
    fn sample(&mut self, _at: millrace_cc::Time, _link: &LinkSample, flows: &[FlowSample]) {
        self.0.push(flows[0].player.unwrap().buffer);
    }
}

#[test]
fn an_outage_stalls_when_the_buffer_has_been_played_and_not_before() {
    let flow = player("cubic", BitrateStrategy::Throughput);
    let mut setup = Setup::new(link(20.0, 0.0), vec![flow], Duration::from_secs(60));
    let rate = |mbps| LinkChange {
        rate: Some(LinkRate::Constant(Bandwidth::from_mbps(mbps))),
        ..LinkChange::default()
    };
    setup.changes =
        vec![(Duration::from_secs(30), rate(0.001)), (Duration::from_secs(50), rate(20.0))];
    let mut levels = Levels::default();
    let session = run(&setup, &mut levels).unwrap().flows[0].player.unwrap();
    assert_eq!(session.stalls, 1, "{session:?}");
    // At 30.0 s the buffer has `level`; the browser waits with 0.11 s of it. The link is back 20 s later, a segment
    // takes some tenths of a second then.
    let level = levels.0[299];
    assert!(level > Duration::from_secs(12), "{level:?}");
    let least = Duration::from_secs(20) + Duration::from_millis(110) - level;
    let excess =
        session.stalled.checked_sub(least).unwrap_or_else(|| panic!("{session:?} {level:?}"));
    assert!(excess < Duration::from_secs(3), "{session:?} {level:?}");
}
