use std::path::Path;

use super::*;
use crate::runner::RunRequest;
use crate::scenario::ScenarioFile;

/// A path that loses about as much as the paper's rule allows BBR: at random, where nothing overflows.
const RANDOM_LOSS: &str = "rate_mbps = 10\nrtt_ms = 30\nbuffer_bytes = 1500000\nloss = 0.03";
/// A path where BBR loses more than that by its own queue, and Westwood less: five flows with a buffer of 100 ms.
const SHORT_BUFFER: &str = "rate_mbps = 5\nrtt_ms = 30\nbuffer_bytes = 62500\nloss = 0.005";

/// Switches and goodput of five flows in 300 s with a rules file.
fn switches(link: &str, rules: &str, seed: u64) -> (usize, f64) {
    let text = format!(
        "name = 'boundary'\ntitle = 'At the boundary of a rule'\nduration_s = 300\n[link]\n{link}\n\
         [[flow]]\ncc = 'mcc'\ncount = 5\n\
         parameters = {{ rules = 'cc/mcc/rules/{rules}', initial_algorithm = 'bbr' }}"
    );
    let file = ScenarioFile::parse(&text, Path::new("test.toml")).unwrap();
    let scenario = file.cells[0].scenario.drawn(seed);
    let simulator = Simulator { traces: Traces::find(Some(Path::new("/nonexistent"))) };
    let directory = Path::new("/nonexistent");
    let request = RunRequest { scenario: &scenario, seed, with_series: false, directory };
    let ran = simulator.simulate(&request).unwrap();
    assert_eq!(ran.in_use.len(), 5);
    let switches = ran.in_use.iter().map(|in_use| in_use.len() - 1).sum();
    (switches, ran.figures.link.0["goodput_mbps"])
}

#[test]
#[allow(clippy::print_stdout, reason = "docs/research/mcc.md has the figures")]
fn hysteresis_keeps_the_rule_of_the_paper_from_flapping() {
    for (name, link) in [("random loss", RANDOM_LOSS), ("short buffer", SHORT_BUFFER)] {
        let (mut before, mut after) = (0, 0);
        for seed in 1..=3 {
            let (published, published_mbps) = switches(link, "paper-published.lua", seed);
            let (ours, mbps) = switches(link, "paper.lua", seed);
            println!(
                "{name}, seed {seed}: as published {published} switches, {published_mbps:.2} Mbit/s; \
                 with hysteresis {ours}, {mbps:.2}"
            );
            (before, after) = (before + published, after + ours);
        }
        assert!(before >= 3 * 5 * 10, "{name}: the path is not at the boundary: {before}");
        assert!(4 * after <= before, "{name}: {after} switches with hysteresis, {before} without");
    }
}
