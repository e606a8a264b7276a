//! `delay-aimd` over a simulated path.

use std::sync::Arc;
use std::time::Duration;

use custom_controller::DelayAimdConfig;
use millrace_cc::registry;
use millrace_cc::{Bandwidth, Spec};
use millrace_sim::{FlowSetup, LinkSetup, NoObserver, Setup, SimulationOutcome};

/// One flow over 20 Mbit/s and 40 ms with a bandwidth-delay product of buffer.
fn run(config: DelayAimdConfig, loss: f64) -> SimulationOutcome {
    let link = LinkSetup {
        loss,
        ..LinkSetup::new(Bandwidth::from_mbps(20.0), Duration::from_millis(40), 100_000)
    };
    let flow = FlowSetup::bulk(Arc::new(config));
    let mut setup = Setup::new(link, vec![flow], Duration::from_secs(30));
    setup.warmup = Duration::from_secs(5);
    millrace_sim::run(&setup, &mut NoObserver).expect("a possible setup")
}

#[test]
fn fills_the_link_and_keeps_the_queue_short() {
    let outcome = run(DelayAimdConfig::default(), 0.0);
    assert!(outcome.link.utilisation > 0.9, "{:?}", outcome.link);
    let p95 = outcome.flows[0].queueing.p95;
    assert!(p95 < Duration::from_millis(15), "{p95:?}");
}

#[test]
fn a_longer_queue_is_allowed_by_its_parameter() {
    let p95 = |max_queueing_ms| {
        let config = DelayAimdConfig { max_queueing_ms, ..DelayAimdConfig::default() };
        run(config, 0.0).flows[0].queueing.p95
    };
    assert!(p95(30.0) > p95(5.0));
}

#[test]
fn is_known_by_its_name_and_refuses_unknown_parameters() {
    custom_controller::register().expect("a name of its own");
    let found = registry::find(&Spec::named("delay-aimd").with("max_queueing_ms", 5.0));
    assert_eq!(found.expect("registered").name(), "delay-aimd");
    let error = registry::find(&Spec::named("delay-aimd").with("queue_ms", 5.0));
    assert!(error.expect_err("no such parameter").to_string().contains("queue_ms"));
}
