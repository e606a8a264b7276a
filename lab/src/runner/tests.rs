use std::path::Path;

use super::*;

/// A machine that is busy during the second repeat.
struct BusyMachine;

impl ScenarioDriver for BusyMachine {
    const NAME: &'static str = "simulator";

    fn run(&self, request: &RunRequest<'_>) -> Result<Result<RunResult, NotDone>> {
        let mut figures = RunFigures::default();
        figures.link.set("goodput_mbps", 4.5);
        let busy = (request.seed == 2).then(|| "the machine was busy".to_owned());
        let invalid_because = busy.into_iter().collect();
        Ok(Ok(RunResult { figures, invalid_because, ..RunResult::default() }))
    }

    fn weight(&self, _scenario: &Scenario) -> u64 {
        1
    }
}

#[test]
fn invalid_runs_are_kept_apart_with_their_figures_and_reasons() {
    let out = tempfile::tempdir().unwrap();
    let text = "name = \"a\"\ntitle = \"A\"\nduration_s = 1\nrepeat = 2\n\
                link = { rate_mbps = 1, rtt_ms = 1, buffer_bytes = 15000 }\n[[flow]]\ncc = \"cubic\"\n";
    let file = ScenarioFile::parse(text, Path::new("a.toml")).unwrap();
    let options = RunnerOptions {
        out: out.path().to_owned(),
        jobs: 1,
        attempts: 1,
        quick: None,
        earlier: None,
    };
    let mut seen = None;
    run(&BusyMachine, &[file], &options, |summary, _| {
        seen = Some(summary.clone());
        Ok(())
    })
    .unwrap();
    let summary = seen.unwrap();
    assert_eq!((summary.counts.done, summary.counts.invalid), (2, 1));
    assert_eq!(summary.cells[0].runs, ["0000-r00"]);
    let [invalid] = &summary.invalid_runs[..] else { panic!("{:?}", summary.invalid_runs) };
    assert_eq!(invalid.cell.runs, ["0000-r01"]);
    assert_eq!(invalid.because, ["the machine was busy"]);
    assert_eq!(invalid.cell.link["goodput_mbps"].median, 4.5);
}
