//! The module of docs/research/own-algorithm.md compiles as the page shows it, and does what the page says.

use std::sync::Arc;
use std::time::Duration;

pub(crate) use millrace_cc::{
    Bandwidth, CongestionEvent, Controller, ControllerConfig, ControllerMetrics, PathModel,
    PathStart, SentPacket, Time,
};
use millrace_cc::{Spec, registry};
use millrace_sim::{FlowSetup, LinkSetup, NoObserver, Setup};

#[path = "guide/aimd.rs"]
mod aimd;

/// The page's module is one of `millrace-cc`, and finds this there.
mod algorithm {
    pub(crate) use millrace_cc::{AlgorithmEntry, read_settings};
}

#[test]
fn the_page_shows_the_module() {
    let page = include_str!("../../../docs/research/own-algorithm.md");
    let module = include_str!("guide/aimd.rs");
    assert!(
        page.contains(&format!("```rust\n{module}```\n")),
        "docs/research/own-algorithm.md shows another module than tests/controllers/tests/guide/aimd.rs"
    );
    let lines = module.lines().count();
    assert!(page.contains(&format!("## A module in {lines} lines\n")), "it has {lines} lines");
}

#[test]
fn the_module_is_found_by_its_name_and_fills_a_link_without_loss() {
    registry::add(aimd::ENTRIES).expect("a name of its own");
    let reduction = Spec::named("aimd").with("reduction", 0.5);
    assert_eq!(registry::find(&reduction).expect("it is registered").name(), "aimd");

    // The link of the page's scenario, without loss.
    let rtt = Duration::from_millis(40);
    let link = LinkSetup::new(Bandwidth::from_mbps(20.0), rtt, 100_000);
    let flow = FlowSetup::bulk(Arc::new(aimd::AimdConfig::default()));
    let mut setup = Setup::new(link, vec![flow], Duration::from_secs(30));
    setup.warmup = Duration::from_secs(5);
    let outcome = millrace_sim::run(&setup, &mut NoObserver).expect("a possible setup");
    assert!(outcome.link.utilisation >= 0.9, "{:?}", outcome.link);
}
