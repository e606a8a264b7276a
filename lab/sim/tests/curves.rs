//! The rate of each algorithm on six standard paths, second by second, as snapshots to review.
//!
//! After an intended change, run `INSTA_UPDATE=always cargo test -p millrace-sim --test curves` and
//! review the difference.

mod common;

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use common::{Log, link, setup};
use millrace_cc::registry::{self, Algorithm, Spec};
use millrace_cc::{Bandwidth, ControllerConfig};
use millrace_sim::{FlowSetup, LinkChange, LinkRate, LinkSetup, Setup, run};

const SECONDS: u64 = 30;
const SAMPLES_PER_SECOND: usize = 10;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Name and description, link, and changes of its rate.
struct Path {
    name: &'static str,
    link: LinkSetup,
    rates_mbps: Vec<(u64, f64)>,
}

fn paths() -> Vec<Path> {
    let path = |name, link, loss, rates_mbps: &[(u64, f64)]| Path {
        name,
        link: LinkSetup { loss, ..link },
        rates_mbps: rates_mbps.to_vec(),
    };
    vec![
        path("clean: 20 Mbit/s, 50 ms, 125 kB", link(20.0, 50, 125_000), 0.0, &[]),
        path("lossy: 20 Mbit/s, 50 ms, 125 kB, 1 %", link(20.0, 50, 125_000), 0.01, &[]),
        path("shallow: 100 Mbit/s, 30 ms, 15 kB", link(100.0, 30, 15_000), 0.0, &[]),
        path("deep: 10 Mbit/s, 40 ms, 400 kB", link(10.0, 40, 400_000), 0.0, &[]),
        path("satellite: 42 Mbit/s, 800 ms, 1 MB, 0.74 %", link(42.0, 800, 1_000_000), 0.0074, &[]),
        path(
            "changing: 20, 5 from 10 s, 20 Mbit/s from 20 s, 50 ms, 125 kB",
            link(20.0, 50, 125_000),
            0.0,
            &[(10, 5.0), (20, 20.0)],
        ),
    ]
}

fn of_path(path: &Path, algorithm: &Arc<dyn ControllerConfig>) -> Setup {
    let mut setup = setup(path.link.clone(), vec![FlowSetup::bulk(algorithm.clone())], SECONDS);
    setup.changes = path
        .rates_mbps
        .iter()
        .map(|(at_s, mbps)| {
            let rate = LinkRate::Constant(Bandwidth::from_mbps(*mbps));
            (Duration::from_secs(*at_s), LinkChange { rate: Some(rate), ..LinkChange::default() })
        })
        .collect();
    setup
}

/// A bar for each second, full at `most`.
fn bars(values: &[f64], most: f64) -> String {
    let bar = |value: &f64| BARS[((value / most * 7.0).round() as usize).min(7)];
    values.iter().map(bar).collect()
}

fn row(text: &mut String, name: &str, values: &[f64]) {
    write!(text, "{name:>14}").expect("writing to a string");
    for value in values {
        match *value {
            small if small < 9.95 => write!(text, " {small:5.2}"),
            medium if medium < 99.95 => write!(text, " {medium:5.1}"),
            large => write!(text, " {large:5.0}"),
        }
        .expect("writing to a string");
    }
    text.push('\n');
}

fn curves(path: &Path, algorithm: &Arc<dyn ControllerConfig>) -> String {
    let mut log = Log::default();
    let outcome = run(&of_path(path, algorithm), &mut log).expect("a setup that can be run");
    let seconds: Vec<_> = log.samples.chunks(SAMPLES_PER_SECOND).collect();
    let delivered: Vec<f64> = seconds
        .iter()
        .map(|second| {
            let mbps = second.iter().map(|(_, _, flows)| flows[0].throughput.mbps());
            mbps.sum::<f64>() / second.len() as f64
        })
        .collect();
    let last = |value: &dyn Fn(&millrace_sim::FlowSample) -> f64| -> Vec<f64> {
        seconds.iter().filter_map(|second| Some(value(&second.last()?.2[0]))).collect()
    };
    let most = match path.link.rate {
        LinkRate::Constant(rate) => rate.mbps(),
        LinkRate::Trace(_) => f64::NAN,
    };
    let flow = &outcome.flows[0];
    let mut text = format!("{}\n", path.name);
    writeln!(
        text,
        "{:>14} {}  {:.2} of the link, {:.2} % declared lost",
        "",
        bars(&delivered, most),
        outcome.link.utilisation,
        flow.loss_rate() * 100.0
    )
    .expect("writing to a string");
    row(&mut text, "Mbit/s", &delivered);
    row(&mut text, "pacing Mbit/s", &last(&|flow| flow.metrics.pacing_rate.mbps()));
    row(&mut text, "window kB", &last(&|flow| flow.metrics.window_bytes as f64 / 1e3));
    let rtt_ms = |flow: &millrace_sim::FlowSample| {
        flow.smoothed_rtt.map_or(0.0, |rtt| rtt.as_secs_f64() * 1e3)
    };
    row(&mut text, "RTT ms", &last(&rtt_ms));
    text
}

#[test]
fn every_algorithm_on_six_paths() {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    let _guard = settings.bind_to_scope();
    for name in registry::names() {
        let Ok(Algorithm::Controller(config)) = registry::find(&Spec::named(name)) else {
            continue;
        };
        if config.name() != name {
            continue;
        }
        let text: Vec<_> = paths().iter().map(|path| curves(path, &config)).collect();
        insta::assert_snapshot!(name, text.join("\n"));
    }
}
