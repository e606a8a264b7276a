//! Less of a scenario, for development.

use crate::scenario::ScenarioFile;

/// By what times are divided.
const TIME_DIVISOR: f64 = 4.0;
/// By what repeats are divided.
const REPEAT_DIVISOR: u64 = 20;

/// Divides all times of a file and its repeats; says what was done.
pub fn quicker(file: &mut ScenarioFile) -> String {
    file.head.repeat = file.head.repeat.div_ceil(REPEAT_DIVISOR);
    file.head.pictures_s.iter_mut().for_each(|at_s| *at_s /= TIME_DIVISOR);
    for cell in &mut file.cells {
        let scenario = &mut cell.scenario;
        scenario.duration_s /= TIME_DIVISOR;
        scenario.warmup_s /= TIME_DIVISOR;
        scenario.measure.settle_s /= TIME_DIVISOR;
        scenario.link.change.iter_mut().for_each(|change| change.at_s /= TIME_DIVISOR);
        for group in &mut scenario.groups {
            group.start_s /= TIME_DIVISOR;
            group.start_every_s /= TIME_DIVISOR;
            group.stop_s /= TIME_DIVISOR;
            group.change.iter_mut().for_each(|change| change.at_s /= TIME_DIVISOR);
        }
    }
    format!("times divided by {TIME_DIVISOR}, repeats by up to {REPEAT_DIVISOR}: proves nothing")
}
