//! Path changes: detection, no false detection, and the effect of a restart after a path change.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Log, algorithms, link, setup};
use millrace_cc::{Bandwidth, ControllerConfig, PathModel, Time};
use millrace_sim::{FlowSetup, LinkChange, LinkSetup, Setup, Supervisor, run_supervised};

/// Records path changes, and optionally restarts the algorithm when the path has become longer.
struct PathChangeWatch {
    algorithm: Arc<dyn ControllerConfig>,
    restarts: bool,
    is_longer: bool,
    changes_s: Vec<f64>,
}

impl Supervisor for PathChangeWatch {
    fn watches(&self, _flow: usize) -> bool {
        true
    }

    fn ingest(&mut self, _flow: usize, now: Time, path: &PathModel) {
        if path.path_changes as usize > self.changes_s.len() {
            self.changes_s.push(now.as_secs_f64());
            self.is_longer = path.is_longer();
        }
    }

    fn evaluate(&mut self, _now: Time) -> Vec<(usize, Arc<dyn ControllerConfig>)> {
        let restart = std::mem::take(&mut self.is_longer) && self.restarts;
        restart.then(|| (0, Arc::clone(&self.algorithm))).into_iter().collect()
    }

    fn interval(&self) -> Duration {
        Duration::from_millis(50)
    }
}

fn watched(
    algorithm: &Arc<dyn ControllerConfig>,
    restarts: bool,
    setup: &Setup,
) -> (Log, Vec<f64>) {
    let algorithm = Arc::clone(algorithm);
    let mut watch =
        PathChangeWatch { algorithm, restarts, is_longer: false, changes_s: Vec::new() };
    let mut log = Log::default();
    run_supervised(setup, &mut log, &mut watch).expect("a setup that can be run");
    (log, watch.changes_s)
}

fn bulk(algorithm: &Arc<dyn ControllerConfig>, link: LinkSetup, seconds: u64) -> Setup {
    setup(link, vec![FlowSetup::bulk(Arc::clone(algorithm))], seconds)
}

const SATELLITE_MBPS: f64 = 42.0;

/// A mobile link that becomes a satellite link at 20 s.
fn onto_a_satellite(algorithm: &Arc<dyn ControllerConfig>) -> Setup {
    let satellite = LinkChange {
        rate: Some(millrace_sim::LinkRate::Constant(Bandwidth::from_mbps(SATELLITE_MBPS))),
        rtt: Some(Duration::from_millis(800)),
        buffer_bytes: Some(4_200_000),
        ..LinkChange::default()
    };
    let changes = vec![(Duration::from_secs(20), satellite)];
    Setup { changes, ..bulk(algorithm, link(20.0, 60, 150_000), 40) }
}

#[test]
fn restart_after_a_path_change_fills_the_longer_path() {
    let names = ["bbr", "iris-min", "vivace-latency", "copa"];
    for algorithm in algorithms().iter().filter(|it| names.contains(&it.name())) {
        let setup = onto_a_satellite(algorithm);
        let (kept, found_s) = watched(algorithm, false, &setup);
        let name = algorithm.name();
        assert_eq!(found_s.len(), 1, "{name}: {found_s:?}");
        // A round trip until the first packet is acknowledged, and half of one for confirmation.
        assert!((20.8..21.8).contains(&found_s[0]), "{name}: {found_s:?}");
        let (restarted, _) = watched(algorithm, true, &setup);
        let share = |log: &Log| log.share(SATELLITE_MBPS, 26.0, 34.0);
        let (restarted, kept) = (share(&restarted), share(&kept));
        assert!(
            restarted > 0.8 && restarted > 1.3 * kept,
            "{name}: {restarted:.2}, without {kept:.2}"
        );
    }
}

#[test]
fn queues_losses_outages_and_jitter_are_not_path_changes() {
    let jitter = LinkSetup { jitter: Duration::from_millis(8), ..link(20.0, 40, 400_000) };
    let lossy = LinkSetup { loss: 0.03, ..link(20.0, 40, 100_000) };
    let rate = |mbps| LinkChange {
        rate: Some(millrace_sim::LinkRate::Constant(Bandwidth::from_mbps(mbps))),
        ..LinkChange::default()
    };
    for algorithm in &algorithms() {
        let stands_still = Setup {
            changes: vec![
                (Duration::from_secs(10), rate(0.005)),
                (Duration::from_secs(11), rate(20.0)),
            ],
            ..bulk(algorithm, link(20.0, 40, 100_000), 20)
        };
        let slows = Setup {
            changes: vec![(Duration::from_secs(10), rate(1.0))],
            ..bulk(algorithm, link(20.0, 40, 100_000), 20)
        };
        let deep = bulk(algorithm, link(20.0, 40, 1_500_000), 20);
        let all = [
            ("a deep buffer", deep),
            ("jitter", bulk(algorithm, jitter.clone(), 20)),
            ("loss", bulk(algorithm, lossy.clone(), 20)),
            ("an outage", stands_still),
            ("a slower link", slows),
        ];
        for (what, setup) in all {
            let (_, found_s) = watched(algorithm, false, &setup);
            assert!(found_s.is_empty(), "{}, {what}: {found_s:?}", algorithm.name());
        }
    }
}
