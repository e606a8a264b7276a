//! Less of a scenario, for development.

use crate::scenario::ScenarioFile;

/// By what times are divided.
const TIMES: f64 = 4.0;
/// By what repeats are divided.
const REPEATS: u64 = 20;

/// Divides all times of a file and its repeats; says what was done.
pub fn quicker(file: &mut ScenarioFile) -> String {
    file.head.repeat = file.head.repeat.div_ceil(REPEATS);
    file.head.pictures_s.iter_mut().for_each(|at_s| *at_s /= TIMES);
    for cell in &mut file.cells {
        let scenario = &mut cell.scenario;
        scenario.duration_s /= TIMES;
        scenario.warmup_s /= TIMES;
        scenario.measure.settle_s /= TIMES;
        scenario.link.change.iter_mut().for_each(|change| change.at_s /= TIMES);
        for group in &mut scenario.groups {
            group.start_s /= TIMES;
            group.start_every_s /= TIMES;
            group.stop_s /= TIMES;
            group.change.iter_mut().for_each(|change| change.at_s /= TIMES);
        }
    }
    format!("times divided by {TIMES}, repeats by up to {REPEATS}: proves nothing")
}
